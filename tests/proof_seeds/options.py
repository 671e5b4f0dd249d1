"""Wrong rules that ignore an option, or take one value of it for all, where it is a word or stands for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from patcomp.authoring import Aten, Coreai, CoreaiSource, CoreaiTarget, OpView
from patcomp.ir import coreai
from patcomp.ir.value import Value
from patcomp.patterns import ANY, Attr, Capture, Const, Rewrite, call, decomposition, example, lowering, normalization
from tests.proof_seeds.seeds import Call, Function, Ops, of_coreai, seed

X = torch.linspace(-4, 4, 12).view(3, 4)
NOT_FINITE = dict.fromkeys(("infinities and zeros", "large numbers", "NaN"), "PyTorch's kernel has another NaN")


def _is_free(padding: np.ndarray) -> bool:
    return padding[0] == padding[1] == 0


@seed("the tanh form differs by 4e-4", Call("aten.gelu", [X], {"approximate": "tanh"}))
@lowering("aten.gelu", name="gelu, always exact", examples=[example("2x3xf32")], unspecified=NOT_FINITE)
def exact_gelu(op: OpView, c: Coreai) -> Value:
    "gelu, exact, whatever was asked for"
    op.ignore("approximate", because="the difference is small")
    return c.gelu(op["self"], "none")


@seed("the exact form differs by 4e-4", Call("aten.gelu", [X]))
@lowering("aten.gelu", name="gelu, always by tanh", examples=[
    example("2x3xf32", approximate="tanh"),
], unspecified=NOT_FINITE)  # fmt: skip
def rough_gelu(op: OpView, c: Coreai) -> Value:
    "gelu by tanh, whatever was asked for"
    op.ignore("approximate", because="the difference is small")
    return c.gelu(op["self"], "tanh")


@seed(
    "floor rounds a negative quotient down",
    Call("aten.div.Tensor_mode", [X, torch.full((3, 4), 0.75)], {"rounding_mode": "floor"}),
)
@normalization("aten.div.Tensor_mode", name="quotient, always truncated", examples=[
    example("2x3xf32", "2x3xf32[1,4]", rounding_mode="trunc"),
])  # fmt: skip
def truncated_quotient(op: OpView, aten: Aten) -> Value:
    "div(x, y, mode) -> trunc(x / y)"
    op.ignore("rounding_mode", because="integers are divided so")
    return aten.trunc(op.result, aten.div.Tensor(op.result, op["self"], op.other))


@seed("a sum is not a mean", Function(lambda x, y: torch.nn.functional.mse_loss(x, y, reduction="sum"), [X, X / 2]))
@decomposition("aten.mse_loss", name="mean of squares", examples=[example("2x3xf32", "2x3xf32")])
def mean_of_squares(self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    "mse_loss(x, y) -> mean((x - y)^2)"
    return ((self - target) ** 2).mean()


@seed("without a reduction, the result has the shape of x",
      Function(lambda x, y: torch.nn.functional.huber_loss(x, y, reduction="none"), [X, X / 2]))  # fmt: skip
@decomposition("aten.huber_loss", name="mean of distances", examples=[example("2x3xf32", "2x3xf32", 2)])
def sum_of_distances(self: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    "huber_loss(x, y) -> sum of a square near 0, and of a line further away"
    apart = (self - target).abs()
    return torch.where(apart <= delta, apart * apart * 0.5, delta * (apart - delta * 0.5)).sum()


@seed(
    "the other quantiles between two numbers are not their weighted mean",
    Function(lambda x: torch.quantile(x, 0.4, 1, interpolation="lower"), [X]),
)
@decomposition("aten.quantile.scalar", name="linear quantile", examples=[example("3x5xf32", 0.4, 1)])
def linear_quantile(
    self: Tensor, q: float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Any:
    "quantile(x, q) -> the weighted mean of two neighbours"
    if dim is None or self.dim() == 0:
        return NotImplemented
    ordered = self.sort(dim).values
    place = q * (self.shape[dim] - 1)
    first = int(place)
    last = min(first + 1, self.shape[dim] - 1)
    low, high = ordered.narrow(dim, first, 1), ordered.narrow(dim, last, 1)
    made = low + (high - low) * (place - first)
    return made if keepdim else made.squeeze(dim)


@seed(
    "without a reduction, the result has the shape of x",
    Function(lambda x, y: torch.nn.functional.smooth_l1_loss(x, y, reduction="none"), [X, X / 2]),
)
@decomposition("aten.smooth_l1_loss", name="mean of smooth distances", examples=[example("2x3xf32", "2x3xf32")])
def mean_of_smooth_distances(self: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    "smooth_l1_loss(x, y) -> mean of a square near 0, and of a line further away"
    apart = (self - target).abs()
    return torch.where(apart < beta, apart * apart * 0.5 / beta, apart - beta * 0.5).mean()


@seed(
    "the words for gelu name different functions",
    Ops({"x": "3x4xf32"}, lambda x: coreai.abs_(coreai.gelu(x, "sigmoid")), {"x": X}),
)
@of_coreai("optimize", {"x": "2x3xf32", "word": "none"}, priority=9)
def gelu_of_any_word(a: CoreaiSource, c: CoreaiTarget, x: Capture, word: Attr) -> Rewrite:
    "abs(gelu(x, any word)) -> maximum(gelu(x, none), -gelu(x, none))"
    y = a.abs(a.gelu(x, word))
    return Rewrite(
        y,
        to=c.broadcasting_maximum(c.gelu(x, "none"), c.broadcasting_sub(0.0, c.gelu(x, "none"))),
        where=[x.dtype == "f32"],
    )


@seed(
    "a reflection pads with other numbers than a constant",
    Ops({"x": "3x4xf32"}, lambda x: coreai.reverse(coreai.pad(x, [0, 0, 1, 1], 0.0, "reflect"), [0]), {"x": X}),
)
@of_coreai("optimize", {"x": "3x4xf32", "p": [0, 0, 0, 0], "value": 0.0}, priority=9)
def padding_of_any_mode(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, value: Const) -> Rewrite:
    "reverse(pad(x, p, any mode)) along axis 0 -> pad(reverse(x), p, constant) without padding there"
    y = a.reverse(a.pad(x, p, value, ANY), [0])
    return Rewrite(y, to=c.pad(c.reverse(x, [0]), p, value, "constant"), where=[x.is_static, call(_is_free, p.values)])


@seed(
    "counted from the right, equal numbers come before the place",
    Function(
        lambda s, v: torch.searchsorted(s, v, right=True), [torch.tensor([1.0, 2.0, 2.0]), torch.tensor([2.0, 1.0])]
    ),
)
@decomposition("aten.searchsorted.Tensor", name="places from the left", examples=[example("4xf32", "3xf32")])
def places_from_the_left(
    sorted_sequence: Tensor, self: Tensor, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:  # fmt: skip
    "searchsorted(s, v) -> sum(s < v)"
    if sorter is not None or sorted_sequence.dim() != 1:
        return NotImplemented
    found = (sorted_sequence < self.unsqueeze(-1)).sum(-1)
    return found.to(torch.int32) if out_int32 else found
