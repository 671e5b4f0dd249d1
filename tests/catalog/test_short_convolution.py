"""Short convolutions with their window become `causal_conv1d_update`, for any number of tokens; others stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.nn.functional import conv1d, pad, silu

from patcomp.emit.native import Native
from tests.catalog.recovering import convert

CHANNELS, KERNEL = 4, 3


def tensors(tokens: int = 5, width: int = KERNEL, kernel: int = KERNEL) -> list[torch.Tensor]:
    """Window, inputs, weights and bias."""
    generator = torch.Generator().manual_seed(0)
    shapes = (2, CHANNELS, width), (2, CHANNELS, tokens), (CHANNELS, 1, kernel), (CHANNELS,)
    return [torch.randn(*shape, generator=generator) for shape in shapes]


def step(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    """As transformers computes it for one token, `causal_conv1d_update`."""
    inputs = torch.cat([window, x], -1)
    outputs = conv1d(inputs, weight, bias, groups=CHANNELS)[:, :, -x.shape[-1] :]
    return silu(outputs), inputs[:, :, -window.shape[-1] :]


def with_state(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    """As transformers computes it for several tokens behind a state, `update_conv_state` and `causal_conv1d_fn`."""
    inputs = torch.cat([window, x], -1)
    outputs = silu(conv1d(inputs, weight, bias, padding=KERNEL - 1, groups=CHANNELS)[:, :, : inputs.shape[-1]])
    tokens = x.shape[-1]
    return outputs[:, :, -tokens:], inputs.narrow(-1, inputs.shape[-1] - window.shape[-1], window.shape[-1])


def prompt(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The first tokens, `causal_conv1d_fn`."""
    return conv1d(x, weight, padding=KERNEL - 1, groups=CHANNELS)[:, :, : x.shape[-1]] + window.sum() + bias.sum()


def padded(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    return silu(conv1d(pad(x, (KERNEL - 1, 0)), weight, bias, groups=CHANNELS)) + window.sum()


FORMS = {"step": step, "with a state": with_state, "prompt": prompt, "padded": padded}


def composites(program: Any) -> dict[str, int]:
    return dict(program.composites)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tokens", [1, 5, None])
@pytest.mark.parametrize("form", FORMS)
def test_short_convolutions_are_one_update(form: str, tokens: int | None, native: Native) -> None:
    """Of one token, of several, and of a number that is not known."""
    sizes = None if tokens else [{}, {2: Dim("tokens", min=1, max=64)}, {}, {}]
    program = convert(FORMS[form], *tensors(tokens or 5), sizes=sizes, as_exported=True, native=native)
    assert composites(program) == {"causal_conv1d_update": 1}
    text = program.stages["recover"]
    main = text[text.index("@main") :]
    assert "aten.convolution" not in main
    assert "aten.cat" not in main, "the window is an output of the composite"


def test_a_window_that_is_wider_than_needed(native: Native) -> None:
    program = convert(with_state, *tensors(width=6), as_exported=True, native=native)
    assert composites(program) == {"causal_conv1d_update": 1}


def _changed(**options: Any) -> Callable[..., Any]:
    def model(window: Any, x: Any, weight: Any, bias: Any) -> Any:
        inputs = torch.cat([window, x], -1)
        return conv1d(inputs, weight, bias, **{"groups": CHANNELS, **options})[:, :, -x.shape[-1] :]

    return model


def _cut(start: int, end: int | None) -> Callable[..., Any]:
    def model(window: Any, x: Any, weight: Any, bias: Any) -> Any:
        return conv1d(torch.cat([window, x], -1), weight, bias, groups=CHANNELS)[:, :, start:end]

    return model


def _behind(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    """Tokens that see those behind them."""
    return conv1d(x, weight, padding=1, groups=CHANNELS) + window.sum() + bias.sum()


def _ones_before(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    return conv1d(pad(x, (KERNEL - 1, 0), value=1.0), weight, bias, groups=CHANNELS) + window.sum()


def _zeros_behind(window: Any, x: Any, weight: Any, bias: Any) -> Any:
    return conv1d(pad(x, (1, 1)), weight, bias, groups=CHANNELS) + window.sum()


NEAR_MISSES = {
    "a stride": _changed(stride=2), "dilation": _changed(dilation=2), "padding behind": _changed(padding=1),
    "the first outputs": _cut(0, 5), "without the first token": _cut(2, None), "not the last token": _cut(1, -1),
    "tokens behind": _behind, "ones before": _ones_before, "zeros behind": _zeros_behind,
}  # fmt: skip


@pytest.mark.parametrize("form", NEAR_MISSES)
def test_near_misses_stay(form: str) -> None:
    assert composites(convert(NEAR_MISSES[form], *tensors(), as_exported=True)) == {}


def test_channels_that_are_mixed_stay() -> None:
    window, x, _, bias = tensors()
    weight = torch.randn(CHANNELS, CHANNELS, KERNEL)
    program = convert(
        lambda window, x, weight, bias: conv1d(torch.cat([window, x], -1), weight, bias)[:, :, -5:],
        window, x, weight, bias, as_exported=True,
    )  # fmt: skip
    assert composites(program) == {}


def test_a_window_that_is_too_narrow_stays() -> None:
    def model(window: Any, x: Any, weight: Any, bias: Any) -> Any:
        inputs = torch.cat([window, x], -1)
        return conv1d(inputs, weight, bias, padding=KERNEL - 1, groups=CHANNELS)[:, :, 1 : 1 + x.shape[-1]]

    assert composites(convert(model, *tensors(width=1), as_exported=True)) == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    program = convert(step, *(x.to(dtype) for x in tensors()), as_exported=True)
    assert composites(program) == {"causal_conv1d_update": 1}
