"""The call of a model and the contents of its buffers, kept with the converted program."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.export import ExportedProgram

from patcomp.errors import EvaluationError, Problem, UnsupportedError
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.evaluate.inputs import prepare_input
from patcomp.frontend_torch.fx.dtypes import type_of
from patcomp.frontend_torch.interface.names import Names
from patcomp.frontend_torch.interface.signature import Signature
from patcomp.interface.graphs import entry_signature
from patcomp.interface.signature import Fixed, ModelCall
from patcomp.ir.types import TensorType
from patcomp.ir.xdsl import Operation
from patcomp.narrowing.widths import Widths


def model_call(program: ExportedProgram, signature: Signature, names: Names) -> ModelCall:
    """The call of an exported model, in terms of the names that its program has at run time."""
    tree, own = program.call_spec, names.of_arguments(signature)
    outputs = iter(names.outputs)
    results = tuple(
        Fixed(signature.fixed_outputs[index]) if leaf is None else next(outputs)
        for index, leaf in enumerate(signature.user_results)
    )
    return ModelCall(
        arguments=tuple(own.get(leaf) or Fixed(signature.fixed_inputs[leaf]) for leaf in signature.user_inputs),
        results=results,
        argument_tree=tree.in_spec,
        result_tree=tree.out_spec,
        numbers=frozenset(leaf for index in signature.numbers if isinstance(leaf := results[index], str)),
        buffers={n: state.target for state, n in zip(signature.states, names.states, strict=True) if state.is_buffer},
    )


def initial_state(signature: Signature, names: Names, widths: Widths) -> dict[str, torch.Tensor]:
    """Copies of the current contents of the buffers, by the names of their states, in the program's types.

    Raises:
        UnsupportedError: a 64-bit value does not fit 32 bits, or a buffer does not fit into memory; all such buffers
            are listed.
    """
    contents: dict[str, torch.Tensor] = {}
    problems: list[Problem] = []
    for state, name in zip(signature.states, names.states, strict=True):
        if state.initial is None:
            continue
        try:
            held = state.initial.detach().cpu().clone(memory_format=torch.contiguous_format)
        except RuntimeError:  # of PyTorch's allocator
            sizes = " x ".join(map(str, state.initial.shape))
            problems.append(
                Problem(
                    f"the buffer {state.target!r} of {sizes} elements does not fit into memory",
                    node=state.placeholder,
                    advice="an expanded buffer is written as a whole; register it in its own size",
                )
            )
            continue
        type_ = widths.of(type_of(held))
        assert isinstance(type_, TensorType)
        try:
            contents[name] = prepare_input(held, type_, state.target, "buffer")
        except EvaluationError as error:
            choice = "float64" if held.is_floating_point() else "int64"
            problems.append(Problem(str(error), node=state.placeholder, advice=f"convert with {choice}='keep'"))
    if problems:
        raise UnsupportedError("the buffers that the model writes to cannot be converted:", problems)
    return contents


def in_types_of(graph: Operation, contents: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The contents of buffers in the types of the states of a converted graph, which a target may have changed."""
    types = {state.name: state.element_type for state in entry_signature(graph).states}
    return {name: held.to(TORCH_DTYPES[types[name]]) for name, held in contents.items()}
