"""Conditions on sizes, one step at a time: reading their text, writing them as guards, and proving them."""

from __future__ import annotations

import ast
import itertools
import math
from typing import Any

import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._sympy.functions import Max, Min, ModularIndexing, OpaqueUnaryFn_sqrt, ToFloat

from patcomp.frontend_torch.interface.guards import (
    _FEW,
    _always,
    _Guards,
    _holds_everywhere,
    _read,
    _UnreadableError,
    _whole_quotients,
    guards_of,
)
from patcomp.frontend_torch.sizes.slices import Length, with_lengths
from patcomp.frontend_torch.sizes.small_sizes import _cases
from patcomp.interface.guards import Guard
from patcomp.pytorch import FloorDiv, Mod, sympy_interp
from tests.frontend_torch.models import Function
from tests.helpers.thorough import drawn

n, m = sympy.symbols("n m", integer=True)
RANGES = {n: (2, 7), m: (0, 3)}


def cases(ranges: dict[Any, Any] = RANGES) -> list[dict[Any, int]]:
    """All sizes in some ranges."""
    spans = [range(low, high + 1) for low, high in ranges.values()]
    return [dict(zip(ranges, sizes, strict=True)) for sizes in itertools.product(*spans)]


def holds(condition: Any, case: dict[Any, int]) -> bool:
    return bool(condition.subs(case))


# ---- proofs --------------------------------------------------------------------------------------

HALF = FloorDiv(n, 2)
PROVED = [
    sympy.Ge(n, 2), sympy.Gt(n, 1), sympy.Le(n, 7), sympy.Lt(n, 8), sympy.Ne(n, 1), sympy.Ne(n, 8), sympy.Ge(n * m, 0),
    sympy.Lt(m, n + 2), sympy.Ge(n - m, -1), sympy.Eq(2 * n, n + n, evaluate=False),
    sympy.Ge(3 * n - 2, 4), sympy.Le(-n, -2), sympy.Ge(n * n, 4), sympy.Ge(FloorDiv(n, 2), 1),
    sympy.Le(FloorDiv(n, 2), 3), sympy.Gt(n / sympy.Integer(1000), 0),
    sympy.Ge(Mod(n, 3), 0), sympy.Le(Mod(n, 3), 2), sympy.Lt(Mod(n, 3), 3), sympy.Ge(-Mod(n, 4), -3),
    sympy.Ge(FloorDiv(n + 1, 2) + m, 1), sympy.Le(-FloorDiv(n, 3), 0), sympy.Ne(n, FloorDiv(m, 2)),
    sympy.And(sympy.Ge(n, 2), sympy.Le(m, 3)), sympy.Or(sympy.Ge(n, 5), sympy.Le(m, 3)), sympy.true,
    sympy.Eq(Mod(4 + 4 * HALF, 1 + HALF), 0), sympy.Ne(Mod(sympy.Integer(1), 1 + HALF), 0),
    sympy.Ne(Mod(1 + 2 * HALF, 1 + HALF), 0), sympy.Eq(Mod((1 + HALF) * (2 + 2 * HALF), (1 + HALF) ** 2), 0),
    sympy.Ne(Mod(n + 1, n), 0),
]  # fmt: skip
"""Conditions that hold for all sizes, and that are proved."""
NOT_PROVED = [
    sympy.Ge(n, 3), sympy.Gt(n, 2), sympy.Le(n, 6), sympy.Lt(n, 7), sympy.Ne(n, 2), sympy.Ne(n, 7), sympy.Eq(n, 2),
    sympy.Eq(n, m), sympy.Ne(n, m), sympy.Lt(m, n), sympy.Ge(n * m, 1), sympy.Le(n * m, 20), sympy.Eq(Mod(n, 2), 0),
    sympy.Ge(n / sympy.Integer(4), 1),
    sympy.Ge(FloorDiv(n, 2), 2), sympy.Le(FloorDiv(n, 2), 2), sympy.Le(Mod(n, 3), 1), sympy.Ge(Mod(n, 3), 1),
    sympy.And(sympy.Ge(n, 2), sympy.Le(m, 2)), sympy.Or(sympy.Ge(n, 5), sympy.Le(m, 2)), sympy.false, n,
    sympy.Eq(Mod(1 + 2 * HALF, 1 + HALF), 0), sympy.Ne(Mod(4 + 4 * HALF, 1 + HALF), 0), sympy.Ne(Mod(n + 2, n), 0),
    sympy.Ne(Mod(2 + 2 * HALF, 2 * HALF), 0), sympy.Eq(Mod(3 + 3 * HALF, 2 + 2 * HALF), 0),
]  # fmt: skip


@pytest.mark.parametrize("condition", PROVED, ids=str)
def test_conditions_that_always_hold(condition: Any) -> None:
    assert all(holds(condition, case) for case in cases())
    assert _always(condition, RANGES)


@pytest.mark.parametrize("condition", NOT_PROVED, ids=str)
def test_conditions_that_do_not_always_hold(condition: Any) -> None:
    assert not _always(condition, RANGES)


def test_proofs_without_an_upper_end() -> None:
    ranges = {n: (3, None)}
    assert _always(sympy.Ge(n * n, 9), ranges)
    assert _always(sympy.Ge(FloorDiv(n, 2), 1), ranges)
    assert not _always(sympy.Le(n, 10**9), ranges)
    assert not _always(sympy.Ge(n, 1), {})
    assert _always(sympy.Ge(n, 0), {})
    assert not _always(sympy.Ge(1 / n, 0), ranges)
    assert not _always(sympy.Ge(FloorDiv(n, m), 0), ranges)
    assert not _always(sympy.Ge(FloorDiv(n, 2) * n, 3), ranges)


TERMS = st.sampled_from([n, m, n * m, FloorDiv(n, 2), Mod(n, 3), FloorDiv(n + m, 3), Mod(n * m, 4), sympy.Integer(1)])
RELATIONS = st.sampled_from([sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge])
FACTORS = st.integers(-3, 3)


@drawn(60)
@given(RELATIONS, st.lists(st.tuples(FACTORS, TERMS), min_size=1, max_size=3), st.integers(-12, 12))
def test_what_is_proved_holds(relation: Any, terms: list[tuple[int, Any]], bound: int) -> None:
    condition = relation(sum(factor * term for factor, term in terms), bound)
    if _always(condition, RANGES):
        assert all(holds(condition, case) for case in cases())


# ---- guards --------------------------------------------------------------------------------------


@drawn(60)
@given(RELATIONS, st.lists(st.tuples(FACTORS, TERMS), min_size=1, max_size=3), st.integers(-12, 12))
def test_a_guard_says_what_the_condition_says(relation: Any, terms: list[tuple[int, Any]], bound: int) -> None:
    condition = relation(sum(factor * term for factor, term in terms), bound)
    if condition in (sympy.true, sympy.false):
        return
    guard = sympy_interp(_Guards(), {n: "n", m: "m"}, condition)
    for case in cases():
        sizes = {"n": case[n], "m": case[m]}
        assert bool(guard.value(sizes)) == holds(condition, case)
        assert bool(eval(str(guard), {}, sizes)) == holds(condition, case)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (sympy.Le(Mod(n, 2), 0), "n % 2 == 0"),
        (sympy.Le(n, 0), "n <= 0"),
        (sympy.Le(Mod(n, 2), 1), "n % 2 <= 1"),
        (sympy.Lt(n, m), "n < m"),
        (sympy.Lt(Max(n, m), 5), "max(m, n) < 5"),
        (sympy.Gt(Min(n, m), 5), "min(m, n) > 5"),
        (sympy.Ge(sympy.Abs(m - n), 5), "abs(m - n) >= 5"),
        (sympy.Eq(OpaqueUnaryFn_sqrt(n), 2), "sqrt(n) == 2"),
        (sympy.Gt(ToFloat(n), 2.5), "float(n) > 2.5"),
        (sympy.Eq(m * n**2, 8), "m*n ** 2 == 8"),
        (sympy.Eq(ModularIndexing(n, 2, 3), 1), "(n // 2) % 3 == 1"),
        (sympy.Not(sympy.And(n > 2, m > 2), evaluate=False), "not(m > 2 and n > 2)"),
        (sympy.Gt(n, m), "n > m"),
        (sympy.Ge(n - m, 2), "n - m >= 2"),
        (sympy.Eq(2 * n - 3 * m, 1), "2*n - 3*m == 1"),
        (sympy.Ne(n - 3, m), "n - 3 != m"),
        (sympy.Lt(m + FloorDiv(-n, 2), 5), "m + (-1*n) // 2 < 5"),
        (sympy.And(sympy.Lt(n, 5), sympy.Gt(m, 1)), "m > 1 and n < 5"),
        (sympy.Or(sympy.Lt(n, 5), sympy.Gt(m, 1)), "m > 1 or n < 5"),
    ],
)
def test_the_text_of_guards(condition: Any, text: str) -> None:
    assert str(sympy_interp(_Guards(), {n: "n", m: "m"}, condition)) == text


def test_what_holds_for_all_sizes_of_a_range() -> None:
    guard = Guard("<", ("a", 5))
    assert _holds_everywhere(guard, {"a": (0, 4)})
    assert not _holds_everywhere(guard, {"a": (0, 5)})
    assert not _holds_everywhere(Guard(">", ("a", 0)), {"a": (0, 3)})
    assert not _holds_everywhere(Guard(">=", ("a", 0)), {"a": (0, None)}), "too many sizes to try"
    assert _holds_everywhere(Guard(">=", ("a", 0)), {"a": (0, _FEW - 1)})
    assert not _holds_everywhere(Guard(">=", ("a", 0)), {"a": (0, _FEW)})
    assert _holds_everywhere(Guard("<=", ("a", "b")), {"a": (0, 3), "b": (3, 4)})
    assert not _holds_everywhere(Guard("<=", ("a", "b")), {"a": (0, 3), "b": (2, 4)})


def test_quotients_without_a_remainder() -> None:
    conditions = [sympy.Eq(Mod(n, 2), 0), sympy.Le(Mod(m, 3), 0), sympy.Eq(Mod(n, 5), 1), sympy.Lt(Mod(n, 7), 0), n > 2]
    assert _whole_quotients(conditions) == {FloorDiv(n, 2): n / 2, FloorDiv(m, 3): m / 3}


# ---- the text of conditions ----------------------------------------------------------------------

X = torch.zeros(6, 35)
TEXTS = [
    "L['x'].size()[0] + 2", "L['x'].size()[1] - 2", "3*L['x'].size()[0]", "L['x'].size()[1] // 4", "7 / 2", "35 % 4",
    "2**3", "-L['x'].size()[0]", "5 == 5", "5 == 6", "5 != 5", "5 != 6", "5 < 5", "5 <= 5", "5 > 5", "5 >= 5", "4 < 5",
    "5 < 4", "True", "1.5", "min(3, 2)", "max(3, 2)", "abs(-3)", "math.floor(2.5)", "math.ceil(2.5)",
    "math.trunc(-2.5)", "(L['x'].size()[0] % 2) == 0", "not 3 == 3", "torch._sym_sqrt(4)", "torch.sym_float(4)",
]  # fmt: skip
BOTH = [f"{a} {op} {b}" for op in ("and", "or") for a in ("1 < 2", "2 < 1") for b in ("1 < 2", "2 < 1")] + [
    "1 < 2 and 2 < 3 and 4 < 3",
    "1 > 2 or 2 > 3 or 4 > 3",
]
UNREADABLE = [
    "L['y'].size()[0]", "L['x'].size()[2]", "M['x'].size()[0]", "L['x'].size(0)[0]", "open('x')",
    "min(3, 2, key=1)", "1 < 2 < 3", "[1]", "'text'", "L['x'].size()[L['x']]", "1 << 2", "~1", "x", "min(3, y)",
]  # fmt: skip


def read(text: str) -> Any:
    return _read(ast.parse(text, mode="eval").body, {"x": X})


@pytest.mark.parametrize("text", [*TEXTS, *BOTH])
def test_texts_of_conditions(text: str) -> None:
    expected = eval(text, {"L": {"x": X}, "math": math, "torch": torch})
    assert read(text) == expected
    assert type(read(text)) is type(expected)


@pytest.mark.parametrize("text", UNREADABLE)
def test_texts_that_are_not_read(text: str) -> None:
    with pytest.raises(_UnreadableError):
        read(text)


def test_paths_of_inputs() -> None:
    inputs = {"p_b_0": X, "q": X + 1}
    for text in ("L['p']['b'][0].size()[1]", "L['p'].b[0].size()[1]", "L['q'].size()[1]"):
        assert _read(ast.parse(text, mode="eval").body, inputs) == 35
    for text in ("L['b']['p'][0].size()[1]", "L['p']['b'].size()[1]", "L[p].size()[1]"):
        with pytest.raises(_UnreadableError):
            _read(ast.parse(text, mode="eval").body, inputs)


# ---- small sizes and slices ----------------------------------------------------------------------


@drawn(100)
@given(st.tuples(*[st.none() | st.integers(-9, 9)] * 2, st.integers(1, 3)), st.integers(0, 5), st.integers(0, 5))
def test_lengths_of_slices(bounds: tuple[Any, Any, int], first: int, second: int) -> None:
    length = Length(2 * n + m, bounds)
    assert length.at({n: first, m: second}) == len(range(2 * first + second)[bounds[0] : bounds[1] : bounds[2]])
    a, b = sympy.symbols("a b", integer=True)
    sizes = with_lengths({n: first, m: second}, {a: length, b: Length(a + 1, (1, None, 1))})
    assert sizes == {n: first, m: second, a: length.at({n: first, m: second}), b: sizes[a]}


def test_the_small_sizes_that_are_tried() -> None:
    k = sympy.Symbol("k")
    assert list(_cases({n: (2, None), m: (5, 9)})) == []
    assert list(_cases({n: (0, None), m: (5, 9)})) == [{n: 1, m: 5}, {n: 0, m: 5}]
    assert list(_cases({n: (1, 1), m: (0, 3), k: (2, 2)})) == [
        {n: 1, m: 2, k: 2},
        {n: 2, m: 1, k: 2},
        {n: 2, m: 0, k: 2},
        {n: 1, m: 1, k: 2},
        {n: 1, m: 0, k: 2},
    ]
    many = {sympy.Symbol(f"s{place}"): (0, 9) for place in range(18)}
    tried = list(_cases(many))
    assert len(tried) == 2 * 16 + 16 * 4 + 16 * 8 + 14 * 16 * 16 + 16
    assert all(set(case.values()) <= {0, 1, 2} for case in tried)


def test_a_static_program_has_no_conditions() -> None:
    program = torch.export.export(Function(lambda x: x + 1), (X,))
    assert guards_of([program], {}, {}) == ([], [])
