"""What looks like a normalisation layer and is none stays written out, or keeps what is not the composite's outside."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import TorchConverter
from tests.catalog.norms import Form, arguments, assert_equal, check, convert, export, uniform
from tests.catalog.recovering import Calling

_IMAGE = (2, 6, 4, 5)


def _plain(x: torch.Tensor, variance: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance + eps)


def other_axis(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A layer norm of channels: the composite's axes are the last ones."""
    return Form().standardized(x, (1,)) * w


def axes_with_a_gap(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return Form().standardized(x, (0, 2)) * w


def other_axis_of_the_variance(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return _plain(x, x.var(1, unbiased=False, keepdim=True)) * w


def unbiased_variance(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return _plain(x, x.var(-1, keepdim=True)) * w


def unbiased_variance_by_hand(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return _plain(x, centered.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)) * w


def epsilon_outside_of_the_root(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, unbiased=False, keepdim=True) + 1e-5) * w


def no_epsilon(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True)) * w


def difference_of_moments(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Equal on paper, not in floats, where it may be negative."""
    mean = x.mean(-1, keepdim=True)
    return _plain(x, x.square().mean(-1, keepdim=True) - mean * mean) * w


def mean_subtracted_of_something_else(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x - w.mean()) * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5) * w


def mean_added(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x + x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5) * w


def variance_around_zero(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return _plain(x, x.square().mean(-1, keepdim=True)) * w


def mean_only_in_the_variance(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5) * w


def variance_without_keepdim(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    square = x[0, :, :1].expand(8, 8)
    square = square * w
    return (square - square.mean(-1)) * torch.rsqrt(square.var(-1, unbiased=False) + 1e-5)


def deviation_used_elsewhere(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    inverse = torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)
    return (x - x.mean(-1, keepdim=True)) * inverse * w + inverse


def multiplied_by_the_root(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) * torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5) * w


def root_divided(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """rms / x instead of x / rms."""
    return torch.sqrt((x + 3).square().mean(-1, keepdim=True) + 1e-5) / (x + 3) * w


NEAR_MISSES = [
    other_axis, axes_with_a_gap, other_axis_of_the_variance, unbiased_variance, unbiased_variance_by_hand,
    epsilon_outside_of_the_root, no_epsilon, difference_of_moments, mean_subtracted_of_something_else, mean_added,
    variance_around_zero, mean_only_in_the_variance, variance_without_keepdim, deviation_used_elsewhere,
    multiplied_by_the_root, root_divided,
]  # fmt: skip


@pytest.mark.parametrize("function", NEAR_MISSES)
def test_what_is_no_norm_stays(function: Callable[..., Any]) -> None:
    check(function, (uniform((2, 8, 8), torch.float32), uniform((8,), torch.float32, 1) + 1), {})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("axes", [(-1,), (2, 3)])
def test_half_precision_throughout_stays(dtype: torch.dtype, axes: tuple[int, ...]) -> None:
    """The composites compute in float32, where large values do not overflow."""
    form = Form("product", "rsqrt", "before", "none", dtype=dtype)
    x = uniform((2, 3, 4, 5), dtype)
    program = convert(export(Calling(lambda x: form.standardized(x, axes)), (x,)))
    assert program.composites == {}


def test_float32_result_of_half_precision_has_the_cast_outside() -> None:
    x = uniform((2, 3, 8), torch.float16)
    program = convert(export(Calling(lambda x: Form().standardized(x.float(), (-1,))), (x,)))
    assert arguments(program)[0] == "tensor<2x3x8xf32>"


_WEIGHTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "of one element": lambda x, w: w[:1],
    "of the other axis": lambda x, w: w.view(8, 1),
    "of two axes": lambda x, w: w.expand(8, 8),
    "as large as the input": lambda x, w: x,
    "as a number": lambda x, w: w.sum(),
}


@pytest.mark.parametrize("weight", _WEIGHTS)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_weights_that_are_not_the_composites_stay_outside(name: str, weight: str) -> None:
    """A norm without weights is found below them. (With a weight for each channel, one of instances.)"""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if name == "layer_norm":
            return Form().standardized(x, (-1,)) * _WEIGHTS[weight](x, w)
        return Form().over_root(x, x.pow(2).mean(-1, keepdim=True)) * _WEIGHTS[weight](x, w)

    found = "instance_norm" if (name, weight) == ("layer_norm", "of the other axis") else name
    inputs = uniform((2, 8, 8), torch.float32), uniform((8,), torch.float32, 1) + 1
    program = check(function, inputs, {found: 1})
    if found == name:
        assert len(arguments(program)) == 2 + (name == "layer_norm")
        text = program.text()
        assert re.search(r"constant .*dense<1\.0+e\+00>|broadcast_to", text), "the composite's weight is ones"


def _grouped(x: torch.Tensor, view: tuple[int, ...], axes: tuple[int, ...]) -> torch.Tensor:
    return Form().standardized(x.reshape(view), axes).reshape(x.shape)


_NO_GROUPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "across the batch": lambda x: _grouped(x, (1, 4, 12, 5), (2, 3)),
    "without the positions": lambda x: _grouped(x, (2, 2, 3, 20), (3,)),
    "of positions": lambda x: _grouped(x, (2, 6, 2, 2, 5), (3, 4)),
    "that do not divide the channels": lambda x: _grouped(x, (2, 4, 30), (2,)),
    "viewed with another shape": lambda x: Form().standardized(x.reshape(2, 2, 60), (2,)).reshape(2, 3, 2, 20),
}


@pytest.mark.parametrize("name", _NO_GROUPS)
def test_groups_that_are_not_of_channels_are_no_group_norm(name: str) -> None:
    x = uniform(_IMAGE, torch.float32)
    program = convert(export(Calling(_NO_GROUPS[name]), (x,)))
    assert "group_norm" not in program.composites
    assert_equal(program.run({program.input_names()[0]: x}), _NO_GROUPS[name](x), torch.float32)


def test_batch_norm_of_a_batch_is_no_instance_norm() -> None:
    program = convert(export(nn.BatchNorm2d(6, track_running_stats=False), (uniform(_IMAGE, torch.float32),)))
    assert program.composites == {}


def test_a_norm_that_is_rounded_to_another_type_between_is_none() -> None:
    """The normalised value of float16 is rounded to bfloat16 before the weights."""

    class Rounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 8).bfloat16())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = x.float()
            normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
            return (normal.bfloat16() * self.weight).half()

    model, x = Rounded(), torch.linspace(-2, 3, 16).reshape(2, 8).half()
    program = TorchConverter().add_exported_program(torch.export.export(model, (x,))).to_coreai()
    assert "(%x, " not in program.text().partition("invoke @rms_norm")[2]  # of the float32 value alone, at most
    assert torch.equal(program.run(x), model(x))
