"""How each op of Core AI is stored in an asset, as data: one row an op, beside the op's own row in `coreai_table.py`.

A row has the op's name without its dialect, the name that it has in an asset, and the date of the first version of the
format that has it (`versions.py`). The operands have the same order in both. An op that is added to the dialect gets
its row here, too; without one, only coreai-core can save programs that have it.

An enumeration has the stored name of its property and the kind of its attribute, which has the position of the word:
`gelu primitive.gelu_v1 20251024 approximate=approximate_v1`.

Facts: the programs that coreai-core 1.0.0b3 saves for the cases of the dialect, and for each of their ops alone. The
date of an op that is never alone, or whose decomposition is newer, is the least that these programs allow.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoredForm:
    """How an op is stored."""

    name: str
    """Without the prefix `aicode.`."""
    date: int
    """The version of the format, such as 20250814."""
    property: str = ""
    """The stored name of the op's enumeration, if it has one."""
    kind: str = ""
    """The kind of the attribute of this property."""


def _form(row: str) -> tuple[str, StoredForm]:
    op, name, date, *rest = row.split()
    key, _, kind = rest[0].partition("=") if rest else ("", "", "")
    return op if op.startswith("coreaix.") else f"coreai.{op}", StoredForm(name, int(date), key, kind)


def _forms(rows: str) -> dict[str, StoredForm]:
    return dict(map(_form, rows.strip().splitlines()))


FORMS: dict[str, StoredForm] = _forms("""
abs primitive.abs_v1 20250814
acos primitive.acos_v1 20250928
acosh primitive.acosh_v1 20250928
asin primitive.asin_v1 20250928
asinh primitive.asinh_v1 20250928
atan primitive.atan_v1 20250928
atanh primitive.atanh_v1 20250928
cos primitive.cos_v1 20250928
cosh primitive.cosh_v1 20250928
erf primitive.erf_v1 20250928
exp primitive.exp_v1 20250819
gelu primitive.gelu_v1 20251024 approximate=approximate_v1
log primitive.log_v1 20250928
not primitive.not_v1 20250923
relu relu_v1 20251016
round primitive.round_v1 20251001
rsqrt primitive.rsqrt_v1 20250928
sigmoid sigmoid_v1 20250922
silu silu_v1 20250928
sin primitive.sin_v1 20250928
sinh primitive.sinh_v1 20250928
sqrt primitive.sqrt_v1 20250717
tan primitive.tan_v1 20250928
tanh primitive.tanh_v1 20250928
cast primitive.cast_v1 20250723
add primitive.add_v1 20250707
and primitive.logical_and_v1 20251013
bitwise_and primitive.bitwise_and_v1 20250928
bitwise_or primitive.bitwise_or_v1 20250928
bitwise_xor primitive.bitwise_xor_v1 20250928
divide primitive.divide_v1 20250717
equal primitive.equal_v1 20250923
floor_divide primitive.floor_divide_v1 20250928
greater primitive.greater_v1 20251013
maximum primitive.maximum_v1 20250928
minimum primitive.minimum_v1 20250928
modulo primitive.modulo_v1 20250928
mul primitive.mul_v1 20250717
not_equal primitive.not_equal_v1 20251003
or primitive.logical_or_v1 20251013
pow primitive.pow_v1 20250928
sub primitive.sub_v1 20250717
where primitive.where_v1 20251023
xor primitive.logical_xor_v1 20251013
decomposable.broadcasting_add broadcasting_add_v1 20250827
decomposable.broadcasting_and broadcasting_logical_and_v1 20251202
decomposable.broadcasting_batch_matmul broadcasting_batch_matmul_v1 20251202
decomposable.broadcasting_bitwise_and broadcasting_bitwise_and_v1 20260204
decomposable.broadcasting_bitwise_or broadcasting_bitwise_or_v1 20260204
decomposable.broadcasting_bitwise_xor broadcasting_bitwise_xor_v1 20260204
decomposable.broadcasting_divide broadcasting_divide_v1 20250922
decomposable.broadcasting_equal broadcasting_equal_v1 20260204
decomposable.broadcasting_floor_divide broadcasting_floor_divide_v1 20260204
decomposable.broadcasting_greater broadcasting_greater_v1 20251105
decomposable.broadcasting_maximum broadcasting_maximum_v1 20251016
decomposable.broadcasting_minimum broadcasting_minimum_v1 20260204
decomposable.broadcasting_modulo broadcasting_modulo_v1 20260204
decomposable.broadcasting_mul broadcasting_mul_v1 20250827
decomposable.broadcasting_not_equal broadcasting_not_equal_v1 20260204
decomposable.broadcasting_or broadcasting_logical_or_v1 20260204
decomposable.broadcasting_pow broadcasting_pow_v1 20250930
decomposable.broadcasting_sub broadcasting_sub_v1 20250922
decomposable.broadcasting_where broadcasting_where_v1 20251024
decomposable.broadcasting_xor broadcasting_logical_xor_v1 20260204
batch_matmul primitive.batch_matmul_v1 20250723
conv2d primitive.conv2d_v1 20250905
conv3d primitive.conv3d_v1 20251023
conv_transpose2d primitive.conv_transpose2d_v1 20251031
conv_transpose3d primitive.conv_transpose3d_v1 20251031
all all_v1 20251017
any any_v1 20251017
argmax argmax_v1 20251028
argsort primitive.argsort_v1 20251028
reduce primitive.reduce_v1 20250926
reduce_index primitive.reduce_index_v1 20251028
reduce_max reduce_max_v1 20251023
reduce_mean reduce_mean_v1 20260317
reduce_min reduce_min_v1 20251023
reduce_product reduce_product_v1 20250926
reduce_sum reduce_sum_v1 20250926
scan primitive.scan_v1 20251114 combiner=scan_combiner_v1
softmax softmax_v1 20260204
sort sort_v1 20251101
non_zero primitive.non_zero_v1 20251031
max_pool_2d primitive.max_pool_2d_v1 20251023
max_pool_3d primitive.max_pool_3d_v1 20251017
sum_pool_2d primitive.sum_pool_2d_v1 20251017
sum_pool_3d primitive.sum_pool_3d_v1 20251017
interpolate primitive.interpolate_v1 20260127 interpolation_mode=interpolation_mode_v1
interpolate_coordinates primitive.interpolate_coordinates_v1 20260127 interpolation_mode=interpolation_mode_v1
broadcast_in_dims primitive.broadcast_in_dims_v1 20250826
broadcast_shapes primitive.broadcast_shapes_v1 20250911
broadcast_to primitive.broadcast_to_v1 20250911
concat primitive.concat_v1 20250903
expand_dims primitive.expand_dims_v1 20250924
get_shape primitive.get_shape_v2 20260317
pad primitive.pad_v1 20250924 padding_mode=padding_mode_v1
reshape primitive.reshape_v2 20260204
reverse primitive.reverse_v1 20251101
shrink_dims primitive.shrink_dims_v1 20251002
slice primitive.slice_v1 20250922
slice_update primitive.slice_update_v1 20250922
split primitive.split_v1 20250904
tile tile_v2 20260219
transpose primitive.transpose_v1 20250811
gather_along_axis primitive.gather_along_axis_v1 20251028
gather_nd primitive.gather_nd_v1 20250723
scatter_along_axis primitive.scatter_along_axis_v1 20251030 scatter_mode=scatter_mode_v1
scatter_nd primitive.scatter_nd_v1 20251027
constant primitive.constant_v1 20250707
range primitive.range_v1 20251017
create_complex primitive.create_complex_v1 20251021
imaginary_part primitive.imaginary_part_v1 20251021
real_part primitive.real_part_v1 20251021
asymmetric_quantization_statistics asymmetric_quantization_statistics_v1 20260317
symmetric_quantization_statistics symmetric_quantization_statistics_v1 20260317
blockwise_shift_scale primitive.blockwise_shift_scale_v2 20260202
dequantize dequantize_v2 20260204
quantize quantize_v2 20260204
lut_to_dense primitive.lut_to_dense_v1 20251003
lut_to_sparse_with_bitmask primitive.lut_to_sparse_with_bitmask_v1 20251112
build_sparse_with_bitmask primitive.build_sparse_with_bitmask_v1 20251112
sparse_with_bitmask_to_dense primitive.sparse_with_bitmask_to_dense_v1 20251112
graph dataflow.graph_v1 20250707
output dataflow.output_v1 20250707
invoke dataflow.invoke_v1 20250909
isolated_group dataflow.isolated_group_v1 20260204
if controlflow.if_v1 20251023
while controlflow.while_v1 20251023
condition controlflow.condition_v1 20251023
yield dataflow.yield_v1 20250827
create_token dataflow.create_token_v1 20250819
join_token dataflow.join_token_v1 20251023
read_handle dataflow.read_handle_v1 20250819
write_handle dataflow.write_handle_v1 20250819
image_to_tensor primitive.image_to_tensor_v1 20251114
tensor_to_image primitive.tensor_to_image_v1 20260108
target_spec execution.target_spec_v1 20260107 compilation=execution.compilation_v1
metal4_kernel metal.metal4_kernel_v1 20260409
coreaix.copy_with_constraints ax.copy_with_constraints_v1 20250903
coreaix.copy_discarding_constraints ax.copy_discarding_constraints_v1 20250906
""")
"""The stored form of each op by its name in the IR."""

OPS_BY_FORM: dict[str, str] = {form.name: op for op, form in FORMS.items()}
"""The op of each stored name."""

DATES: dict[str, int] = {form.name: form.date for form in FORMS.values()}
"""The date of each stored name."""
