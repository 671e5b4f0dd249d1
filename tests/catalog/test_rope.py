"""Rotary position embeddings: every way in which models write them, and what only looks like one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from patcomp.emit.native import Native
from tests.catalog.declarations import declarations
from tests.catalog.recovering import convert
from tests.catalog.rotations import (
    FORMS,
    Tensors,
    angles,
    inputs,
    of,
    ropes,
    rotate_half,
    rotate_neighbours,
    wide_tables,
)
from tests.helpers.thorough import examples

ROPES = (
    "rope", "rope with half tables", "rope of neighbours", "rope of neighbours with half tables",
    "rope of neighbours to halves", "rope of some dimensions",
)  # fmt: skip


def some(form: Callable[..., torch.Tensor], dims: int, split: bool) -> Callable[..., torch.Tensor]:
    """A form on the first `dims` values of each head, as GPT-NeoX, Phi and GPT-J use it."""

    def function(x: torch.Tensor, positions: torch.Tensor, width: int) -> torch.Tensor:
        if split:
            turned, kept = x.split([dims, x.shape[-1] - dims], dim=-1)
        else:
            turned, kept = x[..., :dims], x[..., dims:]
        return torch.cat((form(turned, positions, dims), kept), dim=-1)

    return function


# ---- they are found, and agree ---------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
def test_form(name: str, native: Native) -> None:
    form, interleaved = FORMS[name]
    program = convert(of(form), *inputs(), native=native)
    assert ropes(program) == 1
    assert declarations(program.module) == [
        '#coreai.composite_declaration<"rope" = {input_names = ["input", "cos", "sin"], op_attrs = '
        f"{{base = 1.000000e+04 : f32, interleaved = {str(interleaved).lower()}, scale = 1.000000e+00 : f32, "
        'version = 1 : si64}, output_names = ["output"]}>'
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_form_of_some_dimensions(name: str, split: bool, native: Native) -> None:
    form, interleaved = FORMS[name]
    program = convert(of(some(form, 4, split), 10), *inputs((2, 3, 5, 10)), native=native)
    assert ropes(program) == 1
    (declaration,) = declarations(program.module)
    assert (
        f"base = 1.000000e+04 : f32, dims = 4 : si64, interleaved = {str(interleaved).lower()}, "
        "scale = 1.000000e+00 : f32"
    ) in declaration


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FORMS)
def test_without_the_rules(name: str) -> None:
    assert ropes(convert(of(FORMS[name][0]), *inputs(), without=ROPES)) == 0


@settings(max_examples=examples(8), deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(FORMS)),
    batch=st.integers(1, 2),
    heads=st.integers(1, 3),
    length=st.integers(1, 4),
    half=st.integers(1, 4),
    rest=st.sampled_from([0, 1, 4]),
    split=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_any_size_and_type(
    name: str, batch: int, heads: int, length: int, half: int, rest: int, split: bool, dtype: torch.dtype
) -> None:
    form = some(FORMS[name][0], 2 * half, split) if rest else FORMS[name][0]
    width = 2 * half + rest
    assert ropes(convert(of(form, width), *inputs((batch, heads, length, width), dtype))) == 1


def test_queries_and_keys_share_tables() -> None:
    """Cosine and sine stay for the other uses, and are computed once, for half of the head."""

    def attention(q: torch.Tensor, positions: torch.Tensor, k: torch.Tensor) -> Tensors:
        cos, sin = wide_tables(q, positions, 8)
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin, cos

    program = convert(attention, *inputs(), inputs((2, 1, 5, 8))[0])
    assert ropes(program) == 2
    assert program.text().count("coreai.cos") == 1
    assert "-> tensor<2x5x8xf32>" not in next(line for line in program.text().splitlines() if "coreai.cos" in line)


def test_opaque_half_tables() -> None:
    """Tables with one value for each pair need no proof."""

    def function(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    assert ropes(convert(function, torch.randn(1, 2, 3, 8), torch.randn(3, 4), torch.randn(3, 4))) == 1


# ---- near misses -----------------------------------------------------------------------------------


def wrong_sign(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, 8)
    return x * cos + torch.cat((x[..., 4:], x[..., :4]), dim=-1) * sin


def subtracted(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, 8)
    return x * cos - rotate_half(x) * sin


def swapped_halves(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, 8)
    return x * cos + torch.cat((-x[..., :4], x[..., 4:]), dim=-1) * sin


def unequal_parts(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, 8)
    return x * cos + torch.cat((-x[..., 3:], x[..., :3]), dim=-1) * sin


def unequal_halves_of_tables(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    half = angles(positions, 8)
    wide = torch.cat((half, 2 * half), dim=-1).unsqueeze(1)
    return x * wide.cos() + rotate_half(x) * wide.sin()


def pairs_of_tables_for_halves(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    wide = torch.repeat_interleave(angles(positions, 8), 2, dim=-1).unsqueeze(1)
    return x * wide.cos() + rotate_half(x) * wide.sin()


def halves_of_tables_for_pairs(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, 8)
    return x * cos + rotate_neighbours(x) * sin


def neighbours_in_wrong_order(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    wide = torch.repeat_interleave(angles(positions, 8), 2, dim=-1).unsqueeze(1)
    turned = torch.stack((-x[..., ::2], x[..., 1::2]), dim=-1).flatten(-2)
    return x * wide.cos() + turned * wide.sin()


def other_value_turned(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, 8)
    return x * cos + rotate_half(x + 1) * sin


def factor_for_each_column(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    half = angles(positions, 8)
    wide = torch.cat((half, half), dim=-1).unsqueeze(1)
    factors = torch.arange(8.0)
    return x * (wide.cos() * factors) + rotate_half(x) * (wide.sin() * factors)


def tables_wider_than_the_input(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, 8)
    one = x[:, :1, :1]
    return one * cos + rotate_half(one) * sin


def turned_part_used(x: torch.Tensor, positions: torch.Tensor) -> Tensors:
    cos, sin = wide_tables(x, positions, 8)
    turned = rotate_half(x)
    return x * cos + turned * sin, turned


def tail_in_front(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The composite turns the first values; here the last ones are, and the composite takes only those."""
    cos, sin = wide_tables(x, positions, 4)
    turned = x[..., 4:]
    return torch.cat((x[..., :4], turned * cos + rotate_half(turned) * sin), dim=-1)


def gap_before_the_tail(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, 4)
    turned = x[..., :4]
    return torch.cat((turned * cos + rotate_half(turned) * sin, x[..., 5:]), dim=-1)


NEAR_MISSES = [
    wrong_sign, subtracted, swapped_halves, unequal_parts, unequal_halves_of_tables,
    pairs_of_tables_for_halves, halves_of_tables_for_pairs, neighbours_in_wrong_order, other_value_turned,
    factor_for_each_column, tables_wider_than_the_input, turned_part_used,
]  # fmt: skip


@pytest.mark.parametrize("function", NEAR_MISSES)
def test_what_is_no_rope_stays(function: Callable[..., Any]) -> None:
    assert ropes(convert(function, *inputs())) == 0


def test_halves_of_another_axis_stay() -> None:
    x, positions = inputs((2, 3, 8, 8))
    assert ropes(convert(of_another_axis_of_eight, x, positions)) == 0


def of_another_axis_of_eight(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    cos, sin = wide_tables(x, positions, 8)
    return x * cos + torch.cat((-x[:, :, 4:], x[:, :, :4]), dim=2) * sin


@pytest.mark.parametrize("function", [tail_in_front, gap_before_the_tail])
def test_other_parts_of_a_head(function: Callable[..., Any]) -> None:
    program = convert(function, *inputs())
    assert ropes(program) == 1
    (declaration,) = declarations(program.module)
    assert "dims" not in declaration


def test_opaque_wide_tables_stay() -> None:
    """Nothing says that the halves of an input are equal."""

    def function(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return x * cos + rotate_half(x) * sin

    assert ropes(convert(function, torch.randn(1, 2, 3, 8), torch.randn(3, 8), torch.randn(3, 8))) == 0


def test_cosine_and_sine_swapped_is_a_rope_of_other_tables() -> None:
    """Which table is called cosine, the graph does not say; the composite computes the same."""

    def function(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        cos, sin = wide_tables(x, positions, 8)
        return x * sin + rotate_half(x) * cos

    assert ropes(convert(function, *inputs())) == 1
