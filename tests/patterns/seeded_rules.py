"""More rules to make mistakes in, of all three kinds, and the mistakes; `test_seeded_mistakes.py` tests them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """A rule, the part of it that a mistake concerns, and that part with the mistake."""

    name: str
    rule: str
    right: str
    wrong: str
    shown: str
    """What the counterexample must show."""


ROOT_NORM = """
@table.define
@composite("root_norm", inputs=("x",), attributes=("eps",))
def root_norm(c, x, *, eps):
    mean = c.reduce_mean(c.broadcasting_mul(x, x), [x.rank - 1])
    return c.broadcasting_mul(x, c.rsqrt(c.broadcasting_add(mean, eps)))


@rule(into=table, example={"x": "2x3x8xf32", "eps": 0.5, "axis": 2})
def recovered_root_norm(a, c, x, eps: Const, axis: Attr):
    "x * rsqrt(mean x^2 + eps)"
    mean = a.op("mean.dim", x * x, dim=[axis], keepdim=True, dtype=None)
    return Rewrite(
        x * a.rsqrt(mean + eps), to=c.root_norm(x, eps=eps.value), where=[axis == x.rank - 1, x.dtype == "f32"]
    )
"""

LARGER_SUM = """
@rule(stage="normalize", into=aten_namespace, example={"x": "2x5xf32", "y": "2x1xf32"})
def larger_sum(a, c, x, y):
    total = a.op("sum.dim_IntList", x, dim=[1], keepdim=True, dtype=None)
    again = c.op("sum.dim_IntList", x, dim=[1], keepdim=True, dtype=None)
    return Rewrite(a.gt(total, y), to=c.lt(y, again), where=[x.dtype == "f32", y.dtype == "f32"])
"""

PRELU = """
@lowering("aten._prelu_kernel", name="my_prelu", examples=[example("2x3x3xf32", "1x3x1xf32")])
def my_prelu(op, c):
    x, weight = op["self"], op.weight
    op.expect(weight.rank == x.rank, "a weight of another rank")
    slope = c.reshape(weight, weight.shape)
    return c.broadcasting_where(c.broadcasting_greater(x, 0.0), x, c.broadcasting_mul(x, slope))
"""

RANKED_SOFTMAX = """
@lowering("aten._softmax", name="my_softmax", examples=[example("2x3x4xf32", 1, False)])
def my_softmax(op, c):
    op.expect(not op.half_to_float, "float32 of half precision")
    x = op["self"]
    op.expect(x.rank > 0, "a number")
    return c.softmax(x, op.dim % x.rank)
"""

ROUND = """
@lowering("aten.round", name="my_round", examples=[example("2x9xf32")])
def my_round(op, c):
    x = op["self"]
    op.expect(x.dtype == "f32", "other numbers")
    return c.round_(x)
"""

SORT = """
@lowering("aten.sort.stable", name="my_sort", examples=[example("2x5xf32", stable=True)])
def my_sort(op, c):
    op.ignore("stable", because="it is")
    x = op["self"]
    op.expect(x.dtype == "f32" and x.rank > 0 and not op.descending and x.is_static, "other sorts")
    op.expect(op.dim % x.rank == x.rank - 1, "another axis")
    order = c.argsort(x, x.rank - 1, False, True)
    return [c.gather_along_axis(x, order, x.rank - 1), c.cast(order, op.results[1].element_type)]
"""

ROLL = """
@decomposition("aten.roll", name="my roll", examples=[example("7x2xf32", [2], [0])])
def roll(self, shifts, dims=[]):
    if len(shifts) != 1 or len(dims) != 1 or self.numel() == 0:
        return NotImplemented
    size = self.shape[dims[0]]
    first = -shifts[0] % size
    return torch.cat([self.narrow(dims[0], first, size - first), self.narrow(dims[0], 0, first)], dims[0])
"""

SHIFT = """
@decomposition("aten.fft_fftshift", name="my fftshift", examples=[example("2x4xf32", [1])])
def fftshift(self, dim=None):
    dims = list(range(self.dim())) if dim is None else dim
    return torch.roll(self, [self.shape[axis] // 2 for axis in dims], dims)
"""

ROT90 = """
@decomposition("aten.rot90", name="my rot90", examples=[example("3x3xf32")])
def rot90(self, k=1, dims=(0, 1)):
    if k != 1 or self.dim() != 2 or [axis % 2 for axis in dims] != [0, 1]:
        return NotImplemented
    return self.transpose(0, 1).flip(0)
"""

MINMAX = """
@decomposition("aten.aminmax", name="my aminmax", examples=[example("2x3xf32", dim=1)])
def aminmax(self, *, dim=None, keepdim=False):
    if dim is None or self.dim() == 0:
        return NotImplemented
    return self.amin(dim, keepdim), self.amax(dim, keepdim)
"""

FLOAT_POWER = """
@decomposition("aten.float_power.Tensor_Scalar", name="my float_power", examples=[example("5xf32[0.5,2]", 2.0)])
def float_power(self, exponent):
    return torch.pow(self.to(torch.float64), exponent)
"""

COPYSIGN = """
@decomposition("aten.copysign.Tensor", name="my copysign", examples=[example("2x3xf32", "3xf32")])
def copysign(self, other):
    if not (self.dtype == other.dtype == torch.float32):
        return NotImplemented
    return torch.where(torch.signbit(other), -self.abs(), self.abs())
"""

ADDR = """
@decomposition("aten.addr", name="my addr", examples=[example("3x4xf32", "3xf32", "4xf32")])
def addr(self, vec1, vec2, *, beta=1, alpha=1):
    if not self.is_floating_point() or not vec1.dtype == vec2.dtype == self.dtype or beta == 0:
        return NotImplemented
    return beta * self + alpha * vec1[:, None] * vec2
"""

HARDSHRINK = """
@decomposition("aten.hardshrink", name="my hardshrink", examples=[example("2x9xf32")])
def hardshrink(self, lambd=0.5):
    return torch.where(self.abs() <= lambd, torch.zeros_like(self), self)
"""

MSE = """
@decomposition("aten.mse_loss", name="my mse_loss", examples=[example("2x3xf32", "2x3xf32", 1)])
def mse_loss(self, target, reduction=1):
    if not self.is_floating_point() or self.shape != target.shape or reduction > 2 or reduction < 0:
        return NotImplemented
    square = (self - target) ** 2
    return square if reduction == 0 else square.mean() if reduction == 1 else square.sum()
"""

CELU = """
@decomposition("aten.celu", name="my celu", examples=[example("2x9xf32")])
def celu(self, alpha=1.0):
    return torch.clamp(self, min=0) + torch.clamp(alpha * torch.expm1(self / alpha), max=0)
"""

SHUFFLE = """
@table.define
@composite("shuffle", inputs=("x",), attributes=("factor",))
def shuffle(c, x, *, factor):
    *batch, channels, height, width = x.shape
    r, lead = factor, len(batch)
    split = c.reshape(x, [*batch, channels // r**2, r, r, height, width])
    order = [*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2]
    return c.reshape(c.transpose(split, order), [*batch, channels // r**2, height * r, width * r])


def factor_of(match):
    shape, split, order, merged = match["x"].shape, match["split"], match["order"], match["merged"]
    lead = len(split) - 5
    if lead < 0 or lead != len(shape) - 3:
        return None
    channels, rows, columns, height, width = split[lead:]
    if rows != columns or split != [*shape[:lead], channels, rows, rows, *shape[-2:]]:
        return None
    if order != [*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2]:
        return None
    return rows if merged == [*shape[:lead], channels, height * rows, width * rows] else None


@rule(
    into=table,
    example={"x": "1x8x3x4xf32", "split": [1, 2, 2, 2, 3, 4], "order": [0, 1, 4, 2, 5, 3], "merged": [1, 2, 6, 8]},
)
def shuffle_of_views(a, c, x, split: Attr, order: Attr, merged: Attr):
    return Rewrite(
        a.view(a.permute(a.view(x, size=split), dims=order), size=merged),
        to=c.shuffle(x, factor=compute("the factor", factor_of)),
        where=[check("it is a shuffle", factor_of), x.dtype == "f32"],
    )
"""


MISTAKES = [
    Mistake("eps outside the root", ROOT_NORM, "c.rsqrt(c.broadcasting_add(mean, eps))",
            "c.broadcasting_divide(1.0, c.broadcasting_add(c.sqrt(mean), eps))", "aten.rsqrt"),
    Mistake("ignored element type of a sum", LARGER_SUM,
            "total = a.op(\"sum.dim_IntList\", x, dim=[1], keepdim=True, dtype=None)",
            "total = a.op(\"sum.dim_IntList\", x, dim=[1], keepdim=True, dtype=ANY)", "dtype = si"),
    Mistake("weight on the wrong axis", PRELU, "c.reshape(weight, weight.shape)",
            "c.reshape(weight, [max(weight.shape)])", "aten._prelu_kernel"),
    Mistake("right up to rank 3", RANKED_SOFTMAX, "op.dim % x.rank)", "op.dim % x.rank if x.rank < 4 else 3)",
            "aten._softmax"),
    Mistake("halves away from the even number", ROUND, "c.round_(x)",
            "c.broadcasting_floor_divide(c.broadcasting_add(x, 0.5), 1.0)", "aten.round"),
    Mistake("wrong positions of right values", SORT, "c.cast(order, ",
            "c.cast(c.argsort(order, x.rank - 1, False, True), ", "expected y1"),
    Mistake("slice that ends one too early", ROLL, "size - first)", "size - first - 1)", "aten.roll"),
    Mistake("right for even sizes", SHIFT, "self.shape[axis] // 2", "(self.shape[axis] + 1) // 2", "aten.fft_fftshift"),
    Mistake("right for square matrices", ROT90, ".flip(0)", ".flip(0).reshape(self.shape)", "aten.rot90"),
    Mistake("keepdim of one result ignored", MINMAX, "self.amax(dim, keepdim)", "self.amax(dim)", "keepdim=True"),
    Mistake("a result too few", MINMAX, "return self.amin(dim, keepdim), self.amax(dim, keepdim)",
            "return self.amin(dim, keepdim)", "gives 1 results for the 2"),
    Mistake("result of another type", FLOAT_POWER, "self.to(torch.float64)", "self", "torch.float64"),
    Mistake("swapped operands of copysign", COPYSIGN, "torch.where(torch.signbit(other), -self.abs(), self.abs())",
            "torch.where(torch.signbit(self), -other.abs(), other.abs())", "aten.copysign"),
    Mistake("ignored alpha", ADDR, "alpha * vec1", "vec1", "alpha="),
    Mistake("wrong at the border", HARDSHRINK, "<= lambd", "< lambd", "0.5"),
    Mistake("ignored reduction", MSE, "else square.sum()", "else square.mean()", "reduction=2"),
    Mistake("branch on values", MSE, "    square = (self - target) ** 2\n",
            "    square = (self - target) ** 2\n    if square.sum() < 0:\n        return -square.sum()\n",
            "aten.mse_loss"),
    Mistake("alpha not divided by", CELU, "self / alpha", "self", "alpha="),
    Mistake("captured list of another length", SHUFFLE, "if lead < 0 or lead != len(shape) - 3:",
            "if lead != len(shape) - 3:", "not enough values to unpack (expected 5, got 1)"),
]  # fmt: skip
