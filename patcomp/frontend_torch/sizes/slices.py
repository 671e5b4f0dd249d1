"""Slices that are shorter at small sizes than export recorded: their lengths become dynamic.

For `x.flatten()[:3]` of `2*n` values, export records the length 3, which is wrong at `n = 1`. This module replaces such
a length by a symbol, as export does for a selection by data. PyTorch's shape functions propagate the symbol to the ops
that use the slice.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node
from torch.fx.node import map_arg

from patcomp.frontend_torch.fx.nodes import given_arguments, graphs_of, is_assertion, operator_name
from patcomp.frontend_torch.fx.sizes import SYMBOLIC, known, symbols_in
from patcomp.ir.aten_facts import facts_of
from patcomp.pytorch import (
    LazyGraphModule,
    OpOverload,
    ValueRanges,
    enable_python_dispatcher,
    no_questions,
    pytree,
    replace_graph_module,
)

Case = Mapping[sympy.Symbol, int]
"""A size for each symbol."""


@dataclass(frozen=True)
class Length:
    """The length of a slice of a dynamic dimension."""

    size: sympy.Expr
    """The size of the dimension."""
    bounds: tuple[int | None, int | None, int]
    """Start, end and step."""

    def at(self, case: Case) -> int:
        """The length for certain sizes."""
        size = self.size.xreplace({symbol: sympy.Integer(number) for symbol, number in case.items()})
        return len(range(int(size))[slice(*self.bounds)])


Lengths = Mapping[sympy.Symbol, Length]
"""The lengths of slices by their symbols; a length comes after the lengths that it depends on."""


def with_lengths(case: Case, lengths: Lengths) -> Case:
    """The sizes of a case, and the lengths of the slices for these sizes."""
    sizes = dict(case)
    for symbol, length in lengths.items():
        sizes[symbol] = length.at(sizes)
    return sizes


def with_dynamic_slices(program: ExportedProgram, cases: Sequence[Case]) -> tuple[ExportedProgram, Lengths] | None:
    """A copy of a program in which the lengths of slices are dynamic where export's recorded length may be wrong.

    Args:
        cases: the sizes to try, none of them 0.

    Returns:
        The copy and its new symbols. None if the program needs a recorded length: an op is not in the list of ops that
        work for any length, an op has another shape, a state is written, or a number may be this length.
    """
    graph = copy.deepcopy(program.graph)
    lengths: dict[sympy.Symbol, Length] = {}
    recorded: dict[sympy.Symbol, int] = {}
    slices: set[Node] = set()
    dynamic: set[Node] = set()
    for node in graph.nodes:
        result: Any
        if (length := _wrong_length(node, cases, lengths)) is not None:
            same = (symbol for symbol, other in lengths.items() if other == length)
            symbol = next(same, sympy.Symbol(f"u_{node.name}", integer=True))
            axis = given_arguments(node).get("dim", 0)
            lengths[symbol], recorded[symbol] = length, node.meta["val"].shape[axis]
            found = [recorded[symbol], *(length.at(with_lengths(case, lengths)) for case in cases)]
            result = _of_length(node, axis, symbol, ValueRanges(min(found), max(found)))
            slices.add(node)
        elif dynamic.isdisjoint(node.all_input_nodes) or node.op == "output" or is_assertion(node):
            continue
        else:
            try:
                result = _result(node) if _is_followed(node) else None
            except Exception:  # PyTorch needs the length as a number
                return None
            if not _is_same(node.meta["val"], result, recorded):
                return None
        if not symbols_in(result).isdisjoint(lengths):
            node.meta = node.meta | {"val": result}
            dynamic.add(node)
    states = {spec.arg.name for spec in program.graph_signature.output_specs if spec.kind != OutputKind.USER_OUTPUT}
    others = [node for each in (graph, *graphs_of(program)[1:]) for node in each.nodes]
    others = [node for node in others if node not in slices and node.target is not operator.getitem]
    numbers = {number for node in others for number in _numbers(node)}
    if not lengths or any(node.name in states for node in dynamic) or not numbers.isdisjoint(recorded.values()):
        return None
    changed = copy.copy(program)
    replace_graph_module(changed, LazyGraphModule(program.graph_module, graph))
    return changed, lengths


def _numbers(node: Node) -> Iterator[Any]:
    """The numbers in the arguments of a node, without the axes, which are no sizes."""
    given = given_arguments(node) if isinstance(node.target, OpOverload) else {"": (node.args, node.kwargs)}
    for name, value in given.items():
        if not name.startswith("dim"):
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, int | float))


def _wrong_length(node: Node, cases: Sequence[Case], lengths: Lengths) -> Length | None:
    """The length of a slice for which export recorded a number that is wrong at some sizes."""
    if operator_name(node) != "aten.slice.Tensor":
        return None
    given = given_arguments(node)
    axis, bounds = given.get("dim", 0), (given.get("start"), given.get("end"), given.get("step", 1))
    size, result = (known(value.meta["val"].shape[axis]) for value in (given["self"], node))
    if not isinstance(size, torch.SymInt) or not isinstance(result, int):
        return None
    if any(isinstance(bound, Node) for bound in bounds) or not size.node.expr.free_symbols <= {*cases[0], *lengths}:
        return None
    length = Length(size.node.expr, bounds)
    return length if any(length.at(with_lengths(case, lengths)) != result for case in cases) else None


def _of_length(node: Node, axis: int, symbol: sympy.Symbol, limits: ValueRanges[Any]) -> torch.Tensor:
    """The result of a slice, with a symbol as its length."""
    value = node.meta["val"]
    environment = node.args[0].meta["val"].shape[axis].node.shape_env  # type: ignore[union-attr, index]
    environment.var_to_range[symbol] = limits
    shape = list(value.shape)
    shape[axis] = environment.create_symintnode(symbol, hint=None)
    with value.fake_mode:
        return torch.empty_strided(shape, value.stride(), dtype=value.dtype, device=value.device)


def _is_followed(node: Node) -> bool:
    """Whether a node's op works for any length of a dynamic dimension."""
    if not isinstance(node.target, OpOverload):
        return node.target is operator.getitem
    return torch.Tag.pointwise in node.target.tags or facts_of(operator_name(node)).any_length


def _result(node: Node) -> Any:
    """The result that PyTorch's shape functions compute for a node; fails if it holds only for some sizes."""
    given = map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
    value = next(leaf for leaf in pytree.tree_leaves(given) if symbols_in(leaf))
    mode = value.fake_mode
    environment = mode.shape_env
    with (
        mode, torch.no_grad(), no_questions(environment), environment.ignore_fresh_unbacked_symbols(),
        enable_python_dispatcher(),
    ):  # fmt: skip
        return node.target(*given[0], **given[1])  # type: ignore[operator, misc]


def _is_same(before: Any, after: Any, recorded: Mapping[sympy.Symbol, int]) -> bool:
    """Whether a result has the recorded shapes if the slices have the recorded lengths."""

    def size(value: Any) -> Any:
        value = known(value)
        return value.node.expr.subs(recorded) if isinstance(value, SYMBOLIC) else value

    def shape(leaf: Any) -> Any:
        return (leaf.dtype, *map(size, leaf.shape)) if isinstance(leaf, torch.Tensor) else size(leaf)

    leaves, others = pytree.tree_leaves(before), pytree.tree_leaves(after)
    return list(map(shape, leaves)) == list(map(shape, others))
