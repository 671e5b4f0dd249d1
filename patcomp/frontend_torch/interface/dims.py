"""The dynamic dimensions of an exported program, with the names that its `torch.export.Dim`s have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from patcomp.errors import Problem
from patcomp.frontend_torch.fx.nodes import operator_name
from patcomp.frontend_torch.fx.provenance import Origins
from patcomp.frontend_torch.fx.sizes import known
from patcomp.frontend_torch.interface.guards import guards_of
from patcomp.frontend_torch.interface.names import Names
from patcomp.frontend_torch.interface.signature import Signature
from patcomp.frontend_torch.sizes.small_sizes import WrongShape, with_small_sizes
from patcomp.interface.dims import Dims, Extent, Place, Range
from patcomp.interface.guards import Guard


def dims_of(
    program: ExportedProgram,
    signature: Signature,
    names: Names,
    converts: Callable[[ExportedProgram], bool],
    original: ExportedProgram,
    asked: Iterable[Any] = (),
) -> tuple[ExportedProgram, Dims, list[Problem]]:
    """The dynamic dimensions of an exported program's inputs and states, by the names that these have at run time.

    A dimension that has no name, because it was exported with `Dim.AUTO` or `Dim.DYNAMIC`, is named `s0`, `s1` and so
    on in order of appearance.

    Args:
        converts: whether a copy of the program can be converted.
        original: the program before decomposition, which may lose guards.
        asked: further conditions, under which the program's ops were decomposed.

    Returns:
        The program, or a copy of it that is right at more sizes; the dimensions; and warnings, because an asset cannot
        check the guards.
    """
    own = names.of_arguments(signature)
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    sizes = [(place, size) for name in signature.arguments for place, size in _sizes(own[name], values[name])]
    called: dict[sympy.Symbol, str] = _given_names(sizes[0][1].node.shape_env) if sizes else {}
    extents: dict[Place, Extent] = {}
    for place, size in sizes:
        symbols = sorted(size.node.expr.free_symbols, key=str)
        if not size.node.expr.is_polynomial(*symbols):
            continue  # an `Extent` is a polynomial
        for symbol in symbols:
            if symbol not in called:
                called[symbol] = next(name for i in range(10**6) if (name := f"s{i}") not in called.values())
        symbols.sort(key=list(called).index)
        polynomial = sympy.Poly(size.node.expr, *symbols)
        extents[place] = Extent(
            tuple(
                (int(factor), tuple(called[s] for s, power in zip(symbols, powers, strict=True) for _ in range(power)))
                for powers, factor in polynomial.terms()
            )
        )
    used = {name for extent in extents.values() for name in extent.names}
    expressions = {size.node.expr for _, size in sizes}
    called = {symbol: name for symbol, name in called.items() if name in used}
    ranges = {symbol: _range(program, symbol, expressions) for symbol in called}
    guards, unreadable = guards_of(dict.fromkeys((original, program)), called, ranges, asked)
    program, more, problems = _small_sizes(program, called, ranges, guards, converts)
    limits = {called[symbol]: limits for symbol, limits in ranges.items()}
    return program, Dims(limits, extents, (*guards, *more)), [*_problems(guards, unreadable), *problems]


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


def _range(program: ExportedProgram, symbol: sympy.Symbol, expressions: set[sympy.Expr]) -> Range:
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


def _small_sizes(
    program: ExportedProgram,
    called: Mapping[sympy.Symbol, str],
    ranges: Mapping[sympy.Symbol, Range],
    guards: Sequence[Guard],
    converts: Callable[[ExportedProgram], bool],
) -> tuple[ExportedProgram, list[Guard], list[Problem]]:
    """Find the sizes 0 and 1 at which the recorded shapes are wrong.

    Returns:
        The program, or a copy that computes these shapes; guards that exclude the sizes that remain wrong; warnings.
    """

    def holds(case: Mapping[sympy.Symbol, int]) -> bool:
        sizes = {called[symbol]: size for symbol, size in case.items()}
        return all(guard.value(sizes) for guard in guards)

    def problem(failure: WrongShape, consequence: str, advice: str) -> Problem:
        where = " and ".join(f"{called[symbol]} is {size}" for symbol, size in failure.sizes)
        return origins[failure.node].problem(
            operator_name(failure.node),
            f"export recorded a shape that the model does not have where {where}; {consequence}",
            f"begin the range of the dimension at 2, Dim('name', min=2), or {advice}",
        )

    changed, wrong, computed = with_small_sizes(program, ranges, holds, converts)
    origins = Origins(program.graph)
    differences = [[Guard("!=", (called[symbol], size)) for symbol, size in failure.sizes] for failure in wrong]
    problems = [
        problem(
            failure,
            "the program computes this shape, but numbers that the model's Python code takes from it are as recorded",
            "check that the model uses no such number",
        )
        for failure in computed
    ]
    problems += [
        problem(
            failure,
            "program.run refuses this size, but an asset cannot, and may be wrong",
            "export once more with this size fixed",
        )
        for failure in wrong if not failure.is_expected
    ]  # fmt: skip
    return changed, [reduce(lambda left, right: Guard("or", (left, right)), each) for each in differences], problems
