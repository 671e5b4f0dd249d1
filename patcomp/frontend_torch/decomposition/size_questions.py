"""Questions about dynamic sizes that PyTorch asks while it decomposes an op, and their answers.

A decomposition may branch on a size: is it 1, is it at least 16? Most of these questions concern the layout of a tensor
in memory, which the IR does not have, and the graph is right whatever the answer. So each answer is that for the
example's sizes, and the graph is tried at sizes for which this answer is wrong. If the graph computes something else
there, it is right under a condition only, which becomes a guard of the program.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from patcomp.frontend_torch.fx.closeness import is_close
from patcomp.frontend_torch.fx.sizes import SYMBOLIC, known, number_at, symbols_in
from patcomp.frontend_torch.interface.guards import conditions_of
from patcomp.frontend_torch.sizes.slices import Case
from patcomp.patterns import Rejected
from patcomp.pytorch import Mod, OpOverload, PythonMod, free_unbacked_symbols, int_oo, pytree

_NEAR, _FAR = 4, (7, 15, 16, 17, 33)
"""Sizes to try: the first ones of a range, and numbers at which PyTorch's shape functions change their minds."""
_POWERS = frozenset(2**power for power in range(31))
_CASES, _TRIALS = 4096, 3
"""How many combinations of sizes are looked at, and how many are tried for each question."""
_LARGE = 1 << 26
"""How many elements the inputs of a trial may have."""
_INTEGERS = 5, 1
"""How many different integers to try; they may be indices, and 0 is one wherever there is any."""


class SizeQuestions:
    """The answers of one program.

    Args:
        program: the program whose ops are decomposed.
    """

    def __init__(self, program: ExportedProgram):
        self._program = program
        self._cases: dict[Any, list[Case]] = {}
        self.conditions: dict[Any, None] = {}
        """The conditions under which the graphs are right, as SymPy expressions."""

    def settle(self, node: Node, graph: GraphModule, asked: Sequence[Any]) -> None:
        """Keep the conditions on which the correctness of a node's decomposition depends.

        Args:
            node: the node.
            graph: the decomposed graph, with a placeholder for each of `node.all_input_nodes`.
            asked: the conditions.

        Raises:
            Rejected: the graph is right for the sizes of the example only, or for sizes that nobody can check.
        """
        for condition in asked:
            if condition in self.conditions:
                continue
            if condition not in self._cases:
                self._cases[condition] = list(self._without(condition))
            if all(self._is_right(node, graph, case) for case in self._cases[condition]):
                continue
            if free_unbacked_symbols(condition):
                raise Rejected(
                    "PyTorch decomposes the op for some sizes only, which depend on values; register a lowering"
                )
            is_of_one_size = isinstance(condition, sympy.Eq) and (condition.lhs.is_number or condition.rhs.is_number)
            if is_of_one_size and not condition.has(Mod, PythonMod):
                raise Rejected(
                    "PyTorch decomposes the op for one size of a dynamic dimension only; export with that dimension "
                    "fixed, or register a lowering"
                )
            self.conditions[condition] = None

    @cached_property
    def _known(self) -> list[Any]:
        """The conditions under which the program was exported."""
        return [known for known in conditions_of(self._program) if not isinstance(known, str)]

    def _without(self, condition: Any) -> Iterator[Case]:
        """A few sizes that violate a condition and are valid for the program otherwise, the smallest ones first.

        Besides the usual sizes, the limits are tried that a condition such as `16*n <= 1024` names, and powers of two.
        """
        if condition in self._known:
            return
        related = [known for known in self._known if known.free_symbols & condition.free_symbols]
        symbols = sorted(set().union(*(each.free_symbols for each in (condition, *related))), key=str)
        numbers = {abs(int(number)) for number in condition.atoms(sympy.Integer)}
        limits = {number // other for number in numbers for other in (1, *numbers) if other}
        if len(symbols) == 1:
            limits |= _POWERS
        limits = {limit + near for limit in limits for near in (-1, 0, 1)}
        ranges = (self._sizes(symbol, limits) for symbol in symbols)
        found = 0
        for sizes in sorted(itertools.islice(itertools.product(*ranges), _CASES), key=math.prod):
            case = dict(zip(symbols, sizes, strict=True))
            if not number_at(condition, case) and all(number_at(known, case) for known in related):
                yield case
                found += 1
            if found == _TRIALS:
                return

    def _sizes(self, symbol: sympy.Symbol, more: Iterable[int] = ()) -> list[int]:
        """Sizes to try for a symbol, within its range; `more` of them if they are."""
        limits = self._program.range_constraints.get(symbol)
        low = 1 if limits is None or not isinstance(limits.lower, sympy.Integer) else max(1, int(limits.lower))
        high = int_oo if limits is None else limits.upper
        sizes = dict.fromkeys((*range(low, low + _NEAR), *_FAR, *sorted(more)))
        return [size for size in sizes if low <= size and bool(size <= high)]

    def _is_right(self, node: Node, graph: GraphModule, case: Case) -> bool:
        """Whether a graph computes the same as its node at some sizes; False if they cannot both be run."""
        assert isinstance(node.target, OpOverload)
        sources = node.all_input_nodes
        for integers in _INTEGERS:
            try:
                values = [_at(source.meta.get("val"), self._whole(source, case), integers) for source in sources]
                given = dict(zip(sources, values, strict=True))
                args, kwargs = map_arg((node.args, node.kwargs), given.__getitem__)  # type: ignore[misc]
                with torch.no_grad():
                    expected, result = node.target(*args, **kwargs), graph(*values)
                break
            except Exception:  # PyTorch's ops raise errors of any class for numbers that they do not take
                continue
        else:
            return False
        pairs = zip(pytree.tree_leaves(expected), pytree.tree_leaves(result), strict=False)
        return all(_agrees(one, other) for one, other in pairs if other is not None)

    def _whole(self, source: Node, case: Case) -> dict[sympy.Symbol, int]:
        """A size for every symbol of a node: where a condition does not name it, the second one of its range."""
        free = symbols_in(source.meta.get("val"))
        return {symbol: case.get(symbol) or self._sizes(symbol)[:2][-1] for symbol in free}


def _at(recorded: Any, case: Case, integers: int) -> Any:
    """Tensors and numbers like the recorded ones, at some sizes; always the same numbers.

    Args:
        integers: how many different integers there are, from 0 on.

    Raises:
        ValueError: a size is unknown, or the tensors are too large.
    """

    def number(size: Any) -> Any:
        size = known(size)
        found = number_at(size.node.expr, case) if isinstance(size, SYMBOLIC) else size
        if found is None:
            raise ValueError("a size depends on values")
        return found

    def like(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return number(leaf) if isinstance(leaf, SYMBOLIC) else leaf
        shape = [number(size) for size in leaf.shape]
        if math.prod(shape) > _LARGE:
            raise ValueError("too large for a trial")
        numbers = torch.arange(math.prod(shape)).reshape(shape)
        is_real = leaf.dtype.is_floating_point or leaf.dtype.is_complex
        return ((numbers * 0.7).sin() if is_real else numbers % integers).to(leaf.dtype)

    return pytree.tree_map(like, recorded)


def _agrees(expected: Any, result: Any) -> bool:
    return is_close(expected, result) if isinstance(expected, torch.Tensor) else bool(expected == result)
