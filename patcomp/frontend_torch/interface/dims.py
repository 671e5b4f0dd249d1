"""The dynamic dimensions of an exported program, with the names that its `torch.export.Dim`s have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from patcomp.errors import Problem
from patcomp.frontend_torch.fx.nodes import operator_name
from patcomp.frontend_torch.fx.sizes import known
from patcomp.frontend_torch.interface.guards import guards_of
from patcomp.frontend_torch.interface.signature import Signature
from patcomp.frontend_torch.sizes.slices import Case, Lengths
from patcomp.frontend_torch.sizes.small_sizes import WrongShape, with_small_sizes, wrong_small_shapes
from patcomp.interface.dims import Dims, Place, SizePolynomial, SizeRange
from patcomp.interface.guards import Guard


@dataclass(frozen=True)
class InputSizes:
    """The dynamic sizes of a program's inputs, before its inputs have their names at run time."""

    names: Mapping[sympy.Symbol, str] = field(default_factory=dict)
    """The name of each symbol."""
    ranges: Mapping[sympy.Symbol, SizeRange] = field(default_factory=dict)
    extents: Mapping[Place, SizePolynomial] = field(default_factory=dict)
    """The dynamic dimensions, by the FX name of an input."""
    guards: tuple[Guard, ...] = ()
    """Export's conditions."""
    unreadable: tuple[str, ...] = ()
    """Export's conditions that cannot be expressed as a `Guard`."""
    lengths: Lengths = field(default_factory=dict)
    """The lengths of slices that became dynamic."""
    wrong: tuple[WrongShape, ...] = ()
    """The small sizes at which the program is wrong."""
    computed: tuple[WrongShape, ...] = ()
    """The small sizes at which it is right because lengths of slices became dynamic."""

    def hold(self, guards: Sequence[Guard]) -> Callable[[Case], bool]:
        """Whether guards hold for sizes by symbol."""

        def holds(case: Case) -> bool:
            sizes = {self.names[symbol]: size for symbol, size in case.items()}
            return all(guard.value(sizes) for guard in guards)

        return holds


def with_sizes(
    program: ExportedProgram, signature: Signature, original: ExportedProgram
) -> tuple[ExportedProgram, InputSizes]:
    """The program, or a copy of it that is right at more sizes, and the sizes of its inputs and states.

    A dimension that has no name, because it was exported with `Dim.AUTO` or `Dim.DYNAMIC`, is named `s0`, `s1` and so
    on in order of appearance.

    Args:
        original: the program before PyTorch decomposed it, which may lose guards.
    """
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    sizes = [(place, size) for name in signature.arguments for place, size in _sizes(name, values[name])]
    if not sizes:
        guards, unreadable = guards_of(dict.fromkeys((original, program)), {}, {})
        return program, InputSizes(guards=tuple(guards), unreadable=tuple(unreadable))
    called: dict[sympy.Symbol, str] = _given_names(sizes[0][1].node.shape_env)
    extents: dict[Place, SizePolynomial] = {}
    for place, size in sizes:
        symbols = sorted(size.node.expr.free_symbols, key=str)
        if not size.node.expr.is_polynomial(*symbols):
            continue  # an `Extent` is a polynomial
        for symbol in symbols:
            if symbol not in called:
                called[symbol] = next(name for i in range(10**6) if (name := f"s{i}") not in called.values())
        symbols.sort(key=list(called).index)
        polynomial = sympy.Poly(size.node.expr, *symbols)
        extents[place] = SizePolynomial(
            tuple(
                (int(factor), tuple(called[s] for s, power in zip(symbols, powers, strict=True) for _ in range(power)))
                for powers, factor in polynomial.terms()
            )
        )
    used = {name for extent in extents.values() for name in extent.names}
    expressions = {size.node.expr for _, size in sizes}
    called = {symbol: name for symbol, name in called.items() if name in used}
    ranges = {symbol: _range(program, symbol, expressions) for symbol in called}
    guards, unreadable = guards_of(dict.fromkeys((original, program)), called, ranges)
    found = InputSizes(called, ranges, extents, tuple(guards), tuple(unreadable))
    small = with_small_sizes(program, ranges, found.hold(guards))
    return small.program, replace(found, lengths=small.lengths, wrong=small.wrong, computed=small.computed)


def dims_of(
    program: ExportedProgram,
    original: ExportedProgram,
    sizes: InputSizes,
    own: Mapping[str, str],
    conditions: Sequence[Any],
) -> tuple[Dims, list[Problem]]:
    """The dynamic dimensions by the names of inputs and states at run time.

    Args:
        program: the program that `with_sizes` gave.
        original: as for `with_sizes`.
        sizes: what `with_sizes` found.
        own: the names at run time by FX name.
        conditions: further conditions, under which ops were decomposed.

    Returns:
        The dimensions; and warnings, because an asset cannot check the guards.
    """
    guards, unreadable, wrong = sizes.guards, sizes.unreadable, sizes.wrong
    if conditions:
        more, unread = guards_of(dict.fromkeys((original, program)), sizes.names, sizes.ranges, conditions)
        guards, unreadable = tuple(more), tuple(unread)
        wrong = tuple(wrong_small_shapes(program, sizes.ranges, sizes.hold(guards), sizes.lengths))
    problems = [*_problems(guards, unreadable), *_of_small_sizes(sizes, wrong)]
    differences = [[Guard("!=", (sizes.names[symbol], size)) for symbol, size in each.sizes] for each in wrong]
    excluded = (reduce(lambda left, right: Guard("or", (left, right)), each) for each in differences)
    limits = {sizes.names[symbol]: limits for symbol, limits in sizes.ranges.items()}
    extents = {(own[name], axis): extent for (name, axis), extent in sizes.extents.items()}
    return Dims(limits, extents, (*guards, *excluded)), problems


def _sizes(name: str, value: Any) -> Iterator[tuple[Place, Any]]:
    """The places of an input that have a dynamic size."""
    if isinstance(value, torch.Tensor):
        for axis, size in enumerate(value.shape):
            if isinstance(known(size), torch.SymInt):
                yield (name, axis), size
    elif isinstance(value, torch.SymInt) and isinstance(known(value), torch.SymInt):
        yield (name, None), value


def _given_names(environment: Any) -> dict[sympy.Symbol, str]:
    """The names of `torch.export.Dim`s by symbol. A derived dimension, `2*seq`, gives its root the name `seq`."""
    called: dict[sympy.Symbol, str] = {}
    for source, text in environment.source_name_to_debug_name.items():
        symbol = environment.source_to_var.get(source)
        symbols = () if symbol is None else environment.replace(symbol).free_symbols
        names = set(re.findall(r"[^\W\d]\w*", text))
        if len(symbols) == len(names) == 1:
            called.setdefault(*symbols, *names)
    return called


def _range(program: ExportedProgram, symbol: sympy.Symbol, expressions: set[sympy.Expr]) -> SizeRange:
    """The range of a symbol.

    In export's list, a symbol that is no dimension by itself has a lower limit of at least 2, whatever the user chose.
    The range of the dimension that derives from the symbol is used instead.
    """
    derived = [e for e in expressions if e.free_symbols == {symbol} and e in program.range_constraints]
    expression = symbol if symbol in expressions or not derived else min(derived, key=str)
    limits = program.range_constraints.get(expression)
    factor, rest = expression.coeff(symbol, 1), expression.coeff(symbol, 0)
    if limits is None or expression != factor * symbol + rest or not factor.is_positive:
        return 0, None
    low, high = ((limit - rest) / factor for limit in (limits.lower, limits.upper))
    return (
        max(0, math.ceil(low)) if isinstance(limits.lower, sympy.Integer) else 0,
        math.floor(high) if isinstance(limits.upper, sympy.Integer) else None,
    )


def _problems(guards: Sequence[Guard], unreadable: Sequence[str]) -> Iterator[Problem]:
    """Warnings about a program that is right only for some of the sizes in the ranges of its dimensions."""
    if guards:
        yield Problem(
            f"the model was exported for {_allowed(guards)}; program.run checks this, but an asset cannot, and may be "
            "wrong at other sizes",
            advice="check the sizes before calling the asset, or export with dimensions that imply it, such as "
            "2 * Dim('half') or Dim('n', min=4); see docs/dynamic-shapes.md",
        )
    if unreadable:
        yield Problem(
            f"the model was exported for sizes where {', and '.join(unreadable)}; patcomp cannot check this, and "
            "the program may be wrong at other sizes",
            advice="check the sizes before calling the program",
        )


_SAID = 120
"""The most characters of conditions in a warning; the signature lists all."""


def _allowed(guards: Sequence[Guard]) -> str:
    """The sizes for which guards hold, in words that can be read."""
    text = f"sizes where {', and '.join(map(str, guards))}"
    if len(text) <= _SAID:
        return text
    names = list(dict.fromkeys(name for guard in guards for name in guard.names))
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"some sizes of {listed} only ({len(guards)} conditions, which the program's signature lists)"


def _of_small_sizes(sizes: InputSizes, wrong: Sequence[WrongShape]) -> Iterator[Problem]:
    """Warnings about the sizes 0 and 1 at which export recorded wrong shapes."""

    def problem(failure: WrongShape, consequence: str, advice: str) -> Problem:
        where = " and ".join(f"{sizes.names[symbol]} is {size}" for symbol, size in failure.sizes)
        return failure.origin.problem(
            operator_name(failure.node),
            f"export recorded a shape that the model does not have where {where}; {consequence}",
            f"begin the range of the dimension at 2, Dim('name', min=2), or {advice}",
        )

    for failure in sizes.computed:
        yield problem(
            failure,
            "the program computes this shape, but numbers that the model's Python code takes from it are as recorded",
            "check that the model uses no such number",
        )
    for failure in wrong:
        if not failure.is_expected:
            yield problem(
                failure,
                "program.run refuses this size, but an asset cannot, and may be wrong",
                "export once more with this size fixed",
            )
