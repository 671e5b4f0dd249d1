"""A part of a graph as an exported program of its own, which shares the weights of the whole program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import GraphModule, Node
from torch.fx.passes.utils.fuser_utils import fuse_as_graphmodule, topo_sort

from patcomp.frontend_torch.fx.nodes import is_size
from patcomp.frontend_torch.fx.provenance import nested_graph
from patcomp.frontend_torch.fx.sizes import known
from patcomp.pytorch import OpOverload, pytree

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@dataclass(frozen=True)
class ModelPart:
    """A part of a program.

    Args:
        name: of the part, and of its entry point.
        nodes: of the whole program's graph.
        exported: the part as a program. Its weights are those of the whole program, and it has no state: what a part
            writes to is an input and an output.
        inputs: the nodes of the whole program's graph that cross into the part.
        outputs: the nodes that cross out of it.
        taken: which of the values that the part reads, its weights among them, are its inputs.
    """

    name: str
    nodes: tuple[Node, ...]
    exported: ExportedProgram
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    taken: tuple[int, ...]


def unwritten_weights(program: ExportedProgram) -> dict[str, InputSpec]:
    """The inputs of a program's graph that are weights and are not written to, by name."""
    specs = program.graph_signature.output_specs
    written = {spec.target for spec in specs if spec.kind is not OutputKind.USER_OUTPUT}
    return {
        spec.arg.name: spec
        for spec in program.graph_signature.input_specs
        if spec.kind in _WEIGHTS and spec.target not in written
    }


def extracted(program: ExportedProgram, nodes: Sequence[Node], name: str) -> ModelPart:
    """A part of a program.

    Args:
        program: the whole program; nothing of it is changed.
        nodes: of its graph; nodes outside of it do not lie between them.
        name: of the part.
    """
    whole = program.graph.owning_module
    assert isinstance(whole, GraphModule)
    module, sources, outputs = fuse_as_graphmodule(whole, topo_sort(list(nodes)), name, dict.fromkeys(nodes))
    placeholders = module.graph.find_nodes(op="placeholder")
    for placeholder, source in zip(placeholders, sources, strict=True):
        placeholder.name = source.name  # FX renames what is a name of Python, such as `input`
    _measure_sizes(placeholders, sources)
    weights = unwritten_weights(program)
    own = [index for index, source in enumerate(sources) if source.op == "placeholder" and source.name in weights]
    taken = [index for index, each in enumerate(placeholders) if each.users and index not in own]
    specs = [weights[sources[index].name] for index in own]
    specs += [InputSpec(InputKind.USER_INPUT, signature_argument(placeholders[index]), None) for index in taken]
    body = next(node for node in module.graph.nodes if node.op != "placeholder")
    for index in (*own, *taken):  # weights come first in a program
        body.prepend(placeholders[index])
    for placeholder in placeholders:
        if not placeholder.users:
            module.graph.erase_node(placeholder)
    result = module.graph.output_node()
    results = pytree.tree_leaves(result.args)
    result.args = (tuple(results),)
    module.recompile()
    outs = [OutputSpec(OutputKind.USER_OUTPUT, signature_argument(each), None) for each in results]
    read = {spec.target for spec in specs if spec.target is not None}
    tree = pytree.tree_structure(((0,) * len(taken), {}))
    call = ModuleCallSignature([], [], tree, pytree.tree_structure((0,) * len(results)))
    exported = ExportedProgram(
        module,
        module.graph,
        ExportGraphSignature(specs, outs),
        {target: value for target, value in program.state_dict.items() if target in read},
        program.range_constraints,
        [ModuleCallEntry("", call)],
        constants={target: value for target, value in program.constants.items() if target in read},
        verifiers=program.verifiers,
    )
    return ModelPart(
        name, tuple(nodes), exported, tuple(sources[index] for index in taken), tuple(outputs), tuple(taken)
    )


def with_nested_graphs(nodes: Sequence[Node]) -> list[Node]:
    """Nodes with the attributes that hold the graphs of their control flow."""
    held = (source for node in nodes for source in node.all_input_nodes if nested_graph(source) is not None)
    return [*dict.fromkeys(held), *nodes]


def signature_argument(node: Any) -> Any:
    """An input or result of a graph, as the signature of a program names it; a result may be a Python value."""
    if not isinstance(node, Node):
        return ConstantArgument("", node)
    value = node.meta["val"]
    kinds = {torch.SymInt: SymIntArgument, torch.SymFloat: SymFloatArgument, torch.SymBool: SymBoolArgument}
    if isinstance(value, torch.Tensor):
        return TensorArgument(node.name)
    return kinds[type(value)](node.name) if type(value) in kinds else ConstantArgument(node.name, value)


def _measure_sizes(placeholders: Sequence[Node], sources: Sequence[Node]) -> None:
    """Compute the numbers that cross into a part from the sizes of its tensors, where these determine them."""
    measured: dict[Any, tuple[Node, int]] = {}
    for placeholder in placeholders:
        if isinstance(value := placeholder.meta.get("val"), torch.Tensor):
            for axis, size in enumerate(map(known, value.shape)):
                if isinstance(size, torch.SymInt):
                    measured.setdefault(size.node.expr, (placeholder, axis))
    for placeholder, source in zip(placeholders, sources, strict=True):
        if is_size(source) and (recipe := _recipe(source, set(measured))) is not None:
            graph, made = placeholder.graph, dict[Node, Node]()
            with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
                for node in recipe:
                    place = measured.get(node.meta["val"].node.expr)
                    size = torch.ops.aten.sym_size.int
                    made[node] = graph.node_copy(node, made.get) if place is None else graph.call_function(size, place)
                    made[node].meta = dict(node.meta)
            placeholder.replace_all_uses_with(made[source])


def _recipe(number: Node, measured: set[Any]) -> list[Node] | None:
    """The nodes that compute a number from sizes that can be measured, in order; None if there are no such ones."""
    if number.meta["val"].node.expr in measured:
        return [number]
    if isinstance(number.target, OpOverload) or not number.all_input_nodes:
        return None  # it reads a tensor, or is an input
    found = [_recipe(source, measured) if is_size(source) else None for source in number.all_input_nodes]
    if any(each is None for each in found):
        return None
    return [*dict.fromkeys(node for each in found for node in each or ()), number]
