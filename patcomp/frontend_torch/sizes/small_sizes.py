"""Support the sizes 0 and 1 in dynamic dimensions; `torch.export` assumes at least 2.

PyTorch records shapes as if each dynamic dimension were at least 2, even if its range starts lower. For
`x.flatten()[:3]` of `2*n` values it records the length 3, which is wrong at `n = 1`, and adds no guard. This module
runs each node at the small sizes, on tensors without data. Slice lengths that are wrong there become dynamic
(`slices.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from patcomp.frontend_torch.fx.nodes import arguments_text, graphs_of, is_size
from patcomp.frontend_torch.fx.provenance import Origins
from patcomp.frontend_torch.fx.sizes import SYMBOLIC, known, number_at
from patcomp.frontend_torch.sizes.slices import Case, Lengths, with_dynamic_slices, with_lengths
from patcomp.interface.dims import SizeRange
from patcomp.ir.locations import Origin
from patcomp.pytorch import OpOverload, pytree


@dataclass(frozen=True)
class WrongShape:
    """Small sizes at which the result of a node has another shape than export recorded."""

    sizes: tuple[tuple[sympy.Symbol, int], ...]
    """The symbols that are smaller than export assumes."""
    node: Node
    origin: Origin
    """Where the node comes from."""
    error: str
    """PyTorch's error for these sizes; empty if it computes a result of another shape."""

    @property
    def is_expected(self) -> bool:
        """Whether PyTorch itself fails at these sizes, or a size is 0, because ranges begin at 0 by default."""
        return bool(self.error) or 0 in dict(self.sizes).values()


class SmallSizes(NamedTuple):
    """What is known of a program at small sizes."""

    program: ExportedProgram
    """The program, or a copy that computes the lengths of slices."""
    lengths: Lengths
    """These lengths."""
    wrong: tuple[WrongShape, ...]
    """The small sizes at which the program is wrong, each with the first node that is."""
    computed: tuple[WrongShape, ...]
    """The small sizes at which only the copy is right."""


def with_small_sizes(
    program: ExportedProgram, ranges: Mapping[sympy.Symbol, SizeRange], holds: Callable[[Case], bool]
) -> SmallSizes:
    """The program, or a copy that is right at more small sizes.

    A copy allows no further sizes of 0, because the runtime supports few ops on empty tensors.

    Args:
        ranges: the ranges of the symbols of inputs.
        holds: whether sizes satisfy the existing guards.
    """
    found = wrong_small_shapes(program, ranges, holds, {})
    expected = [failure for failure in found if failure.is_expected]
    if unexpected := [failure for failure in found if not failure.is_expected]:
        cases = [case for case in _cases(ranges) if all(case.values()) and holds(case)]
        if (changed := with_dynamic_slices(program, cases)) is not None:
            left = {failure.sizes for failure in wrong_small_shapes(changed[0], ranges, holds, changed[1])}
            if left <= {failure.sizes for failure in expected}:
                return SmallSizes(*changed, tuple(expected), tuple(unexpected))
    return SmallSizes(program, {}, tuple(found), ())


def wrong_small_shapes(
    program: ExportedProgram, ranges: Mapping[sympy.Symbol, SizeRange], holds: Callable[[Case], bool], lengths: Lengths
) -> list[WrongShape]:
    """The small sizes, within the ranges, at which a recorded shape is wrong, each with the first such node.

    Args:
        ranges, holds: as for `with_small_sizes`.
        lengths: the lengths of slices that the program computes.
    """
    found: list[WrongShape] = []
    cases = [case for case in _cases(ranges) if holds(case)]
    if not cases:
        return found
    small = {symbol for symbol, (low, _) in ranges.items() if low < _USUAL}
    kinds: dict[Any, Node] = {}
    for node in _nodes(program):
        if _depends_on(node, small.union(lengths)):
            kinds.setdefault(_kind(node), node)
    origins = Origins(program.graph)
    for case in cases:
        sizes = tuple((symbol, size) for symbol, size in case.items() if size < _USUAL)
        if any(set(failure.sizes) <= set(sizes) for failure in found):
            continue
        for node in kinds.values():
            try:
                wrong = _result_at(node, with_lengths(case, lengths))
            except Exception as error:  # PyTorch's error for these sizes
                wrong = str(error).partition("\n")[0] or type(error).__name__
            usual = {symbol: max(size, _USUAL) for symbol, size in case.items()}
            if wrong is not None and _works(node, with_lengths(usual, lengths)):
                found.append(WrongShape(sizes, node, origins[node], wrong))
                break
    return found


_USUAL = 2
"""The smallest size that export assumes for a dynamic dimension."""
_MANY = 16
"""The largest number of combinations to try for each number of small dimensions."""


def _cases(ranges: Mapping[sympy.Symbol, SizeRange]) -> Iterator[Case]:
    """Sizes to try: first one small dimension, then several; all others have the smallest size that export assumes."""
    usual = {symbol: max(low, _USUAL) for symbol, (low, _) in ranges.items()}
    small = {symbol: range(low, _USUAL) for symbol, (low, _) in ranges.items() if low < _USUAL}
    for count in range(1, len(small) + 1):
        combinations = itertools.combinations(small, count)
        for symbols in itertools.islice(combinations, _MANY):
            for sizes in itertools.islice(itertools.product(*(reversed(small[symbol]) for symbol in symbols)), _MANY):
                yield usual | dict(zip(symbols, sizes, strict=True))


def _nodes(program: ExportedProgram) -> Iterator[Node]:
    for node in (node for graph in graphs_of(program) for node in graph.nodes):
        if isinstance(node.target, OpOverload):
            yield node


def _shapes(node: Node) -> list[tuple[Any, ...]]:
    """The shape of each tensor that export recorded for a node."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return [tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _expressions(sizes: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([size.node.expr if isinstance(size, SYMBOLIC) else size for size in sizes])


def _kind(node: Node) -> Any:
    """What the shape of a node's result depends on. Equal layers have nodes of the same kinds."""
    leaves = pytree.tree_leaves([source.meta.get("val") for source in node.all_input_nodes])
    inputs = [
        (leaf.dtype, _expressions(leaf.shape), _expressions(leaf.stride()))
        if isinstance(leaf, torch.Tensor)
        else _expressions([leaf])
        for leaf in leaves
    ]
    return node.target, arguments_text(node), tuple(inputs), tuple(map(_expressions, _shapes(node)))


def _depends_on(node: Node, symbols: set[sympy.Symbol]) -> bool:
    """Whether the result of a node may depend on sizes in other ways than through the shapes of its inputs."""
    before = [shape for source in node.all_input_nodes for shape in _shapes(source)]
    sizes = [known(size) for shape in before for size in shape]
    sizes += [known(source.meta["val"]) for source in node.all_input_nodes if is_size(source)]
    if not any(isinstance(size, SYMBOLIC) and size.node.expr.free_symbols & symbols for size in sizes):
        return False
    pointwise = torch.Tag.pointwise in node.target.tags  # type: ignore[union-attr]
    return not (pointwise and len({_expressions(shape) for shape in (*before, *_shapes(node))}) == 1)


def _result_at(node: Node, case: Case) -> str | None:
    """None if a node has the recorded shapes at some sizes, else an empty text; PyTorch's errors propagate."""
    values: dict[Any, Any] = {}

    def number(size: Any) -> Any:
        size = known(size)
        if not isinstance(size, SYMBOLIC):
            return size
        value = number_at(size.node.expr, case)
        if value is None:
            raise _UnknownError
        return value

    def at(leaf: Any) -> Any:
        if isinstance(leaf, SYMBOLIC):
            return number(leaf)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return torch.empty_strided(
            [number(size) for size in leaf.shape], [number(step) for step in leaf.stride()],
            dtype=leaf.dtype, device="meta",
        )  # fmt: skip

    try:
        for source in node.all_input_nodes:
            values[source] = pytree.tree_map(at, source.meta.get("val"))
        expected = [[number(size) for size in shape] for shape in _shapes(node)]
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)  # type: ignore[misc]
        args, kwargs = pytree.tree_map(at, (args, kwargs))
    except _UnknownError:
        return None
    kwargs = {name: "meta" if name == "device" else value for name, value in kwargs.items()}
    result = node.target(*args, **kwargs)  # type: ignore[operator]
    shapes = [list(leaf.shape) for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    return None if shapes == expected else ""


class _UnknownError(Exception):
    """A size depends on values."""


def _works(node: Node, case: Case) -> bool:
    """Whether a node has the recorded shapes at sizes of 2 or more."""
    try:
        return _result_at(node, case) is None
    except Exception:  # the op needs data
        return False
