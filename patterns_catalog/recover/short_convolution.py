"""Short convolutions over tokens, whose window is the state of a layer (LFM2, Mamba, Qwen3-Next), as a composite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.extents import Extent, Unknown, extent, extent_of
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, composites, example, op_rule
from patterns_catalog.sizes import END, typed
from patterns_catalog.slices import slice_axis
from patterns_catalog.views import arguments_of, read_by


@composites.define
@composite(
    "causal_conv1d_update", inputs=("input", "weight", "bias", "window"), attributes=("activation",),
    outputs=("output_0", "output_1"),
)  # fmt: skip
def causal_conv1d_update(
    c: Coreai, x: Value, weight: Value, bias: Value | None, window: Value, *, activation: str
) -> list[Value]:
    """Each token's output is the sum of weights times the inputs of this token and those before it, in each channel.

    Inputs `[batch, channels, tokens]`, weights `[channels, 1, kernel size]`, bias `[channels]` or None, and the window:
    the inputs before the first token, `[batch, channels, at least kernel size - 1]`. The activation is "silu" or
    "none". The outputs of all tokens, and the window behind the last one.
    """
    width, kernel = window.static_shape[2], weight.static_shape[2]
    inputs = c.concat(2, [window, x])
    seen = slice_axis(c, inputs, 2, width - kernel + 1, END) if width >= kernel else inputs
    rows = c.conv2d(c.expand_dims(seen, [2]), c.expand_dims(weight, [2]), [1, 1], [1, 1], weight.static_shape[0])
    outputs = typed(c, c.shrink_dims(rows, [2]), x.shape)
    if bias is not None:
        outputs = c.broadcasting_add(outputs, c.expand_dims(bias, [0, 2]))
    if activation == "silu":
        outputs = c.silu(outputs)
    return [outputs, typed(c, slice_axis(c, inputs, 2, -width, END), window.shape)]


# ---- what a convolution reads -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Inputs:
    """The tokens, and what is before them: a window, or zeros."""

    tokens: Value
    window: Value | None
    width: int


def _inputs(x: Value) -> _Inputs:
    """The inputs of a convolution `[batch, channels, positions]`."""
    if (join := arguments_of(x, "cat")) is not None and join["dim"] in (2, -1) and len(join["tensors"]) == 2:
        window, tokens = join["tensors"]
        if window.shape[2] is not None and window.element_type == tokens.element_type:
            return _Inputs(tokens, window, window.shape[2])
    padded = arguments_of(x, "constant_pad_nd")
    if padded is not None and padded["value"] == 0 and not any(padded["pad"][1:]) and padded["pad"][0] > 0:
        return _Inputs(padded["self"], None, padded["pad"][0])
    return _Inputs(x, None, 0)


def _is_at_least_0(number: Extent) -> bool:
    """Whether a number is not negative, whatever the sizes are."""
    if isinstance(number, Unknown):
        return all(factor >= 0 for _, factor in number.terms)
    return number >= 0


@dataclass(frozen=True)
class _Range:
    """Neighbouring positions of a sequence."""

    first: Extent
    length: Extent

    def cut(self, start: Any, end: Any) -> _Range | None:
        """The range of a slice; None if it depends on the sizes which positions these are."""
        first = 0 if start is None else self._position(start)
        last = self.length if end is None else self._position(end)
        if first is None or last is None or not _is_at_least_0(last + first * -1):
            return None
        return _Range(self.first + first, last + first * -1)

    def _position(self, bound: Any) -> Extent | None:
        """A bound of a slice, counted from the front."""
        if isinstance(bound, int) and bound >= END:
            return self.length
        at: Extent = bound if isinstance(bound, int) else extent_of(bound)
        if not _is_at_least_0(at):
            at = self.length + at
            return at if _is_at_least_0(at) else None
        if _is_at_least_0(self.length + at * -1):
            return at
        return self.length if _is_at_least_0(at + self.length * -1) else None


@dataclass(frozen=True)
class _Found:
    """A convolution, and what follows it."""

    given: dict[str, Any]
    cuts: list[dict[str, Any]]
    activation: str
    ops: list[Operation]


def _found(value: Value) -> _Found | None:
    """The convolution behind slices and an activation."""
    cuts: list[dict[str, Any]] = []
    ops: list[Operation] = []
    activation = "none"
    while (given := arguments_of(value, "convolution", "slice.Tensor", "silu")) is not None and value.maker:
        if ops and not value.is_read_once:
            return None
        ops.append(value.maker)
        if "weight" in given:
            return _Found(given, cuts[::-1], activation, ops)
        if "dim" not in given:
            if activation != "none":
                return None
            activation = "silu"
        elif given["dim"] % value.rank == 2 and given["step"] == 1 and value.rank == 3:
            cuts.append(given)
        else:
            return None
        value = given["self"]
    return None


_PADDING = dict.fromkeys(
    ("infinities and zeros", "NaN"), "eager's kernels differ in whether padding meets an infinite weight or NaN"
)
_PLAIN = {"stride": [1], "dilation": [1], "transposed": False, "output_padding": [0]}


def _decode(torch: Any, window: Any, x: Any, weight: Any, bias: Any) -> Any:
    inputs = torch.cat([window, x], -1)
    outputs = torch.nn.functional.conv1d(inputs, weight, bias, groups=4)
    return torch.nn.functional.silu(outputs[:, :, -x.shape[-1] :]), inputs[:, :, -window.shape[-1] :]


def _prompt(torch: Any, x: Any, weight: Any) -> Any:
    return torch.nn.functional.conv1d(x, weight, padding=2, groups=4)[:, :, : x.shape[-1]]


@op_rule("recover", "aten.convolution", "aten.slice.Tensor", "aten.silu", name="causal_conv1d_update", size=5,
         unspecified=_PADDING, examples=[
    example("2x4x3xf32", "2x4x5xf32", "4x1x3xf32", "4xf32", program=_decode),
    example("2x4x5xf32", "4x1x3xf32", program=_prompt),
])  # fmt: skip
def recovered_causal_conv1d_update(op: OpView, c: Coreai) -> Value | None:
    """a convolution of each channel behind a window or zeros, cut to the tokens (LFM2, Mamba, Qwen3-Next)

    The slices may come before the activation or after it. A window that is cut from the same inputs becomes the second
    output.
    """
    op.ignore(*op.arguments, because="the ops up to the convolution are read one by one")
    whole = Value(op.operation.results[0])
    found = _found(whole)
    if found is None or any(found.given[name] != value for name, value in _PLAIN.items()):
        return None
    x, weight, bias = found.given["input"], found.given["weight"], found.given["bias"]
    if x.rank != 3 or weight.rank != 3 or not weight.is_static or x.shape[0] is None:
        return None
    channels, each, kernel = weight.static_shape
    inputs = _inputs(x)
    (padding,) = found.given["padding"]
    if (each, found.given["groups"]) != (1, channels) or kernel < 2 or inputs.tokens.shape[1] != channels:
        return None
    tokens = extent(inputs.tokens, 2)
    positions: _Range | None = _Range(0, tokens + (inputs.width + 2 * padding - kernel + 1))
    for cut in found.cuts:
        positions = positions.cut(cut["start"], cut["end"]) if positions else None
    # the last input of the first output is the first token, and zeros of the padding are before the inputs
    if positions != _Range(inputs.width + padding - kernel + 1, tokens):
        return None
    if inputs.width + (0 if inputs.window else padding) < kernel - 1:
        return None
    op.cover(*found.ops)
    window = inputs.window
    if window is None:
        zero = c.constant(0.0, x.element_type)
        window = c.broadcast_to(zero, [x.shape[0], channels, kernel - 1])
    outputs, after = causal_conv1d_update(inputs.tokens, weight, bias, window, activation=found.activation)
    for part in read_by(x, "slice.Tensor"):
        given = arguments_of(part, "slice.Tensor")
        assert given is not None
        at = _Range(0, tokens + inputs.width).cut(given["start"], given["end"])
        if given["dim"] % 3 == 2 and given["step"] == 1 and at == _Range(tokens, inputs.width):
            op.replace(part, after)
    return outputs  # type: ignore[no-any-return]
