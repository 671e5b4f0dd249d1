"""Pixel shuffles from views and permutations, and what other orders of the same axes are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from patcomp import AIProgram
from patcomp.emit.native import Native
from tests.catalog.recovering import convert
from tests.helpers.thorough import examples

RULE = "pixel_shuffle of views"


def shuffles(program: AIProgram) -> int:
    """How many calls of the composite a program makes."""
    return program.composites.get("pixel_shuffle", 0)


def written_out(x: torch.Tensor, r: int, order: tuple[int, ...] = (0, 3, 1, 4, 2)) -> torch.Tensor:
    """A shuffle by views; `order` is that of channels, the two factors, height and width."""
    *batch, channels, height, width = x.shape
    lead = len(batch)
    split = x.reshape(*batch, channels // r**2, r, r, height, width)
    permuted = split.permute(*range(lead), *(lead + axis for axis in order))
    return permuted.reshape(*batch, channels // r**2, height * r, width * r)


def image(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(8, 3, 4), (2, 8, 3, 4), (2, 3, 4, 2, 2), (1, 4, 1, 1)])
def test_form(shape: tuple[int, ...], native: Native) -> None:
    program = convert(lambda x: written_out(x, 2), image(*shape), native=native)
    assert shuffles(program) == 1
    assert "upscale_factor = 2 : si64" in program.text()


def test_default_decomposition(native: Native) -> None:
    shuffle = torch.nn.PixelShuffle(3)
    assert shuffles(convert(shuffle, image(1, 9, 2, 5), default_table=True, native=native)) == 1


def test_without_the_rule() -> None:
    assert shuffles(convert(lambda x: written_out(x, 2), image(1, 8, 3, 4), without=[RULE])) == 0


@settings(max_examples=examples(6), deadline=None, derandomize=True)
@given(
    batch=st.lists(st.integers(1, 2), max_size=2),
    channels=st.integers(1, 3),
    r=st.integers(1, 3),
    height=st.integers(1, 3),
    width=st.integers(1, 3),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.int32]),
)
def test_any_size_and_type(
    batch: list[int], channels: int, r: int, height: int, width: int, dtype: torch.dtype
) -> None:
    x = (9 * image(*batch, channels * r * r, height, width)).to(dtype)
    found = shuffles(convert(lambda x: written_out(x, r), x))
    assert found == 1 or (r == 1 and found == 0)


# every other order of the axes after the batch that gives the same shape
OTHER_ORDERS = [(0, 3, 2, 4, 1), (0, 1, 3, 2, 4), (0, 1, 3, 4, 2), (0, 3, 1, 2, 4), (3, 0, 1, 4, 2), (0, 4, 1, 3, 2)]


@pytest.mark.parametrize("order", OTHER_ORDERS)
def test_other_orders_stay(order: tuple[int, ...]) -> None:
    assert shuffles(convert(lambda x: written_out(x, 2, order), image(2, 8, 4, 4))) == 0


def depth_to_space(x: torch.Tensor) -> torch.Tensor:
    """TensorFlow's: the factors come before the channels."""
    batch, channels, height, width = x.shape
    split = x.view(batch, 2, 2, channels // 4, height, width)
    return split.permute(0, 3, 4, 1, 5, 2).reshape(batch, channels // 4, 2 * height, 2 * width)


def unequal_factors(x: torch.Tensor) -> torch.Tensor:
    batch, channels, height, width = x.shape
    split = x.view(batch, channels // 8, 2, 4, height, width)
    return split.permute(0, 1, 4, 2, 5, 3).reshape(batch, channels // 8, 2 * height, 4 * width)


def other_end(x: torch.Tensor) -> torch.Tensor:
    return x.view(2, 2, 2, 2, 4, 4).permute(0, 1, 4, 2, 5, 3).reshape(2, 2, 64)


def unshuffled(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pixel_unshuffle(x, 2)


def batch_cut_differently(x: torch.Tensor) -> torch.Tensor:
    """The view takes channels for a part of the batch."""
    return x.view(4, 1, 2, 2, 4, 4).permute(0, 1, 4, 2, 5, 3).reshape(4, 1, 8, 8)


@pytest.mark.parametrize("function", [depth_to_space, unequal_factors, other_end, unshuffled, batch_cut_differently])
def test_what_is_no_shuffle_stays(function) -> None:  # type: ignore[no-untyped-def]
    assert shuffles(convert(function, image(2, 8, 4, 4))) == 0


def test_view_used_elsewhere() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        split = x.view(1, 2, 2, 2, 3, 3)
        return split.permute(0, 1, 4, 2, 5, 3).reshape(1, 2, 6, 6), split.sum(2)

    assert shuffles(convert(function, image(1, 8, 3, 3))) == 0


@settings(max_examples=examples(20), deadline=None, derandomize=True)
@given(data=st.data())
def test_views_and_permutations_of_any_rank(data: st.DataObject) -> None:
    """Conditions of rules count on no rank: `convert` raises what they raise."""

    def factors() -> list[int]:
        cuts = sorted(data.draw(st.lists(st.integers(0, 4), max_size=6)))
        return [2 ** (end - start) for start, end in zip([0, *cuts], [*cuts, 4], strict=True)]

    split, merged = factors(), factors()
    order = data.draw(st.permutations(range(len(split))))
    convert(lambda x: x.view(split).permute(order).reshape(merged).select(-1, 0) * 2, image(*factors()))


@pytest.mark.parametrize("shape", [(2,), (2, 1, 1), (1, 2)])
def test_a_view_of_another_rank_before_a_permutation(shape: tuple[int, ...]) -> None:
    assert shuffles(convert(lambda x: x.view(2, 1, 1, 1).permute(0, 1, 3, 2).reshape(1, 2), image(*shape))) == 0


def test_one_of_a_flattened_pair(native: Native) -> None:
    convert(lambda x: x.view(2)[0] * 2, image(1, 2), native=native)
