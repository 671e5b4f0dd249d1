"""Matrix products and convolutions."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float, is_integer
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, formula, lowering
from patterns_catalog.lower.integer_sums import integer_product
from patterns_catalog.lower.rows import row
from patterns_catalog.numbers import number_in
from patterns_catalog.sizes import sizes_of


def _product(c: Coreai, x: Value, y: Value) -> Value:
    return integer_product(c, x, y) if is_integer(x.element_type) else c.broadcasting_batch_matmul(x, y)


@formula(
    "lower", "aten.mm", "aten.bmm",
    examples=[example("2x3xf32", "3x4xf32"), example("2x3x4xf32", "2x4x5xf32", op="aten.bmm")],
)  # fmt: skip
def matrix_product(c: Coreai, self: Value, mat2: Value) -> Value:
    "a product of matrices, or of each pair in two batches"
    return _product(c, self, mat2)


def _without(c: Coreai, x: Value, *axes: int) -> Value:
    """A tensor without axes of size 1 that are counted from its end."""
    return c.shrink_dims(x, [x.rank + axis for axis in axes])


matmul = row(
    "matmul", lambda c, x, y: _product(c, x, y), example("2x2x3x4xf32", "2x2x4x5xf32"),
    example("2x3x3x4xf32", "2x1x4x5xf32"), where=lambda self, other: [
        ((self.rank > 0) & (other.rank > 0)).says("matmul of a 0-d tensor is not supported, as in PyTorch"),
        self.rank > 1, other.rank > 1,
    ], doc="batch dimensions broadcast",
)  # fmt: skip
_ROW, _COLUMN = "a vector is a row on the left", "a vector is a column on the right"
row_product = row(
    "matmul", lambda c, x, y: _without(c, _product(c, c.expand_dims(x, [0]), y), -2), example("4xf32", "2x4x5xf32"),
    where=lambda self, other: [self.rank == 1, other.rank > 1], name="matmul of a row", doc=_ROW,
)  # fmt: skip
column_product = row(
    "matmul", lambda c, x, y: _without(c, _product(c, x, c.expand_dims(y, [1])), -1), example("2x3x4xf32", "4xf32"),
    where=lambda self, other: [self.rank > 1, other.rank == 1], name="matmul of a column", doc=_COLUMN,
)  # fmt: skip
inner_product = row(
    "matmul", lambda c, x, y: _without(c, _product(c, c.expand_dims(x, [0]), c.expand_dims(y, [1])), -2, -1),
    example("4xf32", "4xf32"), where=lambda self, other: [self.rank == 1, other.rank == 1], name="matmul of vectors",
    doc=f"{_ROW}, and {_COLUMN}",
)  # fmt: skip


@lowering("aten.addmm", examples=[
    example("4xf32", "2x3xf32", "3x4xf32"), example("2x4xf32", "2x3xf32", "3x4xf32", beta=0.5, alpha=2),
    example("2x4xsi32", "2x3xsi32", "3x4xsi32", beta=-1.5, alpha=2.5),
])  # fmt: skip
def addmm(op: OpView, c: Coreai) -> Value:
    "beta * self + alpha * (mat1 @ mat2); for integers both factors are cut toward zero"
    product = _product(c, op.mat1, op.mat2)
    bias, element = op["self"], product.element_type
    alpha, beta = (number_in(factor, element) for factor in (op.alpha, op.beta))
    if beta not in (0, 1):
        bias = c.broadcasting_mul(bias, c.constant(beta, element))
    if alpha not in (0, 1):
        product = c.broadcasting_mul(product, c.constant(alpha, element))
    if 0 not in (alpha, beta):
        return c.broadcasting_add(product, bias)
    # PyTorch ignores NaN and infinity in a term whose factor is 0
    if alpha:
        return product
    return c.broadcast_to(bias if beta else c.constant(0, element), sizes_of(c, product))


@lowering("aten.convolution", unspecified={
    "infinities and zeros": "eager's kernels differ in whether padding meets an infinite weight",
}, examples=[
    example("1x4x7x8xf32", "6x2x3x3xf32", "6xf32", [2, 1], [1, 2], [1, 1], False, [0, 0], 2),
    example("2x3x9xf32", "4x3x3xf32", None, [2], [1], [2], False, [0], 1),
    example("1x2x5x6x7xf32", "3x2x2x3x3xf32", "3xf32", [1, 2, 1], [0, 1, 1], [1, 1, 1], False, [0, 0, 0], 1),
    example("1x4x5x6xf32", "4x3x3x3xf32", "6xf32", [2, 2], [1, 0], [1, 1], True, [1, 0], 2),
    example("1x4x5xf32", "4x3x3xf32", "3xf32", [2], [1], [1], True, [1], 1),
])  # fmt: skip
def convolution(op: OpView, c: Coreai) -> Value:
    "pad, convolve, add the bias; one spatial dimension is computed as two"
    x, weight, bias = op.input, op.weight, op.bias
    spatial = x.rank - 2
    op.expect(spatial in (1, 2, 3), f"a convolution needs 1 to 3 spatial dimensions, but its input has rank {x.rank}")
    op.expect(is_float(x.element_type), "a convolution of integers is not supported; cast input and weight to float")
    op.expect(weight.rank == x.rank, "a convolution needs a batch dimension; unsqueeze the input")
    op.expect(0 not in weight.shape, "the weight of a convolution must not be empty")
    stride, padding, dilation, output_padding = (
        values * spatial if len(values) == 1 else list(values)
        for values in (op.stride, op.padding, op.dilation, op.output_padding)
    )
    groups, transposed = op.groups, op.transposed
    if spatial == 1:
        x, weight = c.expand_dims(x, [2]), c.expand_dims(weight, [2])
        stride, padding, dilation, output_padding = ([n, *v] for n, v in (
            (1, stride), (0, padding), (1, dilation), (0, output_padding)))  # fmt: skip
    if transposed:
        op.expect(
            all(o < max(s, d) for o, s, d in zip(output_padding, stride, dilation, strict=True)),
            "output_padding must be smaller than stride or dilation",
        )
        function = c.conv_transpose2d if x.rank == 4 else c.conv_transpose3d
        y = function(x, weight, stride, padding, dilation, output_padding, groups)
    else:
        op.expect(not any(output_padding), "only a transposed convolution may have output_padding")
        if any(padding):
            amounts = [0, 0, 0, 0] + [amount for value in padding for amount in (value, value)]
            x = c.pad(x, amounts, 0.0, padding_mode="constant")
        y = (c.conv2d if x.rank == 4 else c.conv3d)(x, weight, stride, dilation, groups)
    if spatial == 1:
        y = c.shrink_dims(y, [2])
    if bias is not None:
        channels = -1 if bias.shape[0] is None else bias.shape[0]
        y = c.broadcasting_add(y, c.reshape(bias, [1, channels, *([1] * spatial)]))
    return y


@formula("lower", "aten._int_mm", where=lambda self: [
    (self.shape[1] <= 1 << 15).says(
        "a product of byte matrices needs a static inner dimension of at most 32768, so that no sum can overflow"),
], examples=[
    example("17x16xsi8[-128,127]", "16x8xsi8[-128,127]"), example("17x16xui8[0,255]", "16x8xsi8[-128,127]")
])  # fmt: skip
def byte_product(c: Coreai, self: Value, mat2: Value) -> Value:
    "a product of matrices of bytes, computed with 32 bits"
    return c.broadcasting_batch_matmul(c.cast(self, "si32"), c.cast(mat2, "si32"))
