"""The `coreai` dialect as data: one row an op. Op classes, builders, verifier and docs come from here.

A row's signature is `operand: TYPES, ... -> result: TYPES, ...`. TYPES adds up families of element
types (`types.FAMILIES`: F, F8, INT, LOW, F4, C, B, IDX, UIDX) and single ones (`f32`); `[0]`, `[1]`,
`[0|1]` and `[1;3]` give the rank and, after the semicolon, the static length; no bracket means any
rank. `*` marks a variadic operand or result; ANY, TOKEN, HANDLE and IMAGE are not tensors of a family.

To add an op: add its row here, then its lowering rule in `patterns_catalog/`.

Facts: coreai-core 1.0.0b3, observed on its parser, verifier and runtime.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Slot:
    """An operand or result of an op: which types it takes."""

    name: str
    types: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    length: int | None = None
    variadic: bool = False


@dataclass(frozen=True)
class Row:
    """One op of the dialect."""

    name: str
    operands: tuple[Slot, ...]
    results: tuple[Slot, ...]
    doc: str
    same: tuple[tuple[str, ...], ...] = ()
    """Groups of operands and results that share one element type."""
    infer: str | None = None
    """Name of the function in `infer.py` that computes the result types; None: the caller states them."""
    form: str = "functional"
    """How the op prints, see `syntax.py`."""
    commutative: bool = False
    attributes: tuple[tuple[str, str], ...] = ()
    """Name (with `?` when optional) and kind (with `=value` when it has a default) of each attribute."""
    regions: tuple[str, ...] = ()
    builder: str = ""
    """Name of the authoring function, where it differs from the op's own."""
    terminator: bool = field(default=False)

    @property
    def op_name(self) -> str:
        return self.name if self.name.startswith("coreaix.") else f"coreai.{self.name}"


def _slot(text: str) -> Slot:
    name, _, types = (part.strip() for part in text.partition(":"))
    types, _, shape = types.partition("[")
    ranks, _, length = shape.rstrip("]").partition(";")
    return Slot(
        name.rstrip("*"),
        tuple(types.split("+")),
        tuple(int(rank) for rank in ranks.split("|")) if ranks else (),
        int(length) if length else None,
        name.endswith("*"),
    )


def _op(
    name: str,
    signature: str,
    *,
    doc: str,
    same: str = "",
    infer: str | None = None,
    form: str = "functional",
    commutative: bool = False,
    attributes: tuple[tuple[str, str], ...] = (),
    regions: tuple[str, ...] = (),
    builder: str = "",
) -> Row:
    operands, _, results = signature.partition("->")
    slots = [tuple(_slot(part) for part in side.split(",") if part.strip()) for side in (operands, results)]
    return Row(
        name,
        slots[0],
        slots[1],
        doc,
        tuple(tuple(group.split()) for group in same.split(";") if group.strip()),
        infer,
        form,
        commutative,
        attributes,
        regions,
        builder or name.rpartition(".")[2],
        name in ("output", "yield", "condition"),
    )


# fmt: off
ROWS: tuple[Row, ...] = (
    # element-wise, one operand
    _op("abs", "x: F+INT -> output: F+INT", same="x output", infer="like_first", form="unary", builder="abs_", doc="element-wise magnitude; ints wrap on MIN"),
    _op("acos", "x: F -> output: F", same="x output", infer="like_first", form="unary", doc="element-wise arc cosine (NaN outside [-1,1])"),
    _op("acosh", "x: F -> output: F", same="x output", infer="like_first", form="unary", doc="element-wise inverse hyperbolic cosine (NaN below 1)"),
    _op("asin", "x: F -> output: F", same="x output", infer="like_first", form="unary", doc="element-wise arc sine"),
    _op("asinh", "x: F -> output: F", same="x output", infer="like_first", form="unary", doc="element-wise inverse hyperbolic sine"),
    _op("atan", "x: F -> output: F", same="x output", infer="like_first", form="unary", doc="element-wise arc tangent"),
    _op("atanh", "x: F -> output: F", same="x output", infer="like_first", form="unary", doc="element-wise inverse hyperbolic tangent"),
    _op("cos", "x: F+C -> output: F+C", same="x output", infer="like_first", form="unary", doc="element-wise cosine"),
    _op("cosh", "x: F+C -> output: F+C", same="x output", infer="like_first", form="unary", doc="element-wise hyperbolic cosine"),
    _op("erf", "x: F -> output: F", same="x output", infer="like_first", form="unary", doc="element-wise Gauss error function"),
    _op("exp", "x: F+F8+C -> output: F+F8+C", same="x output", infer="like_first", form="unary", doc="element-wise exponential"),
    _op("gelu", "input: F -> output: F", same="input output", infer="like_first", form="gelu", attributes=(('approximate?', 'ApproximateAttr=none'),), doc="Gaussian error linear unit: exact, tanh or sigmoid approximation by attribute"),
    _op("log", "x: F+C -> output: F+C", same="x output", infer="like_first", form="unary", doc="element-wise natural logarithm"),
    _op("not", "x: B -> result: B", same="x result", infer="like_first", form="unary", builder="not_", doc="logical negation of a bool tensor"),
    _op("relu", "input: F+F8+INT -> output: F+F8+INT", same="input output", infer="like_first", doc="element-wise max(x, 0)"),
    _op("round", "x: F+INT -> output: F+INT", same="x output", infer="like_first", form="unary", builder="round_", doc="round to nearest, halves to even"),
    _op("rsqrt", "x: F -> output: F", same="x output", infer="like_first", form="unary", doc="element-wise 1/sqrt(x)"),
    _op("sigmoid", "input: F+F8+C -> output: F+F8+C", same="input output", infer="like_first", doc="element-wise logistic function"),
    _op("silu", "input: F+F8+C -> output: F+F8+C", same="input output", infer="like_first", doc="element-wise x*sigmoid(x)"),
    _op("sin", "x: F+C -> output: F+C", same="x output", infer="like_first", form="unary", doc="element-wise sine"),
    _op("sinh", "x: F+F8+C -> output: F+F8+C", same="x output", infer="like_first", form="unary", doc="element-wise hyperbolic sine"),
    _op("sqrt", "x: F -> output: F", same="x output", infer="like_first", form="unary", doc="element-wise square root"),
    _op("tan", "x: F+C -> output: F+C", same="x output", infer="like_first", form="unary", doc="element-wise tangent"),
    _op("tanh", "x: F -> output: F", same="x output", infer="like_first", form="unary", doc="element-wise hyperbolic tangent"),
    _op("cast", "input: F+F8+INT+LOW+F4+C+B -> output: F+F8+INT+LOW+F4+C+B", infer="cast", form="cast", doc="element type conversion (float->int truncates and saturates in practice); also refines or relaxes dynamic dims"),
    # element-wise, operands of one shape
    _op("add", "x: F+F8+INT+C+B, y: F+F8+INT+C+B -> output: F+F8+INT+C+B", same="x y output", infer="same_shape", commutative=True, doc="element-wise sum of two same-shape tensors; ints wrap, bool acts as OR"),
    _op("and", "x: B, y: B -> output: B", same="x y output", infer="same_shape", commutative=True, builder="and_", doc="logical AND of two bool tensors"),
    _op("bitwise_and", "x: INT+B, y: INT+B -> output: INT+B", same="x y output", infer="same_shape", commutative=True, doc="bitwise AND of integer or bool tensors"),
    _op("bitwise_or", "x: INT+B, y: INT+B -> output: INT+B", same="x y output", infer="same_shape", commutative=True, doc="bitwise OR of integer or bool tensors"),
    _op("bitwise_xor", "x: INT+B, y: INT+B -> output: INT+B", same="x y output", infer="same_shape", commutative=True, doc="bitwise XOR of integer or bool tensors"),
    _op("divide", "x: F+F8+INT+C, y: F+F8+INT+C -> output: F+F8+INT+C", same="x y output", infer="same_shape", doc="element-wise division; integer form truncates toward zero"),
    _op("equal", "input: F+INT+C+B, other: F+INT+C+B -> output: B", same="input other", infer="same_shape_bool", commutative=True, doc="element-wise ==, bool result"),
    _op("floor_divide", "x: F+INT, y: F+INT -> output: F+INT", same="x y output", infer="same_shape", doc="element-wise division rounded toward minus infinity"),
    _op("greater", "input: F+F8+INT, other: F+F8+INT -> output: B", same="input other", infer="same_shape_bool", doc="element-wise strict >, bool result"),
    _op("maximum", "x: F+F8+INT, y: F+F8+INT -> output: F+F8+INT", same="x y output", infer="same_shape", commutative=True, doc="element-wise larger of two, NaN propagates"),
    _op("minimum", "x: F+F8+INT, y: F+F8+INT -> output: F+F8+INT", same="x y output", infer="same_shape", commutative=True, doc="element-wise smaller of two, NaN propagates"),
    _op("modulo", "x: F+INT, y: F+INT -> output: F+INT", same="x y output", infer="same_shape", doc="element-wise remainder with the sign of the dividend (C fmod / %)"),
    _op("mul", "x: F+F8+INT+C+B, y: F+F8+INT+C+B -> output: F+F8+INT+C+B", same="x y output", infer="same_shape", commutative=True, doc="element-wise product; ints wrap, bool acts as AND"),
    _op("not_equal", "input: F+INT+C+B, other: F+INT+C+B -> output: B", same="input other", infer="same_shape_bool", commutative=True, doc="element-wise !=, bool result"),
    _op("or", "x: B, y: B -> output: B", same="x y output", infer="same_shape", commutative=True, builder="or_", doc="logical OR of two bool tensors"),
    _op("pow", "x: F+INT+C, y: F+INT+C -> output: F+INT+C", same="x y output", infer="same_shape", builder="pow_", doc="element-wise power"),
    _op("sub", "x: F+F8+INT+C, y: F+F8+INT+C -> output: F+F8+INT+C", same="x y output", infer="same_shape", doc="element-wise difference of two same-shape tensors; ints wrap"),
    _op("where", "condition: B, a: F+F8+INT+LOW+F4+C+B, b: F+F8+INT+LOW+F4+C+B -> result: F+F8+INT+LOW+F4+C+B", same="a b result", infer="where", doc="element-wise select by a bool tensor of the same shape"),
    _op("xor", "x: B, y: B -> output: B", same="x y output", infer="same_shape", commutative=True, builder="xor_", doc="logical exclusive OR of two bool tensors"),
    # element-wise, operands broadcast as in numpy
    _op("decomposable.broadcasting_add", "input: F+F8+INT+C+B, other: F+F8+INT+C+B -> output: F+F8+INT+C+B", same="input other output", infer="broadcast", commutative=True, doc="numpy-style broadcasting form of addition"),
    _op("decomposable.broadcasting_and", "input: B, other: B -> output: B", same="input other output", infer="broadcast", commutative=True, doc="numpy-style broadcasting form of logical AND"),
    _op("decomposable.broadcasting_batch_matmul", "x: F+F8+INT+C, y: F+F8+INT+C -> output: F+F8+INT+C", same="x y output", infer="matmul", doc="numpy-style broadcasting form of matrix product (batch dims broadcast)"),
    _op("decomposable.broadcasting_bitwise_and", "input: INT+B, other: INT+B -> output: INT+B", same="input other output", infer="broadcast", commutative=True, doc="numpy-style broadcasting form of bitwise AND"),
    _op("decomposable.broadcasting_bitwise_or", "input: INT+B, other: INT+B -> output: INT+B", same="input other output", infer="broadcast", commutative=True, doc="numpy-style broadcasting form of bitwise OR"),
    _op("decomposable.broadcasting_bitwise_xor", "input: INT+B, other: INT+B -> output: INT+B", same="input other output", infer="broadcast", commutative=True, doc="numpy-style broadcasting form of bitwise XOR"),
    _op("decomposable.broadcasting_divide", "input: F+F8+INT+C, other: F+F8+INT+C -> output: F+F8+INT+C", same="input other output", infer="broadcast", doc="numpy-style broadcasting form of division"),
    _op("decomposable.broadcasting_equal", "input: F+INT+C+B, other: F+INT+C+B -> output: B", same="input other", infer="broadcast_bool", commutative=True, doc="numpy-style broadcasting form of =="),
    _op("decomposable.broadcasting_floor_divide", "input: F+INT, other: F+INT -> output: F+INT", same="input other output", infer="broadcast", doc="numpy-style broadcasting form of floor division"),
    _op("decomposable.broadcasting_greater", "input: F+INT+B, other: F+INT+B -> output: B", same="input other", infer="broadcast_bool", doc="numpy-style broadcasting form of >"),
    _op("decomposable.broadcasting_maximum", "input: F+F8+INT, other: F+F8+INT -> output: F+F8+INT", same="input other output", infer="broadcast", commutative=True, doc="numpy-style broadcasting form of maximum"),
    _op("decomposable.broadcasting_minimum", "input: F+F8+INT, other: F+F8+INT -> output: F+F8+INT", same="input other output", infer="broadcast", commutative=True, doc="numpy-style broadcasting form of minimum"),
    _op("decomposable.broadcasting_modulo", "input: F+INT, other: F+INT -> output: F+INT", same="input other output", infer="broadcast", doc="numpy-style broadcasting form of remainder"),
    _op("decomposable.broadcasting_mul", "input: F+F8+INT+C+B, other: F+F8+INT+C+B -> output: F+F8+INT+C+B", same="input other output", infer="broadcast", commutative=True, doc="numpy-style broadcasting form of product"),
    _op("decomposable.broadcasting_not_equal", "input: F+INT+C+B, other: F+INT+C+B -> output: B", same="input other", infer="broadcast_bool", commutative=True, doc="numpy-style broadcasting form of !="),
    _op("decomposable.broadcasting_or", "input: B, other: B -> output: B", same="input other output", infer="broadcast", commutative=True, doc="numpy-style broadcasting form of logical OR"),
    _op("decomposable.broadcasting_pow", "input: F+INT, other: F+INT -> output: F+F8+INT+C+B", same="input other output", infer="broadcast", doc="numpy-style broadcasting form of power"),
    _op("decomposable.broadcasting_sub", "input: F+F8+INT+C, other: F+F8+INT+C -> output: F+F8+INT+C", same="input other output", infer="broadcast", doc="numpy-style broadcasting form of subtraction"),
    _op("decomposable.broadcasting_where", "condition: B, a: F+F8+INT+LOW+F4+C+B, b: F+F8+INT+LOW+F4+C+B -> results_: F+F8+INT+LOW+F4+C+B", same="a b results_", infer="broadcast_where", doc="numpy-style broadcasting form of three-operand select"),
    _op("decomposable.broadcasting_xor", "input: B, other: B -> output: B", same="input other output", infer="broadcast", commutative=True, doc="numpy-style broadcasting form of logical XOR"),
    # matrix products and convolutions
    _op("batch_matmul", "x: F+F8+INT+C, y: F+F8+INT+C -> output: F+F8+INT+C", same="x y output", infer="matmul", doc="matrix product of the last two dims; all leading dims must be equal, no broadcasting"),
    _op("conv2d", "input: F+F8+C[4], weight: F+F8+C[4], stride: UIDX[1], dilation: UIDX[1], groups: UIDX[0] -> output: F+F8+C", same="input weight output", infer="conv", doc="2-D convolution NCHW x OIHW, no padding operand (use pad first), grouped and dilated"),
    _op("conv3d", "input: F+F8+C[5], weight: F+F8+C[5], stride: UIDX[1;3], dilation: UIDX[1;3], groups: UIDX[0] -> output: F+F8+C", same="input weight output", infer="conv", doc="3-D convolution NCDHW x OIDHW, no padding operand, grouped and dilated"),
    _op("conv_transpose2d", "input: F+F8+C[4], weight: F+F8+C[4], stride: UIDX[1], padding: UIDX[1], dilation: UIDX[1], output_pad: UIDX[1], groups: UIDX[0] -> output: F+F8+C", same="input weight output", infer="conv_transpose", doc="transposed 2-D convolution, weight layout (Cin, Cout/groups, kh, kw), padding and output padding one value per spatial dim"),
    _op("conv_transpose3d", "input: F+F8+C[5], weight: F+F8+C[5], stride: UIDX[1;3], padding: UIDX[1;3], dilation: UIDX[1;3], output_pad: UIDX[1;3], groups: UIDX[0] -> output: F+F8+C", same="input weight output", infer="conv_transpose", doc="transposed 3-D convolution, weight layout (Cin, Cout/groups, kd, kh, kw)"),
    # reductions, sorting, scans
    _op("all", "input: B, axes: IDX[1] -> result: B", same="input result", infer="reduce", builder="all_", doc="logical AND over the listed axes, reduced dims kept as 1"),
    _op("any", "input: B, axes: IDX[1] -> result: B", same="input result", infer="reduce", builder="any_", doc="logical OR over the listed axes, reduced dims kept as 1"),
    _op("argmax", "input: F+F8+INT, axis: IDX[0] -> output: UIDX", infer="argmax", doc="index of the largest element along one axis, dim kept as 1, first of ties"),
    _op("argsort", "input: F+INT, dim: IDX[0], descending: B[0], stable: B[0] -> result: IDX", infer="argsort", doc="positions that would sort the input along one axis"),
    _op("reduce", "input: F+F8+INT+C+B, axes: IDX[1], init_value: F+F8+INT+C+B[0] -> output: F+F8+INT+C+B", same="input init_value output", infer="reduce", form="reduce", regions=('reduction',), doc="generic reduction with a combiner region (cannot be reloaded from an asset in b2/b3)"),
    _op("reduce_index", "input: F+F8+INT, axis: IDX[0], init_value: F+F8+INT[0], init_index: UIDX[0] -> output: UIDX", same="input init_value", infer="reduce_index", form="reduce_index", regions=('reduction',), doc="generic arg-reduction with a comparison region (cannot be reloaded from an asset in b2/b3)"),
    _op("reduce_max", "input: F+F8+INT, axes: IDX[1] -> output: F+F8+INT", same="input output", infer="reduce", doc="maximum over the listed axes, dims kept as 1"),
    _op("reduce_mean", "input: F+F8, axes: IDX[1] -> output: F+F8", same="input output", infer="reduce", doc="mean over the listed axes, float only, dims kept as 1"),
    _op("reduce_min", "input: F+F8+INT, axes: IDX[1] -> output: F+F8+INT", same="input output", infer="reduce", doc="minimum over the listed axes, dims kept as 1"),
    _op("reduce_product", "input: F+F8+INT, axes: IDX[1] -> output: F+F8+INT", same="input output", infer="reduce", doc="product over the listed axes, dims kept as 1"),
    _op("reduce_sum", "input: F+F8+INT, axes: IDX[1] -> output: F+F8+INT", same="input output", infer="reduce", doc="sum over the listed axes, dims kept as 1"),
    _op("scan", "input: F+F8+INT, axis: UIDX[0], reverse: B[0] -> result: F+F8+INT", same="input result", infer="like_first", form="scan", attributes=(('scan_op', 'ScanCombinerEnum'),), doc="inclusive prefix sum/product/min/max along an axis, optionally from the end"),
    _op("softmax", "input: F+F8, axis: IDX[0] -> output: F+F8", same="input output", infer="like_first", doc="normalised exponential along one axis"),
    _op("sort", "input: F+INT, dim: IDX[0], descending: B[0], stable: B[0] -> result: F+INT", same="input result", infer="like_first", doc="sort values along one axis"),
    _op("non_zero", "input: F+F8+INT+B -> result: IDX[2]", infer="non_zero", form="unary", doc="indices of non-zero elements, one row per element (data-dependent row count)"),
    # pooling and resizing
    _op("max_pool_2d", "input: F+F8+INT[4], kernel_size: UIDX[1;2], stride: UIDX[1;2], dilation: UIDX[1;2], ceil_mode: B[0] -> output: F+F8+INT[4]", same="input output", infer="pool", builder="maxpool2d", doc="2-D max pooling NCHW without padding, floor or ceil output size"),
    _op("max_pool_3d", "input: F+F8+INT[5], kernel_size: UIDX[1;3], stride: UIDX[1;3], dilation: UIDX[1;3], ceil_mode: B[0] -> output: F+F8+INT[5]", same="input output", infer="pool", builder="maxpool3d", doc="3-D max pooling NCDHW without padding, floor or ceil output size"),
    _op("sum_pool_2d", "input: F+F8+INT[4], kernel_size: UIDX[1;2], strides: UIDX[1;2], dilation: UIDX[1;2] -> output: F+F8+INT[4]", same="input output", infer="pool", builder="sumpool2d", doc="2-D windowed sum NCHW without padding, floor output size"),
    _op("sum_pool_3d", "input: F+F8+INT[5], kernel_size: UIDX[1;3], strides: UIDX[1;3], dilation: UIDX[1;3] -> output: F+F8+INT[5]", same="input output", infer="pool", builder="sumpool3d", doc="3-D windowed sum NCDHW without padding, floor output size"),
    _op("interpolate", "input: F+F8+INT, output_shape: IDX[1], scale: f32[1], offset: f32[1] -> result: F+F8+INT", same="input result", infer="interpolate", form="interpolate", attributes=(('interpolation_mode', 'InterpolationModeAttr'),), doc="resize every dim with given output shape, scale and offset (linear or nearest)"),
    _op("interpolate_coordinates", "input: F+F8+INT, coords: f32[2] -> result: F+F8+INT[1]", same="input result", infer="interpolate_coordinates", form="interpolate_coordinates", attributes=(('interpolation_mode', 'InterpolationModeAttr'),), doc="sample a K-d field at N absolute coordinates (linear or nearest)"),
    # shapes
    _op("broadcast_in_dims", "input: F+F8+INT+LOW+F4+C+B, dim_sizes: UIDX[1], axes: IDX[1] -> output: F+F8+INT+LOW+F4+C+B", same="input output", infer="broadcast_in_dims", doc="repeat size-1 dims of the input to given sizes, rank unchanged"),
    _op("broadcast_shapes", "shape_1: UIDX[1], shape_2: UIDX[1] -> output: UIDX[1]", infer="broadcast_shapes", doc="numpy broadcast of two shape vectors, as a shape vector"),
    _op("broadcast_to", "input: F+F8+INT+LOW+F4+C+B, shape: UIDX[1] -> output: F+F8+INT+LOW+F4+C+B", same="input output", infer="broadcast_to", doc="numpy broadcast of a tensor to a target shape (may add leading dims)"),
    _op("concat", "dimension: IDX[0], inputs*: F+F8+INT+LOW+F4+C+B -> result: F+F8+INT+LOW+F4+C+B", same="inputs result", infer="concat", doc="join tensors along one axis; the axis is operand 0"),
    _op("expand_dims", "input: F+F8+INT+LOW+F4+C+B, axes: IDX[1] -> output: F+F8+INT+LOW+F4+C+B", same="input output", infer="expand_dims", form="to", doc="insert size-1 dims at positions counted in the output shape"),
    _op("get_shape", "input: F+F8+INT+LOW+F4+C+B -> shape: UIDX[1]", infer="get_shape", form="unary", doc="shape of the input as a ui32 vector; folded when static"),
    _op("pad", "input: F+F8+INT+C+B, padding: UIDX[1], padding_value: F+F8+INT+C+B[0] -> result: F+F8+INT+C+B", same="input padding_value result", infer="pad", form="pad", attributes=(('padding_mode', 'PaddingModeAttr'),), doc="pad every dim before/after: constant, replicate, reflect, symmetric or circular"),
    _op("reshape", "input: F+F8+INT+LOW+F4+C+B, new_shape: IDX+UIDX[1] -> output: F+F8+INT+LOW+F4+C+B", same="input output", infer="reshape", doc="new shape, same elements; signed shape vector may hold one -1"),
    _op("reverse", "input: F+F8+INT+LOW+F4+C+B, dims: IDX[1] -> result: F+F8+INT+LOW+F4+C+B", same="input result", infer="like_first", doc="flip along the listed axes"),
    _op("shrink_dims", "input: F+F8+INT+LOW+F4+C+B, axes: IDX[1] -> output: F+F8+INT+LOW+F4+C+B", same="input output", infer="shrink_dims", form="to", doc="drop size-1 dims"),
    _op("slice", "input: F+F8+INT+LOW+F4+C+B, start_indices: IDX[1], end_indices: IDX[1], strides: IDX[1] -> output: F+F8+INT+LOW+F4+C+B", same="input output", infer="slice", builder="slice_", doc="strided sub-tensor start:end:stride per dim, indices wrap once and clamp"),
    _op("slice_update", "input: F+F8+INT+LOW+F4+C+B, start_indices: IDX[1], end_indices: IDX[1], strides: IDX[1], update: F+F8+INT+LOW+F4+C+B -> output: F+F8+INT+LOW+F4+C+B", same="input update output", infer="like_first", form="slice_update", doc="copy of the input with a strided region replaced"),
    _op("split", "input: F+F8+INT+LOW+F4+C+B, split_size_or_sections: UIDX[0|1], dim: IDX[0] -> results_*: F+F8+INT+LOW+F4+C+B", same="input results_", infer="split", doc="cut along one axis into equal chunks (0-D size) or listed sections (1-D)"),
    _op("tile", "input: F+F8+INT+C+B, dims: UIDX[1] -> output: F+F8+INT+C+B", same="input output", infer="tile", doc="repeat the tensor per dim; counts right-aligned"),
    _op("transpose", "input: F+F8+INT+LOW+F4+C+B, permutation: UIDX[1] -> output: F+F8+INT+LOW+F4+C+B", same="input output", infer="transpose", doc="permute dims by an unsigned permutation vector"),
    # indexing
    _op("gather_along_axis", "input: F+F8+INT+LOW+C+B, indices: IDX, axis: IDX[0] -> output: F+F8+INT+LOW+C+B", same="input output", infer="gather_along_axis", form="{} at {} along {} to", doc="pick elements along one axis by a same-rank index tensor (torch.gather)"),
    _op("gather_nd", "input: F+F8+INT+LOW+C+B, indices: IDX -> output: F+F8+INT+LOW+C+B", same="input output", infer="gather_nd", form="{} at {} to", doc="pick slices by multi-dimensional index vectors in the last dim of indices"),
    _op("scatter_along_axis", "input: F+F8+INT+LOW+C+B, indices: IDX, updates: F+F8+INT+LOW+C+B, axis: IDX[0] -> output: F+F8+INT+LOW+C+B", same="input updates output", infer="like_first", form="scatter_along_axis", attributes=(('scatter_mode?', 'ScatterModeAttr=update'),), doc="write or combine updates along one axis by a same-rank index tensor"),
    _op("scatter_nd", "input: F+F8+INT+LOW+C+B, indices: IDX, updates: F+F8+INT+LOW+C+B -> output: F+F8+INT+LOW+C+B", same="input updates output", infer="like_first", form="scatter_nd", regions=('update_fn',), doc="overwrite slices chosen by multi-dimensional index vectors (region must be a lone yield; always behaves as replace)"),
    # constants and ranges
    _op("constant", "-> result: ANY", infer="constant", form="constant", attributes=(('value', 'TypedAttrInterface'),), doc="materialise a dense / splat / resource attribute as a tensor"),
    _op("range", "start: F+INT[0], stop: F+INT[0], step: F+INT[0] -> output: F+INT[1]", same="start stop step output", infer="range", builder="range_", doc="evenly spaced values start..stop (exclusive) with step"),
    # complex numbers
    _op("create_complex", "real: f32, imaginary: f32 -> result: C", infer="create_complex", doc="complex tensor from real and imaginary parts"),
    _op("imaginary_part", "input: C -> result: F+F8", infer="complex_part", doc="imaginary part of a complex tensor"),
    _op("real_part", "input: C -> real: F+F8", infer="complex_part", doc="real part of a complex tensor"),
    # quantised and sparse data
    _op("asymmetric_quantization_statistics", "input: F+F8+INT, range: F+F8+INT+si4+ui4[1], axis: IDX[0] -> scale: F+F8+INT+si4+ui4[1], zero_point: F+F8+INT+si4+ui4[1]", infer="quantization_statistics", builder="asymmetric_quant_stats", doc="per-channel affine scale and zero point from min/max along an axis (range forced to contain 0)"),
    _op("symmetric_quantization_statistics", "input: F+F8+INT, range: F+F8+INT+si4+ui4[1], axis: IDX[0] -> scale: F+F8+INT+si4+ui4[1]", infer="quantization_statistics", builder="symmetric_quant_stats", doc="per-channel symmetric scale from the largest magnitude along an axis"),
    _op("blockwise_shift_scale", "data: F8+LOW+F4+bf16+f16+f32+si16+si8+ui16+ui8, scale: F+F8+F4+si2+ui2, offset1: F+F8+INT+LOW+F4, offset2: F4+bf16+f16+f32 -> output: bf16+f16+f32", same="offset2 output", infer="like_offset2", doc="block-wise dequantisation: scale*(data-offset1)+offset2, block size implied by shape ratio data/scale"),
    _op("dequantize", "input: F8+f4E2M1FN+si4+si8+ui4+ui8, scale: bf16+f16+f32+f8E8M0FNU[0|1], offset1: F8+f4E2M1FN+si4+si8+ui4+ui8[0|1], offset2: bf16+f16+f32[0|1], axis: IDX[0|1] -> output: bf16+f16+f32", same="input offset1; offset2 output", infer="like_offset2", doc="per-tensor or per-axis dequantisation (input-offset1)*scale+offset2"),
    _op("quantize", "input: bf16+f16+f32+si16+si32+si64+ui16+ui32+ui64, scale: F8+F4+bf16+f16+f32[0|1], offset1: F8+f4E2M1FN+si4+si8+ui4+ui8[0|1], offset2: bf16+f16+f32+si16+si32+si64+ui16+ui32+ui64[0|1], axis: IDX[0|1] -> output: F8+f4E2M1FN+si4+si8+ui4+ui8", same="offset1 output", infer="like_offset1", doc="per-tensor or per-axis quantisation to the element type of offset1"),
    _op("lut_to_dense", "indices: ui1+ui2+ui3+ui4+ui6+ui8, lut: F+F8+INT, axis: si16[0] -> result: F+F8+INT", same="lut result", infer="lut", doc="depalettise: replace unsigned n-bit indices by entries of a look-up table (per-block tables, vector entries)"),
    _op("lut_to_sparse_with_bitmask", "indices: ui1+ui2+ui3+ui4+ui6+ui8, lut: F8+bf16+f16+f32+si8+ui8, axis: si16[0] -> result: F8+bf16+f16+f32+si8+ui8", same="lut result", doc="depalettise only the stored elements of a bitmask-sparse tensor"),
    _op("build_sparse_with_bitmask", "values: F+F8+INT+B+ui1+ui2+ui3+ui4+ui6[1], bitmask: ui1 -> result: F+F8+INT+B+ui1+ui2+ui3+ui4+ui6", same="values result", doc="bitmask-sparse tensor from stored values and a ui1 position mask"),
    _op("sparse_with_bitmask_to_dense", "input: F+F8+INT+LOW+B+ui1+ui3+ui6 -> result: F+F8+INT+LOW+B+ui1+ui3+ui6", same="input result", infer="sparse_to_dense", form="unary", doc="dense tensor from a bitmask-sparse one, zeros elsewhere"),
    # graphs and control flow
    _op("graph", "->", form="graph", attributes=(('sym_name', 'SymbolNameAttr'), ('function_type', 'TypeAttrOf<FunctionType>'), ('param_decls', 'ParamDeclArrayAttr'), ('priv?', 'UnitAttr'), ('externalize?', 'UnitAttr'), ('no_inline?', 'UnitAttr'), ('composite_decl?', 'CompositeDeclarationAttr'), ('arg_attrs?', 'DictArrayAttr'), ('res_attrs?', 'DictArrayAttr')), regions=('bodyRegion',), doc="top-level or private function-like graph; entry points are the non-private ones"),
    _op("output", "operands_*: ANY ->", form="output", doc="terminator of a graph: its results"),
    _op("invoke", "operands_*: ANY -> result*: ANY", form="invoke", attributes=(('callee', 'TypedAttrInterface'), ('arg_attrs?', 'DictArrayAttr'), ('res_attrs?', 'DictArrayAttr')), doc="call another graph by symbol; types must match exactly"),
    _op("isolated_group", "inputs*: ANY -> outputs*: ANY", form="isolated_group", attributes=(('delegate_id', 'StrAttr'), ('arg_attrs?', 'DictArrayAttr'), ('res_attrs?', 'DictArrayAttr')), regions=('group',), doc="region to be run by a named delegate; nothing captured from outside"),
    _op("delegate", "inputs*: ANY -> outputs*: ANY", form="delegate", attributes=(('delegate_id', 'StrAttr'), ('resource', 'DenseI8ArrayAttr'), ('arg_attrs?', 'DictArrayAttr'), ('res_attrs?', 'DictArrayAttr'), ('lifecycle?', 'UDML_LifecyclePhaseAttr'), ('delegate_attrs?', 'DictionaryAttr')), doc="opaque pre-compiled payload run by a named backend (compiler output, not for authoring)"),
    _op("if", "condition: B[0] -> results_*: ANY", form="if", regions=('thenRegion', 'elseRegion'), builder="if_", doc="two-way branch on a scalar bool; regions may capture outer values"),
    _op("while", "inits*: ANY -> results_*: ANY", form="while", regions=('before', 'after'), builder="while_", doc="loop: before-region decides, after-region computes the next values"),
    _op("condition", "condition: B[0], args*: ANY ->", form="condition", doc="terminator of the before-region of a while: continue flag plus values to forward"),
    _op("yield", "args*: ANY ->", form="yield", builder="yield_", doc="terminator handing values back to the enclosing op"),
    # state
    _op("create_token", "-> token: TOKEN", infer="token", form="create_token", doc="root of an ordering chain for reads/writes of a state handle"),
    _op("join_token", "in_token: TOKEN, rest_tokens*: TOKEN -> token: TOKEN", infer="token", doc="merge several ordering tokens of one handle"),
    _op("read_handle", "handle: HANDLE, in_token: TOKEN -> output: ANY, out_token: TOKEN", infer="read_handle", form="read_handle", doc="read the current value of a state handle, ordered by tokens"),
    _op("write_handle", "handle: HANDLE, data: ANY, in_token: TOKEN -> out_token: TOKEN", infer="token", form="write_handle", doc="store a value in a state handle, ordered by tokens"),
    # images, targets, kernels
    _op("image_to_tensor", "source: IMAGE -> result: ui8", infer="image_to_tensor", form="image_to_tensor", doc="decode a !coreai.image into a ui8 tensor"),
    _op("tensor_to_image", "source: ui8 -> result: IMAGE", form="tensor_to_image", doc="view a ui8 tensor as a !coreai.image"),
    _op("target_spec", "->", form="target_spec", attributes=(('spec', 'COREAI_TargetSpecAttr'), ('compilation?', 'CompilationAttr=full')), doc="module-level record of target triple/soc/options and compilation mode"),
    _op("metal4_kernel", "kernel_args*: ANY, threads_per_grid: UIDX[1;3], threads_per_thread_group: UIDX[1;3], result_shapes*: ui32[1] -> outputs*: ANY", form="metal4_kernel", attributes=(('kernel_source', 'StrAttr'), ('kernel_name', 'StrAttr')), doc="call of a user Metal shader given as source text (GPU only)"),
)
COREAIX_ROWS: tuple[Row, ...] = (
    # between plain tensors and those laid out for custom kernels; the caller states the encoded type
    _op("coreaix.copy_with_constraints", "source: ANY -> result: ANY", form="call", doc="copy of a tensor into a memory layout, such as a Metal buffer"),
    _op("coreaix.copy_discarding_constraints", "source: ANY -> result: ANY", form="call", doc="plain tensor from one that is laid out for a kernel"),
    _op("coreaix.cast", "source: ANY -> result: ANY", form="call", builder="coreaix_cast", doc="element type conversion of a laid-out tensor (cannot be saved in b3)"),
    _op("coreaix.view", "source: ANY -> result: ANY", form="call", doc="laid-out tensor in another shape (cannot be saved in b3)"),
)
"""The ops of the `coreaix` dialect, which custom Metal kernels need."""
# fmt: on

ROW_BY_NAME: dict[str, Row] = {row.op_name: row for row in (*ROWS, *COREAIX_ROWS)}
