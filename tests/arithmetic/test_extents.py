"""The sizes of results (`ir/extents.py`) on every axis, order and rank, against PyTorch's shapes at two sets of sizes.

An extent that is known must be right; how many are not known is written down.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from patcomp.ir.aten_facts import facts_of, ops_where
from patcomp.ir.extents import SOURCES, Extent, substituted, unknown
from tests.helpers.sized_ops import SIZES, S, evaluated, extents_of_results, real_shapes, x

SHAPES: list[tuple[int | str, ...]] = [("a",), ("a", "b"), (3, "b"), ("a", "b", 4), (1, "a", "b"), ("a", 1, "a")]
Call = tuple[str, list[Any]]


def axes(shape: tuple[Any, ...], more: int = 0) -> range:
    """Every axis, counted from both ends."""
    rank = len(shape) + more
    return range(-rank, rank)


def moves() -> Iterator[Call]:
    for shape in SHAPES:
        for order in itertools.permutations(range(len(shape))):
            yield "permute", [x(*shape), list(order)]
            yield "permute", [x(*shape), [axis - len(shape) for axis in order]]
        for one, other in itertools.product(axes(shape), repeat=2):
            yield "transpose.int", [x(*shape), one, other]
        for axis in axes(shape, 1):
            yield "unsqueeze", [x(*shape), axis]
        if len(shape) < 3:
            yield "t", [x(*shape)]


def parts() -> Iterator[Call]:
    for shape in SHAPES:
        for axis in axes(shape):
            size = shape[axis]
            yield "squeeze.dim", [x(*shape), axis]
            yield "select.int", [x(*shape), axis, 0]
            for start, end, step in itertools.product((None, 0, 1, -1), (None, 2, -1, 2**31 - 1, 2**63 - 1), (1, 2)):
                yield "slice.Tensor", [x(*shape), axis, start, end, step]
            yield "slice.Tensor", [x(*shape), axis, 0, S("a"), 1]
            for length in (1, 2, 100) if isinstance(size, int) else (100,):
                yield "split.Tensor", [x(*shape), length, axis]
            if isinstance(size, int):
                yield "unbind.int", [x(*shape), axis]
                yield "split_with_sizes", [x(*shape), [1, size - 1], axis]


def repeats() -> Iterator[Call]:
    for shape in SHAPES:
        for axis in axes(shape):
            yield "repeat_interleave.self_int", [x(*shape), 3, axis]
            yield "repeat_interleave.self_int", [x(*shape), S("c"), axis]
        for more in (0, 1):
            times = [2, S("c"), 3, S("a")][: len(shape) + more]
            yield "repeat", [x(*shape), times]
            yield "expand", [x(*shape), [*[S("b"), 5][:more], *[S("c") if size == 1 else -1 for size in shape]]]


def joins() -> Iterator[Call]:
    for shape in SHAPES:
        for axis in axes(shape):
            other = list(shape)
            other[axis] = "c"
            yield "cat", [[x(*shape), x(*other), x(*shape)], axis]
            yield "cat", [[x(0), x(*other), x(*shape)], axis]


def reductions() -> Iterator[Call]:
    for shape in SHAPES:
        for count in range(1, len(shape) + 1):
            for chosen in itertools.combinations(range(len(shape)), count):
                for dims, keep in itertools.product((chosen, [axis - len(shape) for axis in chosen]), (True, False)):
                    for name in ("sum.dim_IntList", "mean.dim", "amax", "amin"):
                        yield name, [x(*shape), list(dims), keep]
                    yield "var.correction", [x(*shape), list(dims), None, keep]
        for axis, keep in itertools.product(axes(shape), (True, False)):
            yield "any.dim", [x(*shape, dtype="i1"), axis, keep]


def products() -> Iterator[Call]:
    lefts: list[tuple[Any, ...]] = [(4,), ("a", 4), ("b", "a", 4), (1, "a", 4), (2, "b", "a", 4)]
    rights: list[tuple[Any, ...]] = [(4,), (4, "c"), ("b", 4, "c"), (1, 4, "c"), ("b", 4, 3)]
    for left, right in itertools.product(lefts, rights):
        yield "matmul", [x(*left), x(*right)]
    for rows, columns in itertools.product(("a", 3), ("b", 2, "a")):
        yield "mm", [x(rows, 4), x(4, columns)]
        yield "addmm", [x(columns), x(rows, 4), x(4, columns)]
        yield "bmm", [x("c", rows, 4), x("c", 4, columns)]
        yield "baddbmm", [x("c", rows, columns), x("c", rows, 4), x("c", 4, columns)]
        for front in ((), ("c",), ("c", 2)):
            yield "linear", [x(*front, rows, 4), x(columns, 4)]
    for shape in SHAPES:
        yield "embedding", [x(10, "c"), x(*shape, dtype="si64")]
        yield "embedding", [x("c", 6), x(*shape, dtype="si64")]


GROUPS = {
    "moves": (moves, 0), "parts": (parts, 460), "repeats": (repeats, 0), "joins": (joins, 0),
    "reductions": (reductions, 240), "products": (products, 17),
}  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
def test_known_sizes_are_right(group: str) -> None:
    calls, unknown = GROUPS[group]
    assert sum(check(name, arguments) for name, arguments in calls()) == unknown


def check(name: str, arguments: list[Any]) -> int:
    """Check the extents of all results of a call; return how many are not known."""
    count = 0
    found = extents_of_results(name, arguments)
    for sizes in SIZES:
        for result, shape in zip(found, real_shapes(name, arguments, sizes), strict=False):
            for extent, real in zip(result, shape, strict=True):
                number = evaluated(extent, sizes)
                assert number in (None, real), (name, arguments, sizes)
                count += number is None
    return count // len(SIZES)


def test_every_op_is_checked() -> None:
    checked = {f"aten.{name}" for calls, _ in GROUPS.values() for name, _ in calls()}
    sized_by_arguments = {"view", "reshape", "_unsafe_view", "full", "new_zeros", "arange.start_step", "convolution"}
    assert {facts_of(name).sizes for name in ops_where("sizes")} == set(SOURCES)
    assert ops_where("sizes") == checked | {f"aten.{name}" for name in sized_by_arguments}


# ---- the polynomials of sizes ----------------------------------------------------------------------

NAMES = ("a", "b")
POINTS = [dict(zip(NAMES, point, strict=True)) for point in itertools.product(range(4), repeat=2)]


def polynomials() -> list[Extent]:
    """Sums of a number, two sizes, their product and their squares."""
    a, b = map(unknown, NAMES)
    terms: list[Extent] = [1, a, b, a * b, a * a, b * b]
    return [sum((k * t for k, t in zip(ks, terms, strict=True)), 0) for ks in itertools.product((-1, 0, 2), repeat=6)]


def test_polynomials_are_equal_where_their_values_are() -> None:
    """A polynomial of the second degree in two sizes is determined by its values at 16 points."""
    listed = polynomials()
    values = [tuple(evaluated(each, point) for point in POINTS) for each in listed]
    assert len(set(values)) == len(listed)
    assert len(set(listed)) == len(listed)


def test_sums_products_and_substitutions_of_polynomials() -> None:
    some = polynomials()[::23]
    for one, other in itertools.product(some, repeat=2):
        for result, what in ((one + other, "+"), (one * other, "*")):
            for point in POINTS:
                first, second = evaluated(one, point), evaluated(other, point)
                assert first is not None
                assert second is not None
                assert evaluated(result, point) == (first + second if what == "+" else first * second)
    a, b = map(unknown, NAMES)
    for one in some:
        put = substituted(one, {"a": b + 2, "b": a * b})
        for point in POINTS:
            inner = {"a": point["b"] + 2, "b": point["a"] * point["b"]}
            assert evaluated(put, point) == evaluated(one, inner)
