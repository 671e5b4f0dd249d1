"""Branches and loops: decided while the file is read where that is known, else PyTorch's operators for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from patcomp.onnx.importing.graphs import OnnxGraph
from patcomp.onnx.importing.rows import NodeCall, onnx_op
from patcomp.onnx.importing.values import KnownArray, OnnxValue, as_tensor, known_array

_MOST_NODES = 20_000
"""The nodes that the rounds of a loop may have together where it is unrolled."""


def _outer(graphs: Sequence[OnnxGraph], node: NodeCall) -> tuple[list[str], list[Tensor]]:
    """The tensors that graphs take from around them, by name; numbers that are known stay known."""
    names = {name for graph in graphs for name in graph.free}
    found = {name: value for name in sorted(names) if isinstance(value := node.outer[name], Tensor)}
    return [*found], [*found.values()]


def _tensors(values: Sequence[OnnxValue]) -> list[Tensor]:
    return [as_tensor(value).clone() for value in values]  # results of PyTorch's operators must not be their operands


@onnx_op("If")
def _if_(condition: Any, *, then_branch: OnnxGraph, else_branch: OnnxGraph, node: NodeCall) -> Any:
    if isinstance(condition, KnownArray):
        return tuple(node.run(then_branch if condition.number else else_branch, []))
    names, operands = _outer((then_branch, else_branch), node)

    def branch(graph: OnnxGraph) -> Any:
        return lambda *values: _tensors(node.run(graph, [], dict(zip(names, values, strict=True))))

    condition = condition.reshape([])
    return tuple(torch.ops.higher_order.cond(condition, branch(then_branch), branch(else_branch), tuple(operands)))


@onnx_op("Loop")
def loop(count: Any, condition: Any, *carried: Any, body: OnnxGraph, node: NodeCall) -> Any:
    """A loop of a known number of rounds is unrolled; others are PyTorch's `while_loop`, which stacks no results."""
    goes_on = condition is None or (isinstance(condition, KnownArray) and bool(condition.number))
    if isinstance(condition, KnownArray) and not goes_on:
        count = known_array(0)
    rounds = count.number if isinstance(count, KnownArray) and isinstance(count.number, int) else None
    if rounds is not None and goes_on and _keeps_its_condition(body):
        return _unrolled(rounds, list(carried), body, node)
    if rounds == 0:
        return _unrolled(0, list(carried), body, node)
    return _while(count, condition, carried, body, node)


def _keeps_its_condition(body: OnnxGraph) -> bool:
    """Whether the condition that a round gives is true for sure: a constant, or what the round was given."""
    result = body.outputs[0]
    made = {name: each for each in body.nodes for name in each.outputs}
    while result in made and made[result].op == "Identity":
        result = made[result].inputs[0]
    if result == body.inputs[1]:
        return True
    if result in made and made[result].op == "Constant":
        value = made[result].attributes.get("value")
        return isinstance(value, KnownArray) and bool(value.number)
    constant = body.constants.get(result)
    return isinstance(constant, KnownArray) and bool(constant.number)


def _unrolled(rounds: int, carried: list[Any], body: OnnxGraph, node: NodeCall) -> Any:
    if rounds * len(body.nodes) > _MOST_NODES:
        raise TypeError(f"{rounds} rounds of {len(body.nodes)} nodes are too many to be written out")
    stacked: list[list[Tensor]] = [[] for _ in range(len(body.outputs) - 1 - len(carried))]
    if rounds < 1 and stacked:
        raise TypeError("a loop without rounds that stacks results is not supported")
    for index in range(rounds):
        _, *values = node.run(body, [known_array(index), known_array(True, torch.bool), *carried])
        carried, results = values[: len(carried)], values[len(carried) :]
        for each, result in zip(stacked, results, strict=True):
            each.append(as_tensor(result))
    return (*carried, *(torch.stack(each) for each in stacked))


def _while(count: Any, condition: Any, carried: Sequence[Any], body: OnnxGraph, node: NodeCall) -> Any:
    if len(body.outputs) - 1 > len(carried):
        raise TypeError("the number of rounds depends on data, and the loop stacks results; this is not supported")
    limit = torch.tensor(2**31 - 1) if count is None else as_tensor(count).reshape([]).to(torch.int64)
    start = torch.tensor(True) if condition is None else as_tensor(condition).reshape([])
    names, values = _outer((body,), node)

    def goes_on(index: Tensor, going: Tensor, *rest: Tensor) -> Tensor:
        return going & (index < rest[len(carried)])

    def round_of(index: Tensor, going: Tensor, *rest: Tensor) -> Any:
        outer = dict(zip(names, rest[len(carried) + 1 :], strict=True))
        going, *results = _tensors(node.run(body, [index, going, *rest[: len(carried)]], outer))
        return (index + 1, going.reshape([]), *results)

    first = (torch.tensor(0), start.clone(), *_tensors(carried))
    _, _, *results = torch.ops.higher_order.while_loop(goes_on, round_of, first, (limit, *values))
    return tuple(results)


@onnx_op("Scan")
def _scan(
    *values: Any,
    body: OnnxGraph,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
    node: NodeCall,
) -> Any:
    """Over a fixed number of rows, written out."""
    states, rows = list(values[:-num_scan_inputs]), [as_tensor(each) for each in values[-num_scan_inputs:]]
    in_axes = scan_input_axes or [0] * len(rows)
    length = rows[0].shape[in_axes[0]]
    if not isinstance(length, int) or length * len(body.nodes) > _MOST_NODES:
        raise TypeError("the number of rows is open, or too large to be written out; give it by sizes=")
    backwards = scan_input_directions or [0] * len(rows)
    results: list[list[Tensor]] = [[] for _ in range(len(body.outputs) - len(states))]
    for index in range(length):
        now = [
            row.select(axis, length - 1 - index if back else index)
            for row, axis, back in zip(rows, in_axes, backwards, strict=True)
        ]
        made = node.run(body, [*states, *now])
        states = list(made[: len(states)])
        for each, result in zip(results, made[len(states) :], strict=True):
            each.append(as_tensor(result))
    out_axes = scan_output_axes or [0] * len(results)
    turned = scan_output_directions or [0] * len(results)
    stacked = (
        torch.stack(each[::-1] if back else each, axis)
        for each, axis, back in zip(results, out_axes, turned, strict=True)
    )
    return (*states, *stacked)
