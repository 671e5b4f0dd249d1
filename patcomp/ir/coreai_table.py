"""The `coreai` dialect as data: one row an op. Op classes, text, authoring functions and verifier come from here.

`patcomp.ir.rows` explains how a row reads. To add an op, add its row here and its meaning,
`@implements("coreai.NAME")`, in `patcomp/evaluate`.

Facts: coreai-core 1.0.0b3, observed on its parser, verifier and runtime.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from patcomp.ir.rows import Row, op
from patcomp.ir.traits import Activation, RepeatingView, Repetition, Reshape, Unfolded, View

_unary = partial(op, infer="like_first", form="unary", exact="to save")
_binary = partial(op, infer="same_shape", exact="to save")
_comparison = partial(op, infer="same_shape")
_reduction = partial(op, infer="reduce")
_BRACED = " {operands} {properties} : {types} -> {results}{ attributes}"


def _broadcasting(name: str, doc: str, result: str = "T", **facts: Any) -> Row:
    """The twin of a binary op whose operands broadcast as in numpy."""
    signature = f"decomposable.broadcasting_{name}(input: T, other: T) -> output: {result}"
    return op(signature, f"numpy-style broadcasting form of {doc}", infer="broadcast", **facts)


# fmt: off
ROWS: tuple[Row, ...] = (
    # element-wise, one operand
    _unary("abs[T: F+INT](x: T) -> output: T", "element-wise magnitude; ints wrap on MIN", builder="abs_"),
    _unary("acos[T: F](x: T) -> output: T", "element-wise arc cosine (NaN outside [-1,1])"),
    _unary("acosh[T: F](x: T) -> output: T", "element-wise inverse hyperbolic cosine (NaN below 1)"),
    _unary("asin[T: F](x: T) -> output: T", "element-wise arc sine"),
    _unary("asinh[T: F](x: T) -> output: T", "element-wise inverse hyperbolic sine"),
    _unary("atan[T: F](x: T) -> output: T", "element-wise arc tangent"),
    _unary("atanh[T: F](x: T) -> output: T", "element-wise inverse hyperbolic tangent"),
    _unary("cos[T: F+C](x: T) -> output: T", "element-wise cosine"),
    _unary("cosh[T: F+C](x: T) -> output: T", "element-wise hyperbolic cosine"),
    _unary("erf[T: F](x: T) -> output: T", "element-wise Gauss error function"),
    _unary("exp[T: F+F8+C](x: T) -> output: T", "element-wise exponential"),
    op("gelu[T: F](input: T) -> output: T",
        "Gaussian error linear unit: exact, tanh or sigmoid approximation by attribute",
        infer="like_first", trait=Activation, form="unary", properties="approximate?: none|tanh|sigmoid = none"),
    _unary("log[T: F+C](x: T) -> output: T", "element-wise natural logarithm"),
    op("not[T: B](x: T) -> result: T",
        "logical negation of a bool tensor", infer="like_first", form="unary", exact="always", builder="not_"),
    op("relu[T: F+F8+INT](input: T) -> output: T", "element-wise max(x, 0)",
        infer="like_first", trait=Activation, exact="to save"),
    _unary("round[T: F+INT](x: T) -> output: T", "round to nearest, halves to even", builder="round_"),
    _unary("rsqrt[T: F](x: T) -> output: T", "element-wise 1/sqrt(x)"),
    op("sigmoid[T: F+F8+C](input: T) -> output: T", "element-wise logistic function",
        infer="like_first", trait=Activation),
    op("silu[T: F+F8+C](input: T) -> output: T", "element-wise x*sigmoid(x)",
        infer="like_first", trait=Activation, exact="to save"),
    _unary("sin[T: F+C](x: T) -> output: T", "element-wise sine"),
    _unary("sinh[T: F+F8+C](x: T) -> output: T", "element-wise hyperbolic sine"),
    _unary("sqrt[T: F](x: T) -> output: T", "element-wise square root"),
    _unary("tan[T: F+C](x: T) -> output: T", "element-wise tangent"),
    _unary("tanh[T: F](x: T) -> output: T", "element-wise hyperbolic tangent", trait=Activation),
    op("cast(input: ALL) -> output: ALL",
        "element type conversion (float->int truncates and saturates in practice); also refines or relaxes dynamic "
        "dims",
        infer="cast", form=" {operands} : {type} to {result}{ attributes}"),
    # element-wise, operands of one shape
    _binary("add[T: F+F8+INT+C+B](x: T, y: T) -> output: T",
        "element-wise sum of two same-shape tensors; ints wrap, bool acts as OR", commutative=True),
    _binary("and[T: B](x: T, y: T) -> output: T", "logical AND of two bool tensors", commutative=True, builder="and_"),
    _binary("bitwise_and[T: INT+B](x: T, y: T) -> output: T",
        "bitwise AND of integer or bool tensors", commutative=True),
    _binary("bitwise_or[T: INT+B](x: T, y: T) -> output: T", "bitwise OR of integer or bool tensors", commutative=True),
    _binary("bitwise_xor[T: INT+B](x: T, y: T) -> output: T",
        "bitwise XOR of integer or bool tensors", commutative=True),
    _binary("divide[T: F+F8+INT+C](x: T, y: T) -> output: T",
        "element-wise division; integer form truncates toward zero"),
    _comparison("equal[T: F+INT+C+B](input: T, other: T) -> output: B",
        "element-wise ==, bool result", commutative=True),
    _binary("floor_divide[T: F+INT](x: T, y: T) -> output: T", "element-wise division rounded toward minus infinity"),
    _comparison("greater[T: F+F8+INT](input: T, other: T) -> output: B", "element-wise strict >, bool result"),
    _binary("maximum[T: F+F8+INT](x: T, y: T) -> output: T",
        "element-wise larger of two, NaN propagates", commutative=True),
    _binary("minimum[T: F+F8+INT](x: T, y: T) -> output: T",
        "element-wise smaller of two, NaN propagates", commutative=True),
    _binary("modulo[T: F+INT](x: T, y: T) -> output: T",
        "element-wise remainder with the sign of the dividend (C fmod / %)"),
    _binary("mul[T: F+F8+INT+C+B](x: T, y: T) -> output: T",
        "element-wise product; ints wrap, bool acts as AND", commutative=True),
    _comparison("not_equal[T: F+INT+C+B](input: T, other: T) -> output: B",
        "element-wise !=, bool result", commutative=True),
    _binary("or[T: B](x: T, y: T) -> output: T", "logical OR of two bool tensors", commutative=True, builder="or_"),
    _binary("pow[T: F+INT+C](x: T, y: T) -> output: T", "element-wise power", builder="pow_"),
    _binary("sub[T: F+F8+INT+C](x: T, y: T) -> output: T",
        "element-wise difference of two same-shape tensors; ints wrap"),
    op("where[T: ALL](condition: B, a: T, b: T) -> result: T",
        "element-wise select by a bool tensor of the same shape", infer="same_shape"),
    _binary("xor[T: B](x: T, y: T) -> output: T",
        "logical exclusive OR of two bool tensors", commutative=True, builder="xor_"),
    # element-wise, operands broadcast as in numpy
    _broadcasting("add[T: F+F8+INT+C+B]", "addition", commutative=True),
    _broadcasting("and[T: B]", "logical AND", commutative=True),
    op("decomposable.broadcasting_batch_matmul[T: F+F8+INT+C](x: T, y: T) -> output: T",
        "numpy-style broadcasting form of matrix product (batch dims broadcast)", infer="matmul",
        multiply_adds="output * x[-1]"),
    _broadcasting("bitwise_and[T: INT+B]", "bitwise AND", commutative=True),
    _broadcasting("bitwise_or[T: INT+B]", "bitwise OR", commutative=True),
    _broadcasting("bitwise_xor[T: INT+B]", "bitwise XOR", commutative=True),
    _broadcasting("divide[T: F+F8+INT+C]", "division"),
    _broadcasting("equal[T: F+INT+C+B]", "==", result="B", commutative=True),
    _broadcasting("floor_divide[T: F+INT]", "floor division"),
    _broadcasting("greater[T: F+INT+B]", ">", result="B"),
    _broadcasting("maximum[T: F+F8+INT]", "maximum", commutative=True),
    _broadcasting("minimum[T: F+F8+INT]", "minimum", commutative=True),
    _broadcasting("modulo[T: F+INT]", "remainder"),
    _broadcasting("mul[T: F+F8+INT+C+B]", "product", commutative=True),
    _broadcasting("not_equal[T: F+INT+C+B]", "!=", result="B", commutative=True),
    _broadcasting("or[T: B]", "logical OR", commutative=True),
    _broadcasting("pow[T: F+INT]", "power"),
    _broadcasting("sub[T: F+F8+INT+C]", "subtraction"),
    op("decomposable.broadcasting_where[T: ALL](condition: B, a: T, b: T) -> results_: T",
        "numpy-style broadcasting form of three-operand select", infer="broadcast"),
    _broadcasting("xor[T: B]", "logical XOR", commutative=True),
    # matrix products and convolutions
    op("batch_matmul[T: F+F8+INT+C](x: T, y: T) -> output: T",
        "matrix product of the last two dims; all leading dims must be equal, no broadcasting", infer="matmul",
        multiply_adds="output * x[-1]"),
    op("conv2d[T: F+F8+C](input: T[4], weight: T[4], stride: UIDX[1], dilation: UIDX[1], groups: UIDX[0]) "
        "-> output: T",
        "2-D convolution NCHW x OIHW, no padding operand (use pad first), grouped and dilated", infer="conv",
        multiply_adds="output * weight[1:]"),
    op("conv3d[T: F+F8+C](input: T[5], weight: T[5], stride: UIDX[1;3], dilation: UIDX[1;3], groups: UIDX[0]) "
        "-> output: T",
        "3-D convolution NCDHW x OIDHW, no padding operand, grouped and dilated", infer="conv",
        multiply_adds="output * weight[1:]"),
    op("conv_transpose2d[T: F+F8+C](input: T[4], weight: T[4], stride: UIDX[1], padding: UIDX[1], "
        "dilation: UIDX[1], output_pad: UIDX[1], groups: UIDX[0]) -> output: T",
        "transposed 2-D convolution, weight layout (Cin, Cout/groups, kh, kw), "
        "padding and output padding one value per spatial dim",
        infer="conv_transpose", multiply_adds="input * weight[1:]"),
    op("conv_transpose3d[T: F+F8+C](input: T[5], weight: T[5], stride: UIDX[1;3], padding: UIDX[1;3], "
        "dilation: UIDX[1;3], output_pad: UIDX[1;3], groups: UIDX[0]) -> output: T",
        "transposed 3-D convolution, weight layout (Cin, Cout/groups, kd, kh, kw)", infer="conv_transpose",
        multiply_adds="input * weight[1:]"),
    # reductions, sorting, scans
    _reduction("all[T: B](input: T, axes: IDX[1]) -> result: T",
        "logical AND over the listed axes, reduced dims kept as 1", builder="all_"),
    _reduction("any[T: B](input: T, axes: IDX[1]) -> result: T",
        "logical OR over the listed axes, reduced dims kept as 1", builder="any_"),
    op("argmax(input: F+F8+INT, axis: IDX[0]) -> output: UIDX",
        "index of the largest element along one axis, dim kept as 1, first of ties", infer="argmax", free_element=True),
    op("argsort(input: F+INT, dim: IDX[0], descending: B[0], stable: B[0]) -> result: IDX",
        "positions that would sort the input along one axis", infer="argsort", exact="always"),
    op("reduce[T: F+F8+INT+C+B](input: T, axes: IDX[1], init_value: T[0]) -> output: T",
        "generic reduction with a combiner region (cannot be reloaded from an asset in b2/b3)",
        infer="reduce", form=" {input}, {axes}, init {init_value}{ reduction} : {types} -> {results}",
        regions="reduction: yield", authored=False),
    op("reduce_index[T: F+F8+INT](input: T, axis: IDX[0], init_value: T[0], init_index: UIDX[0]) -> output: UIDX",
        "generic arg-reduction with a comparison region (cannot be reloaded from an asset in b2/b3)",
        infer="reduce_index", free_element=True, regions="reduction: yield", authored=False,
        form=" {input}, {axis}, init {init_value} init_index {init_index}{ reduction} : {types} -> {results}"),
    _reduction("reduce_max[T: F+F8+INT](input: T, axes: IDX[1]) -> output: T",
        "maximum over the listed axes, dims kept as 1"),
    _reduction("reduce_mean[T: F+F8](input: T, axes: IDX[1]) -> output: T",
        "mean over the listed axes, float only, dims kept as 1"),
    _reduction("reduce_min[T: F+F8+INT](input: T, axes: IDX[1]) -> output: T",
        "minimum over the listed axes, dims kept as 1"),
    _reduction("reduce_product[T: F+F8+INT](input: T, axes: IDX[1]) -> output: T",
        "product over the listed axes, dims kept as 1"),
    _reduction("reduce_sum[T: F+F8+INT](input: T, axes: IDX[1]) -> output: T",
        "sum over the listed axes, dims kept as 1"),
    op("scan[T: F+F8+INT](input: T, axis: UIDX[0], reverse: B[0]) -> result: T",
        "inclusive prefix sum/product/min/max along an axis, optionally from the end",
        infer="like_first", properties="scan_op as combiner: i32 sum|product|min|max"),
    op("softmax[T: F+F8](input: T, axis: IDX[0]) -> output: T",
        "normalised exponential along one axis", infer="like_first"),
    op("sort[T: F+INT](input: T, dim: IDX[0], descending: B[0], stable: B[0]) -> result: T",
        "sort values along one axis", infer="like_first"),
    op("non_zero(input: F+F8+INT+B) -> result: IDX[2]",
        "indices of non-zero elements, one row per element (data-dependent row count)",
        infer="non_zero", form="unary", free_element=True),
    # pooling and resizing
    op("max_pool_2d[T: F+F8+INT](input: T[4], kernel_size: UIDX[1;2], stride: UIDX[1;2], dilation: UIDX[1;2], "
        "ceil_mode: B[0]) -> output: T[4]",
        "2-D max pooling NCHW without padding, floor or ceil output size", infer="pool", builder="maxpool2d"),
    op("max_pool_3d[T: F+F8+INT](input: T[5], kernel_size: UIDX[1;3], stride: UIDX[1;3], dilation: UIDX[1;3], "
        "ceil_mode: B[0]) -> output: T[5]",
        "3-D max pooling NCDHW without padding, floor or ceil output size", infer="pool", builder="maxpool3d"),
    op("sum_pool_2d[T: F+F8+INT](input: T[4], kernel_size: UIDX[1;2], strides: UIDX[1;2], dilation: UIDX[1;2]) "
        "-> output: T[4]",
        "2-D windowed sum NCHW without padding, floor output size", infer="pool", builder="sumpool2d"),
    op("sum_pool_3d[T: F+F8+INT](input: T[5], kernel_size: UIDX[1;3], strides: UIDX[1;3], dilation: UIDX[1;3]) "
        "-> output: T[5]",
        "3-D windowed sum NCDHW without padding, floor output size", infer="pool", builder="sumpool3d"),
    op("interpolate[T: F+F8+INT](input: T, output_shape: IDX[1], scale: f32[1], offset: f32[1]) -> result: T",
        "resize every dim with given output shape, scale and offset (linear or nearest)",
        infer="interpolate", form=_BRACED, properties="interpolation_mode: linear|nearest_neighbor"),
    op("interpolate_coordinates[T: F+F8+INT](input: T, coords: f32[2]) -> result: T[1]",
        "sample a K-d field at N absolute coordinates (linear or nearest)",
        infer="interpolate_coordinates", form=_BRACED, properties="interpolation_mode: linear|nearest_neighbor"),
    # shapes
    op("broadcast_in_dims[T: ALL](input: T, dim_sizes: UIDX[1], axes: IDX[1]) -> output: T",
        "repeat size-1 dims of the input to given sizes, rank unchanged",
        infer="broadcast_in_dims", trait=RepeatingView),
    op("broadcast_shapes(shape_1: UIDX[1], shape_2: UIDX[1]) -> output: UIDX[1]",
        "numpy broadcast of two shape vectors, as a shape vector", infer="broadcast_shapes"),
    op("broadcast_to[T: ALL](input: T, shape: UIDX[1]) -> output: T",
        "numpy broadcast of a tensor to a target shape (may add leading dims)",
        infer="broadcast_to", trait=RepeatingView),
    op("concat[T: ALL](dimension: IDX[0], inputs*: T) -> result: T",
        "join tensors along one axis; the axis is operand 0", infer="concat", exact="dimension"),
    op("expand_dims[T: ALL](input: T, axes: IDX[1]) -> output: T",
        "insert size-1 dims at positions counted in the output shape", infer="expand_dims", trait=Reshape,
        form=" {input}, {axes} : {types} to {results}{ attributes}"),
    op("get_shape(input: ALL) -> shape: UIDX[1]",
        "shape of the input as a ui32 vector; folded when static",
        infer="get_shape", form="unary", exact="always", trait=Unfolded),
    op("pad[T: F+F8+INT+C+B](input: T, padding: UIDX[1], padding_value: T[0]) -> result: T",
        "pad every dim before/after: constant, replicate, reflect, symmetric or circular",
        infer="pad", properties="padding_mode as mode: circular|constant|reflect|replicate|symmetric"),
    op("reshape[T: ALL](input: T, new_shape: IDX+UIDX[1]) -> output: T",
        "new shape, same elements; signed shape vector may hold one -1", infer="reshape", trait=Reshape),
    op("reverse[T: ALL](input: T, dims: IDX[1]) -> result: T",
        "flip along the listed axes", infer="like_first"),
    op("shrink_dims[T: ALL](input: T, axes: IDX[1]) -> output: T",
        "drop size-1 dims", infer="shrink_dims", trait=Reshape, exact="axes",
        form=" {input}, {axes} : {types} to {results}{ attributes}"),
    op("slice[T: ALL](input: T, start_indices: IDX[1], end_indices: IDX[1], strides: IDX[1]) -> output: T",
        "strided sub-tensor start:end:stride per dim, indices wrap once and clamp",
        infer="slice", trait=View, builder="slice_"),
    op("slice_update[T: ALL](input: T, start_indices: IDX[1], end_indices: IDX[1], strides: IDX[1], update: T) "
        "-> output: T",
        "copy of the input with a strided region replaced", infer="like_first", updates="input",
        form=" {input} with {update} at ({start_indices}, {end_indices}, {strides}) "
        ": {types} to {results}{ attributes}"),
    op("split[T: ALL](input: T, split_size_or_sections: UIDX[0|1], dim: IDX[0]) -> results_*: T",
        "cut along one axis into equal chunks (0-D size) or listed sections (1-D)", infer="split", trait=View),
    op("tile[T: F+F8+INT+C+B](input: T, dims: UIDX[1]) -> output: T",
        "repeat the tensor per dim; counts right-aligned", infer="tile", trait=Repetition),
    op("transpose[T: ALL](input: T, permutation: UIDX[1]) -> output: T",
        "permute dims by an unsigned permutation vector", infer="transpose", trait=View),
    # indexing
    op("gather_along_axis[T: F+F8+INT+LOW+C+B](input: T, indices: IDX, axis: IDX[0]) -> output: T",
        "pick elements along one axis by a same-rank index tensor (torch.gather)",
        infer="gather_along_axis", form=" {input} at {indices} along {axis} : {types} to {results}{ attributes}"),
    op("gather_nd[T: F+F8+INT+LOW+C+B](input: T, indices: IDX) -> output: T",
        "pick slices by multi-dimensional index vectors in the last dim of indices",
        infer="gather_nd", form=" {input} at {indices} : {types} to {results}{ attributes}", exact="always"),
    op("scatter_along_axis[T: F+F8+INT+LOW+C+B](input: T, indices: IDX, updates: T, axis: IDX[0]) -> output: T",
        "write or combine updates along one axis by a same-rank index tensor",
        infer="like_first", updates="input", properties="scatter_mode?: update|add|sub|mul|div|max|min = update"),
    op("scatter_nd[T: F+F8+INT+LOW+C+B](input: T, indices: IDX, updates: T) -> output: T",
        "overwrite slices chosen by multi-dimensional index vectors (region must be a lone yield; always behaves as "
        "replace)",
        infer="like_first", updates="input",
        form=" {input} with {updates} at {indices}{ update_fn} : {types} to {results}",
        regions="update_fn: yield"),
    # constants and ranges
    op("constant() -> result: ANY",
        "materialise a dense / splat / resource attribute as a tensor",
        infer="constant", form="constant", exact="always", properties="value: TypedAttrInterface"),
    op("range[T: F+INT](start: T[0], stop: T[0], step: T[0]) -> output: T[1]",
        "evenly spaced values start..stop (exclusive) with step", infer="range", builder="range_"),
    # complex numbers
    op("create_complex(real: f32, imaginary: f32) -> result: C",
        "complex tensor from real and imaginary parts", infer="same_shape", exact="always", trait=Unfolded),
    op("imaginary_part(input: C) -> result: F+F8",
        "imaginary part of a complex tensor", infer="complex_part", exact="always"),
    op("real_part(input: C) -> real: F+F8", "real part of a complex tensor", infer="complex_part", exact="always"),
    # quantised and sparse data
    op("asymmetric_quantization_statistics(input: F+F8+INT, range: F+F8+INT+si4+ui4[1], axis: IDX[0]) "
        "-> scale: F+F8+INT+si4+ui4[1], zero_point: F+F8+INT+si4+ui4[1]",
        "per-channel affine scale and zero point from min/max along an axis (range forced to contain 0)",
        infer="quantization_statistics", free_element=True, builder="asymmetric_quant_stats"),
    op("symmetric_quantization_statistics(input: F+F8+INT, range: F+F8+INT+si4+ui4[1], axis: IDX[0]) "
        "-> scale: F+F8+INT+si4+ui4[1]",
        "per-channel symmetric scale from the largest magnitude along an axis",
        infer="quantization_statistics", free_element=True, builder="symmetric_quant_stats"),
    op("blockwise_shift_scale[T: bf16+f16+f32](data: F8+LOW+F4+bf16+f16+f32+si16+si8+ui16+ui8, "
        "scale: F+F8+F4+si2+ui2, offset1: F+F8+INT+LOW+F4, offset2: T) -> output: T",
        "block-wise dequantisation: scale*(data-offset1)+offset2, block size implied by shape ratio data/scale",
        infer="blockwise", exact="to save", trait=Unfolded),
    op("dequantize[T: F8+f4E2M1FN+si4+si8+ui4+ui8, U: bf16+f16+f32](input: T, scale: bf16+f16+f32+f8E8M0FNU[0|1], "
        "offset1: T[0|1], offset2: U[0|1], axis: IDX[0|1]) -> output: U",
        "per-tensor or per-axis dequantisation (input-offset1)*scale+offset2", infer="quantize", trait=Unfolded),
    op("quantize[T: F8+f4E2M1FN+si4+si8+ui4+ui8](input: bf16+f16+f32+si16+si32+si64+ui16+ui32+ui64, "
        "scale: F8+F4+bf16+f16+f32[0|1], offset1: T[0|1], offset2: bf16+f16+f32+si16+si32+si64+ui16+ui32+ui64[0|1], "
        "axis: IDX[0|1]) -> output: T",
        "per-tensor or per-axis quantisation to the element type of offset1", infer="quantize"),
    op("lut_to_dense[T: F+F8+INT](indices: ui1+ui2+ui3+ui4+ui6+ui8, lut: T, axis: si16[0]) -> result: T",
        "depalettise: replace unsigned n-bit indices by entries of a look-up table (per-block tables, vector entries)",
        infer="lut", exact="axis", trait=Unfolded),
    op("lut_to_sparse_with_bitmask[T: F8+bf16+f16+f32+si8+ui8](indices: ui1+ui2+ui3+ui4+ui6+ui8, lut: T, "
        "axis: si16[0]) -> result: T",
        "depalettise only the stored elements of a bitmask-sparse tensor", infer="lut_to_sparse", trait=Unfolded),
    op("build_sparse_with_bitmask[T: F+F8+INT+B+ui1+ui2+ui3+ui4+ui6](values: T[1], bitmask: ui1) -> result: T",
        "bitmask-sparse tensor from stored values and a ui1 position mask", infer="build_sparse", trait=Unfolded),
    op("sparse_with_bitmask_to_dense[T: F+F8+INT+LOW+B+ui1+ui3+ui6](input: T) -> result: T",
        "dense tensor from a bitmask-sparse one, zeros elsewhere",
        infer="sparse_to_dense", form="unary", trait=Unfolded),
    # graphs and control flow
    op("graph()",
        "top-level or private function-like graph; entry points are the non-private ones",
        form="graph", pure=False, isolated=True, top_level=True, regions="bodyRegion: output",
        properties="sym_name: SymbolNameAttr, function_type: TypeAttrOf<FunctionType>, "
        "param_decls: #param.decl.array, priv?: UnitAttr, externalize?: UnitAttr, no_inline?: UnitAttr, "
        "composite_decl?: CompositeDeclarationAttr, arg_attrs?: DictArrayAttr, res_attrs?: DictArrayAttr"),
    op("output(operands_*: ANY)",
        "terminator of a graph: its results", form="terminator", pure=False, terminator=True),
    op("invoke(operands_*: ANY) -> result*: ANY",
        "call another graph by symbol; types must match exactly",
        form=" {callee}({operands})  : {types} -> {results}{ attributes}", pure=False,
        properties="callee: TypedAttrInterface, arg_attrs?: DictArrayAttr, res_attrs?: DictArrayAttr"),
    op("isolated_group(inputs*: ANY) -> outputs*: ANY",
        "region to be run by a named delegate; nothing captured from outside",
        form="{delegate}({operands}) : {types} -> {results}{ group}", pure=False, isolated=True, regions="group: yield",
        properties="delegate_id: StrAttr, arg_attrs?: DictArrayAttr, res_attrs?: DictArrayAttr", authored=False),
    op("delegate(inputs*: ANY) -> outputs*: ANY",
        "opaque pre-compiled payload run by a named backend (compiler output, not for authoring)",
        form="{delegate}({operands}) {properties} : {types} -> {results}", pure=False,
        properties="delegate_id: StrAttr, resource: DenseI8ArrayAttr, arg_attrs?: DictArrayAttr, "
        "res_attrs?: DictArrayAttr, lifecycle?: UDML_LifecyclePhaseAttr, delegate_attrs?: DictionaryAttr",
        authored=False),
    op("if(condition: B[0]) -> results_*: ANY",
        "two-way branch on a scalar bool; regions may capture outer values",
        form=" {condition}{ thenRegion}{ else elseRegion} : {type} -> {results}",
        regions="thenRegion: yield, elseRegion: yield", builder="if_"),
    op("while(inits*: ANY) -> results_*: ANY",
        "loop: before-region decides, after-region computes the next values",
        form="{ operands}{ before} do{ after} : {types} -> {(results)}",
        regions="before: condition, after: yield", builder="while_"),
    op("condition(condition: B[0], args*: ANY)",
        "terminator of the before-region of a while: continue flag plus values to forward",
        form="terminator", pure=False, terminator=True, authored=False),
    op("yield(args*: ANY)",
        "terminator handing values back to the enclosing op",
        form="terminator", pure=False, terminator=True, builder="yield_"),
    # state
    op("create_token() -> token: TOKEN",
        "root of an ordering chain for reads/writes of a state handle", infer="token", form=" : {results}", pure=False),
    op("join_token(in_token: TOKEN, rest_tokens*: TOKEN) -> token: TOKEN",
        "merge several ordering tokens of one handle", infer="token", pure=False),
    op("read_handle(handle: HANDLE, in_token: TOKEN) -> output: ANY, out_token: TOKEN",
        "read the current value of a state handle, ordered by tokens", infer="read_handle", pure=False),
    op("write_handle(handle: HANDLE, data: ANY, in_token: TOKEN) -> out_token: TOKEN",
        "store a value in a state handle, ordered by tokens", infer="token", pure=False),
    # images, targets, kernels
    op("image_to_tensor(source: IMAGE) -> result: ui8",
        "decode a !coreai.image into a ui8 tensor", infer="image_to_tensor", form="unary"),
    op("tensor_to_image(source: ui8) -> result: IMAGE", "view a ui8 tensor as a !coreai.image", form="unary"),
    op("target_spec()",
        "module-level record of target triple/soc/options and compilation mode",
        form="target_spec", pure=False, top_level=True,
        properties="spec: #coreai.target_spec, compilation?: full|partial|finalized = full"),
    op("metal4_kernel(kernel_args*: ANY, threads_per_grid: UIDX[1;3], threads_per_thread_group: UIDX[1;3], "
        "result_shapes*: ui32[1]) -> outputs*: ANY",
        "call of a user Metal shader given as source text (GPU only)",
        form=" kernel_args({kernel_args}), threads_per_grid {threads_per_grid}, "
        "threads_per_thread_group {threads_per_thread_group}, result_shapes({result_shapes}) {properties} "
        ": {types} -> {results}",
        pure=False, properties="kernel_source: StrAttr, kernel_name: StrAttr"),
)
COREAIX_ROWS: tuple[Row, ...] = (
    # between plain tensors and those laid out for custom kernels; the caller states the encoded type
    op("coreaix.copy_with_constraints(source: ANY) -> result: ANY",
        "copy of a tensor into a memory layout, such as a Metal buffer", form="call", trait=Unfolded),
    op("coreaix.copy_discarding_constraints(source: ANY) -> result: ANY",
        "plain tensor from one that is laid out for a kernel", form="call"),
    op("coreaix.cast(source: ANY) -> result: ANY",
        "element type conversion of a laid-out tensor (cannot be saved in b3)", form="call", builder="coreaix_cast"),
    op("coreaix.view(source: ANY) -> result: ANY",
        "laid-out tensor in another shape (cannot be saved in b3)", form="call"),
)
"""The ops of the `coreaix` dialect, which custom Metal kernels need."""
# fmt: on
