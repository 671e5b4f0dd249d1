"""The source of a rule as a program, with the sizes that a drawing leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from patcomp.errors import EvaluationError
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.module import IRModule, create_graph
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import TensorType, shape_of, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block, BlockArgument, Rewriter, SSAValue, replace_uses, set_name
from patcomp.patterns.language import AnyOf, ResultNode
from patcomp_lab.proof.drawing import Drawing, open_type
from patcomp_lab.proof.variants import Sample


def _program_of(drawing: Drawing, example: Mapping[str, Any] | None = None) -> tuple[IRModule, dict[SSAValue, str]]:
    """A drawn source as a program that returns the replaced values, and the name of the capture of each input.

    Args:
        drawing: the program.
        example: the types, numbers and attributes; by default those of the drawing.

    Raises:
        InferenceError: the types do not fit each other.
    """
    given = dict(drawing.example if example is None else example)
    for name, element in drawing.as_inputs.items():
        given[name] = _type_of(given[name], element)
    module, built = IRModule(), drawing.sample(given)
    for name, other in drawing.same.items():
        twin = built.inputs.pop(name)
        assert isinstance(twin, BlockArgument)
        replace_uses(twin, built.inputs[other])
        built.block.erase_arg(twin)
    returned = _replaced(drawing, built)
    if drawing.returns_all:
        inner = [
            result
            for node in drawing.rule.graph.nodes
            if getattr(node, "escapes", False) and id(node) in built.nodes
            for result in built.nodes[id(node)].results
        ]
        returned += [result for result in inner if result not in returned]
    with Builder(built.block, blobs=module.blobs):
        coreai.output(*map(Value, returned))
    captures = {value: name for name, value in built.inputs.items()}
    for argument in built.block.args:
        set_name(argument, captures.get(argument, f"any_{argument.index}"))
    names = [argument.name_hint or "" for argument in built.block.args]
    outputs = [f"y{index}" for index in range(len(returned))]
    module.op.body.block.add_op(create_graph("main", built.block, argument_names=names, result_names=outputs))
    return module, captures


def _replaced(drawing: Drawing, built: Sample) -> list[SSAValue]:
    root = drawing.rule.graph.root
    while isinstance(root, AnyOf):
        root = root.alternatives[drawing.variant.choices[id(root)]]
    return [built.root.results[root.index]] if isinstance(root, ResultNode) else list(built.root.results)


def _type_of(numbers: Any, element: str) -> str:
    """The type of a number, or of a list of numbers."""
    return f"{len(numbers)}x{element}" if isinstance(numbers, list) else element


def examples_of(drawing: Drawing) -> list[Mapping[str, Any]]:
    """The types, numbers and attributes of each run of a program."""
    return [drawing.example, *({**drawing.example, **run} for run in drawing.runs)]


def with_open_sizes(drawing: Drawing) -> Mapping[str, Any]:
    """The example with a type of open sizes in the place of each type whose sizes differ between the runs."""
    changed = drawing.runs[0] if drawing.runs else {}
    return {
        **drawing.example,
        **{name: open_type(drawing.example[name], [run[name] for run in drawing.runs]) for name in changed},
    }


def opened_program(drawing: Drawing) -> tuple[IRModule, dict[SSAValue, str]]:
    """The program of a drawing in which the sizes that differ between its runs are open.

    Core AI's ops infer the sizes of their results. Those of PyTorch's ops are what eager PyTorch gives in the runs,
    open where two runs differ.

    Raises:
        InferenceError: the types do not fit each other.
        EvaluationError: PyTorch refuses one of the runs.
    """
    from patcomp.evaluate.eager import random_tensor, run_eagerly

    if drawing.rule.graph.dialect is not aten_namespace:
        return _program_of(drawing, with_open_sizes(drawing))
    made: list[tuple[IRModule, dict[SSAValue, str]]] = []
    for example in examples_of(drawing):
        module, captures = _program_of(drawing, example)
        block = module.graph("main").regions[0].block
        inputs = []
        for argument in block.args:
            given = input_of(drawing, example, captures.get(argument))
            limits = drawing.range_of(captures[argument]) if argument in captures else None
            inputs.append(random_tensor(argument.type, limits, argument.index) if given is None else given)
        run_eagerly(block, inputs, module.blobs)
        made.append((module, captures))
    (module, captures), *others = made
    block = module.graph("main").regions[0].block
    for further, _ in others:
        captures = _merged(block, further.graph("main").regions[0].block, captures)
    return module, captures


def input_of(drawing: Drawing, example: Mapping[str, Any], capture: str | None) -> Any:
    """The tensor of a number that is an input of the program; None for another input."""
    import torch

    from patcomp.evaluate.element_types import TORCH_DTYPES

    if capture is None or capture not in drawing.as_inputs:
        return None
    return torch.tensor(example[capture]).to(TORCH_DTYPES[drawing.as_inputs[capture]])


def _merged(block: Block, other: Block, captures: dict[SSAValue, str]) -> dict[SSAValue, str]:
    """Open the sizes of a block's values that differ in another run of it; return the captures of its arguments."""
    kept: dict[SSAValue, str] = dict(captures)
    for value, same in zip(list(_values(block)), list(_values(other)), strict=True):
        one, two = value.type, same.type
        if one == two:
            continue
        if not isinstance(one, TensorType) or not isinstance(two, TensorType):
            raise EvaluationError("the runs have values of different kinds")
        sizes, others = shape_of(one), shape_of(two)
        if len(sizes) != len(others) or one.element_type != two.element_type:
            raise EvaluationError("the runs have values of different types")
        merged = tensor(tuple(a if a == b else None for a, b in zip(sizes, others, strict=True)), one.element_type)
        hint, name = value.name_hint, kept.pop(value, None)
        typed = Rewriter.replace_value_with_new_type(value, merged)
        set_name(typed, hint)
        if name is not None:
            kept[typed] = name
    return kept


def _values(block: Block) -> Iterator[SSAValue]:
    yield from block.args
    for op in block.ops:
        yield from op.results
