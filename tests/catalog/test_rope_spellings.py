"""Rotations straight from export, with open sizes, in half precision, and of neighbours that become halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from patcomp.emit.native import Native
from tests.catalog.recovering import convert
from tests.catalog.rotations import FORMS, angles, half_tables, inputs, ropes, rotate_neighbours, wide_tables

BATCH, LENGTH = torch.export.Dim("batch", min=2, max=8), torch.export.Dim("length", min=2, max=32)
SIZES = {
    "length": ({2: LENGTH}, {1: LENGTH}),
    "batch and length": ({0: BATCH, 2: LENGTH}, {0: BATCH, 1: LENGTH}),
}


def deepseek_v3(x: Tensor, positions: Tensor, width: int) -> Tensor:
    """Neighbours in, halves out."""
    cos, sin = wide_tables(x, positions, width)
    cos, sin = cos[..., : width // 2], sin[..., : width // 2]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat((even * cos - odd * sin, odd * cos + even * sin), dim=-1)


def deepseek_v3_the_other_way(x: Tensor, positions: Tensor, width: int) -> Tensor:
    cos, sin = half_tables(x, positions, width)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat((even * cos + odd * sin, odd * cos - even * sin), dim=-1)


def complex_numbers(x: Tensor, positions: Tensor, width: int) -> Tensor:
    """DeepSeek V2 and Llama 4."""
    turn = torch.polar(torch.ones(()), angles(positions, width)).unsqueeze(1)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(3).type_as(x)


ALL = {
    **{name: form for name, (form, _) in FORMS.items()},
    **{form.__name__: form for form in (deepseek_v3, deepseek_v3_the_other_way, complex_numbers)},
}


def of(form: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, positions: form(x, positions, 8)


@pytest.mark.parametrize("form", ["deepseek_v3", "deepseek_v3_the_other_way"])
def test_neighbours_become_halves(form: str, native: Native) -> None:
    program = convert(of(ALL[form]), *inputs(), native=native)
    assert ropes(program) == 1
    assert "interleaved = false" in program.text()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ALL)
def test_straight_from_export(form: str) -> None:
    assert ropes(convert(of(ALL[form]), *inputs(), as_exported=True)) == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("form", ALL)
def test_open_sizes(form: str, sizes: str) -> None:
    assert ropes(convert(of(ALL[form]), *inputs(), as_exported=True, sizes=SIZES[sizes])) == 1


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("form", ["cohere", "nanochat", "deepseek_v3", "complex_numbers"])
def test_open_sizes_on_the_runtime(form: str, sizes: str, native: Native) -> None:
    assert ropes(convert(of(ALL[form]), *inputs(), sizes=SIZES[sizes], native=native)) == 1


# ---- half precision ----------------------------------------------------------------------------------

each_half = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])


def ernie(x: Tensor, positions: Tensor) -> Tensor:
    """Tables in float32; x and the turned neighbours are cast, each on its own."""
    cos, sin = (table.repeat_interleave(2, dim=-1) for table in half_tables(x.float(), positions, 8))
    return (x.float() * cos + rotate_neighbours(x).float() * sin).to(x.dtype)


def cast_once(x: Tensor, positions: Tensor) -> Tensor:
    """Cohere 2"""
    wide = x.float()
    cos, sin = (table.repeat_interleave(2, dim=-1) for table in half_tables(x, positions, 8))
    return (wide * cos + rotate_neighbours(wide) * sin).to(x.dtype)


def cast_twice(x: Tensor, positions: Tensor) -> Tensor:
    """ModernBERT"""
    cos, sin = wide_tables(x, positions, 8)
    first, second = x.float().chunk(2, dim=-1)
    return (x.float() * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


@each_half
@pytest.mark.parametrize("form", [ernie, cast_once, cast_twice])
@pytest.mark.parametrize("as_exported", [False, True])
def test_casts_to_float32(form: Any, as_exported: bool, dtype: torch.dtype) -> None:
    assert ropes(convert(form, *inputs(dtype=dtype), as_exported=as_exported)) == 1


@pytest.mark.parametrize("form", [ernie, cast_twice])
def test_casts_to_float32_on_the_runtime(form: Any, native: Native) -> None:
    assert ropes(convert(form, *inputs(dtype=torch.float16), native=native)) == 1


def rounded_before_the_turn(x: Tensor, positions: Tensor) -> Tensor:
    cos, sin = (table.repeat_interleave(2, dim=-1) for table in half_tables(x, positions, 8))
    return x * cos + rotate_neighbours(x.half()).float() * sin


def rounded_after_the_turn(x: Tensor, positions: Tensor) -> Tensor:
    cos, sin = (table.repeat_interleave(2, dim=-1) for table in half_tables(x.half(), positions, 8))
    return x.half() * cos + rotate_neighbours(x).half() * sin


@pytest.mark.parametrize("form", [rounded_before_the_turn, rounded_after_the_turn])
def test_rounded_values_stay(form: Any) -> None:
    assert ropes(convert(form, *inputs())) == 0


# ---- near misses -------------------------------------------------------------------------------------


def of_tables(form: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda x, positions: form(x, *half_tables(x, positions, 8))


def _to_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat((even * cos - odd * sin, odd * cos + even * sin), dim=-1)


def _odd_ones_first(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat((odd * cos - even * sin, even * cos + odd * sin), dim=-1)


def _two_minus_signs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat((even * cos - odd * sin, odd * cos - even * sin), dim=-1)


def _two_sines(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat((even * cos - odd * sin, odd * cos + even * (2 * sin)), dim=-1)


def _without_the_last(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., 0:6:2], x[..., 1:6:2]
    cos, sin = cos[..., :3], sin[..., :3]
    return torch.cat((even * cos - odd * sin, odd * cos + even * sin), dim=-1)


def _wide(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + rotate_neighbours(x) * sin


NEAR_MISSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "one angle for all pairs": lambda x, cos, sin: _to_halves(x, cos[..., :1], sin[..., :1]),
    "odd ones first": _odd_ones_first,
    "two minus signs": _two_minus_signs,
    "two sines": _two_sines,
    "without the last pair": _without_the_last,
    "columns four times": lambda x, cos, sin: _wide(
        x, *(table[..., :2].repeat_interleave(4, dim=-1) for table in (cos, sin))
    ),
    "halves by a stack": lambda x, cos, sin: _wide(
        x, *(torch.stack((table, table), -2).flatten(-2) for table in (cos, sin))
    ),
    "a stack of different columns": lambda x, cos, sin: _wide(
        x, *(torch.stack((table, table + 1), -1).flatten(-2) for table in (cos, sin))
    ),
    "one table in pairs, one in halves": lambda x, cos, sin: _wide(
        x, cos.repeat_interleave(2, dim=-1), torch.cat((sin, sin), -1)
    ),
    "no sign": lambda x, cos, sin: (
        x * cos.repeat_interleave(2, -1)
        + torch.stack((x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin.repeat_interleave(2, -1)
    ),
    "both signs": lambda x, cos, sin: (
        x * cos.repeat_interleave(2, -1)
        + torch.stack((-x[..., 1::2], -x[..., ::2]), -1).flatten(-2) * sin.repeat_interleave(2, -1)
    ),
    "the sign on one product": lambda x, cos, sin: torch.cat(
        (x[..., :4] * cos + x[..., 4:] * sin, x[..., 4:] * cos + x[..., :4] * sin), -1
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("as_exported", [False, True])
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_stay(name: str, as_exported: bool) -> None:
    assert ropes(convert(of_tables(NEAR_MISSES[name]), *inputs(), as_exported=as_exported)) == 0


def test_values_that_only_repeat_rows_stay() -> None:
    """Two equal rows are no equal columns."""

    def function(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return x * cos.repeat_interleave(2, dim=-2) + rotate_neighbours(x) * sin.repeat_interleave(2, dim=-2)

    assert ropes(convert(function, torch.randn(1, 2, 4, 8), torch.randn(2, 8), torch.randn(2, 8))) == 0


def test_given_pairs_of_tables_need_their_repetition() -> None:
    """Nothing says that the columns of an input are equal; half of them, repeated, are."""

    def function(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return x * cos + rotate_neighbours(x) * sin

    def repeated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return function(x, *(table[..., :4].repeat_interleave(2, dim=-1) for table in (cos, sin)))

    tensors = torch.randn(1, 2, 3, 8), torch.randn(3, 8), torch.randn(3, 8)
    assert ropes(convert(function, *tensors, as_exported=True)) == 0
    assert ropes(convert(repeated, *tensors, as_exported=True)) == 1


def test_neighbours_that_are_used_elsewhere_stay() -> None:
    def function(x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = half_tables(x, positions, 8)
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2), even.sin()

    assert ropes(convert(function, *inputs())) == 0
