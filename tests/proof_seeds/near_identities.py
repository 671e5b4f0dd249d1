"""Wrong rules near identities of softmax and norms: right over the reals, or for numbers of ordinary size."""

from __future__ import annotations

import torch

from patcomp.authoring import AtenSource, AtenTarget, CoreaiSource, CoreaiTarget
from patcomp.ir import coreai
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, Const, Rewrite
from tests.proof_seeds.normalize import of_aten
from tests.proof_seeds.seeds import Function, Ops, of_coreai, seed

LARGE = torch.tensor([[16777216.0, 16777215.0, 16777214.0]])
SMALL = torch.tensor([[1e-4, -2e-4, 3e-5], [0.0, 0.0, 0.0]])
ROWS = {"x": "2x3xf32"}


def _centered(x: Value) -> Value:
    return coreai.broadcasting_sub(x, coreai.reduce_mean(x, [1]))


# ---- to the bit --------------------------------------------------------------------------------------


@seed(
    "x + 1 rounds large numbers",
    Ops({"x": "1x3xf32"}, lambda x: coreai.softmax(coreai.broadcasting_add(x, 1.0), 1), {"x": LARGE}),
)
@of_coreai("optimize", {**ROWS, "axis": 1})
def shifted_softmax(a: CoreaiSource, c: CoreaiTarget, x: Capture, axis: Const) -> Rewrite:
    "softmax(x + 1) -> softmax(x)"
    y = a.softmax(x + 1.0, axis)
    return Rewrite(y, to=c.softmax(x, axis), where=[y.type == x.type])


@seed(
    "a number that is added to a row rounds the large numbers of the row",
    Ops(
        {"x": "1x3xf32", "y": "1x1xf32"},
        lambda x, y: coreai.softmax(coreai.broadcasting_sub(x, y), 1),
        {"x": LARGE, "y": torch.tensor([[0.5]])},
    ),
)
@of_coreai("optimize", {"x": "2x3xf32", "y": "2x1xf32", "axis": 1})
def softmax_shifted_by_rows(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, axis: Const) -> Rewrite:
    "softmax(x - y) -> softmax(x) where y is a number for each row"
    z = a.softmax(x - y, axis)
    rows = [x.rank == 2, y.rank == 2, axis.value == 1, y.shape[1] == 1, y.shape[0] == x.shape[0]]
    return Rewrite(z, to=c.softmax(x, axis), where=[z.type == x.type, *rows])


@seed(
    "x - 3 rounds large numbers before their mean is subtracted",
    Ops({"x": "1x3xf32"}, lambda x: _centered(coreai.broadcasting_sub(x, 3.0)), {"x": LARGE}),
)
@of_coreai("optimize", ROWS)
def shifted_mean(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "(x - 3) - mean(x - 3) -> x - mean(x)"
    y = x - 3.0
    z = y - a.reduce_mean(y, [1])
    return Rewrite(z, to=c.broadcasting_sub(x, c.reduce_mean(x, [1])), where=[x.rank == 2, x.is_static])


@seed(
    "(x + 1) - 1 loses digits",
    Ops({"x": "1x3xf32"}, lambda x: coreai.broadcasting_sub(coreai.broadcasting_add(x, 1.0), 1.0), {"x": SMALL[:1]}),
)
@of_coreai("optimize", ROWS)
def one_more_and_one_less(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "(x + 1) - 1 -> x"
    return Rewrite((x + 1.0) - 1.0, to=x, where=[x.dtype == "f32"])


@seed(
    "the square of a small number is zero, and that of a large one infinite",
    Ops(
        {"x": "1x3xf32"},
        lambda x: coreai.sqrt(coreai.broadcasting_mul(x, x)),
        {"x": torch.tensor([[1e-30, 1e30, 3.0]])},
    ),
)
@of_coreai("optimize", ROWS)
def root_of_square(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "sqrt(x * x) -> abs(x)"
    return Rewrite(a.sqrt(x * x), to=c.abs(x), where=[x.dtype == "f32"])


# ---- within a tolerance --------------------------------------------------------------------------------


def _mean(a, x, axis):  # type: ignore[no-untyped-def]
    return a.op("mean.dim", x, dim=[axis], keepdim=True, dtype=None)


@seed(
    "eps is not small beside the squares of small numbers",
    Function(lambda x: x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6), [SMALL]),
)
@of_aten({"x": "2x8xf32", "axis": 1})
def norm_without_eps(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    "x * rsqrt(mean(x^2) + 1e-6) -> x * rsqrt(mean(x^2))"
    root = a.rsqrt(_mean(a, x * x, axis) + 1e-6)
    return Rewrite(x * root, to=c.mul(x, c.rsqrt(_mean(c, c.mul(x, x), axis))), where=[x.dtype == "f32"])


@seed(
    "the root of eps is not eps",
    Function(lambda x: x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-6), [SMALL]),
)
@of_aten({"x": "2x8xf32", "axis": 1})
def eps_moved_out_of_the_root(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    "x / sqrt(mean(x^2) + 1e-6) -> x / (sqrt(mean(x^2)) + 1e-6)"
    root = a.sqrt(_mean(a, x * x, axis) + 1e-6)
    to = c.div(x, c.add(c.sqrt(_mean(c, c.mul(x, x), axis)), 1e-6))
    return Rewrite(x / root, to=to, where=[x.dtype == "f32"])


@seed(
    "a sum with eps is not the larger of the two",
    Function(lambda x: x / ((x * x).sum(1, keepdim=True).sqrt() + 1e-6), [SMALL]),
)
@of_aten({"x": "2x8xf32", "axis": 1})
def length_at_least_eps(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    "x / (|x| + 1e-6) -> x / max(|x|, 1e-6)"
    length = a.sqrt(a.op("sum.dim_IntList", x * x, dim=[axis], keepdim=True, dtype=None))
    again = c.sqrt(c.op("sum.dim_IntList", c.mul(x, x), dim=[axis], keepdim=True, dtype=None))
    return Rewrite(x / (length + 1e-6), to=c.div(x, c.clamp(again, min=1e-6)), where=[x.dtype == "f32"])


@seed(
    "the tanh form of gelu is an approximation of the exact one",
    Function(lambda x: torch.nn.functional.gelu(x), [torch.linspace(-4, 4, 12)]),
    right_on_example=False,
)
@of_aten({"x": "2x8xf32"}, unspecified=dict.fromkeys(("infinities and zeros", "large numbers"), "NaN of the kernel"))
def gelu_by_tanh(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "gelu(x) -> gelu(x, tanh)"
    return Rewrite(a.gelu(x, approximate="none"), to=c.gelu(x, approximate="tanh"), where=[x.dtype == "f32"])


@seed(
    "exp(20) / (1 + exp(20)) is 1, and exp(100) / (1 + exp(100)) is NaN",
    Function(lambda x: torch.sigmoid(x), [torch.tensor([1.0, 100.0])]),
)
@of_aten({"x": "2x8xf32"})
def sigmoid_by_quotient(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "sigmoid(x) -> exp(x) / (1 + exp(x))"
    return Rewrite(a.sigmoid(x), to=c.div(c.exp(x), c.add(c.exp(x), 1.0)), where=[x.dtype == "f32"])
