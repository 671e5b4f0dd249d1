"""Run the program of an asset on the reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from patcomp.errors import UnknownNameError, near_names
from patcomp.evaluate.given import array_in_type, check_input_names
from patcomp.interface.graphs import argument_types
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.types import HandleType
from patcomp.ir.xdsl import TensorType

if TYPE_CHECKING:
    from patcomp.evaluate.machine import Machine


def evaluated_outputs(
    module: IRModule,
    inputs: Mapping[str, Any],
    start: Mapping[str, Any],
    state: dict[str, Any] | None,
    entrypoint: str,
    machine: Machine | None = None,
) -> dict[str, np.ndarray]:
    """The outputs of an entry point by name.

    Args:
        module: the program.
        inputs: arrays or tensors by name; 64-bit values are narrowed when they fit.
        start: the contents of states before the call, by name.
        state: gets their contents after the call; None if nobody wants them.
        entrypoint: the name of the graph.
        machine: what the evaluator runs on.

    Raises:
        EvaluationError: an input or state is missing, unknown, or of another type or shape.
        UnknownNameError: there is no such entry point; it is a `KeyError`.
    """
    from patcomp.evaluate.element_types import array_of
    from patcomp.evaluate.machine import evaluate

    given, contents = inputs_in_types(module, inputs, start, entrypoint)
    outputs = evaluate(module, given, entry=entrypoint, state=contents, machine=machine)
    if state is not None:
        state.update({name: array_of(value) for name, value in contents.items()})
    return {name: array_of(value) for name, value in outputs.items()}


def inputs_in_types(
    module: IRModule, inputs: Mapping[str, Any], states: Mapping[str, Any], entrypoint: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs and copies of the states of an entry point as tensors of the types that it takes.

    Args, raises:
        As `evaluated_outputs`.
    """
    from patcomp.evaluate.element_types import to_tensor

    given, contents = arrays_in_types(module, inputs, states, entrypoint)
    tensors = {name: to_tensor(value) for name, value in given.items()}
    return tensors, {name: to_tensor(value).clone() for name, value in contents.items()}


def arrays_in_types(
    module: IRModule, inputs: Mapping[str, Any], states: Mapping[str, Any], entrypoint: str
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The inputs and states of an entry point as arrays of the types that it takes; states may be missing.

    Args, raises:
        As `evaluated_outputs`.
    """
    graphs = {graph_name(graph): graph for graph in module.entry_graphs}
    if entrypoint not in graphs:
        raise UnknownNameError(f"there is no entry point {entrypoint!r}; there are {near_names(entrypoint, graphs)}")
    types = argument_types(graphs[entrypoint])
    tensors = {name: type_ for name, type_ in types.items() if isinstance(type_, TensorType)}
    contents = {name: type_.tensor_type for name, type_ in types.items() if isinstance(type_, HandleType)}
    check_input_names(entrypoint, "input", inputs, tensors)
    check_input_names(entrypoint, "state", states, contents, partial=True)
    return (
        {name: array_in_type(value, tensors[name], name) for name, value in inputs.items()},
        {name: array_in_type(value, contents[name], name, "state") for name, value in states.items()},  # type: ignore[arg-type]
    )
