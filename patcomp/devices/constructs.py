"""Named conditions on ops, of which the tables of facts are made."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from patcomp.devices.fact import Construct
from patcomp.ir.constants import constant_integers, constant_values, is_constant
from patcomp.ir.module import IRModule, callee
from patcomp.ir.rounding import is_corrected, is_of_floor, is_only_tested
from patcomp.ir.types import BIT_WIDTHS, HandleType, TensorType, element_name, is_float, shape_of
from patcomp.ir.value import Value, made_by
from patcomp.ir.xdsl import Attribute, Operation, SSAValue, ops_inside

BROADCASTING = "coreai.decomposable.broadcasting_"
PRODUCTS = ("coreai.batch_matmul", f"{BROADCASTING}batch_matmul")
_SUMS = (f"{BROADCASTING}add", "coreai.add")
_ALIKE = (*_SUMS, "coreai.reshape", "coreai.cast")
"""Ops between a product and its activation."""


def construct(says: str) -> Callable[[Callable[[Operation], bool]], Construct]:
    """Declare a condition on an op alone."""
    return lambda holds: Construct(says, lambda op, module: holds(op))


def _element(type_: Attribute) -> str:
    return element_name(type_.element_type) if isinstance(type_, TensorType) else ""


def _shape(value: SSAValue) -> tuple[int | None, ...]:
    return shape_of(value.type) if isinstance(value.type, TensorType) else ()


def _integers(op: Operation, operand: int) -> tuple[int, ...]:
    """A constant operand; nothing if it is computed."""
    return constant_integers(op.operands[operand]) or ()


# ---- element types and sizes ------------------------------------------------------------------------


@construct("of float16")
def half(op: Operation) -> bool:
    return any(_element(value.type) == "f16" for value in (*op.operands, *op.results))


@construct("of floats")
def of_floats(op: Operation) -> bool:
    return any(name and is_float(name) for name in (_element(result.type) for result in op.results))


@construct("with a dynamic size")
def dynamic(op: Operation) -> bool:
    return any(None in _shape(value) for value in (*op.operands, *op.results))


@construct("with a dimension of size 0")
def empty(op: Operation) -> bool:
    return any(0 in _shape(value) for value in (*op.operands, *op.results))


@construct("of 8-bit floats")
def float8(op: Operation) -> bool:
    return any(_element(operand.type).startswith("f8") for operand in op.operands)


# ---- numbers ----------------------------------------------------------------------------------------


@construct("where a half may be an operand, and the neighbour matters")
def neighbour_matters(op: Operation) -> bool:
    y, x = Value(op.results[0]), Value(op.operands[0])
    return is_float(y.element_type) and not (is_only_tested(y, x) or is_of_floor(y, x) or is_corrected(y, x))


@construct("by the constant 1")
def by_one(op: Operation) -> bool:
    values = constant_values(op.operands[1])
    return values is not None and bool((values == 1).all())


@construct("of a float that was cast to an integer")
def back_from_integer(op: Operation) -> bool:
    cast = made_by(op.operands[0], "coreai.cast")
    if cast is None:
        return False
    names = [_element(value.type) for value in (cast.operands[0], cast.results[0], op.results[0])]
    return is_float(names[0]) and not is_float(names[1]) and is_float(names[2])


_ANDS = ("coreai.and", "coreai.bitwise_and", f"{BROADCASTING}and", f"{BROADCASTING}bitwise_and")
_COMPARISONS = tuple(
    f"{prefix}{name}" for prefix in ("coreai.", BROADCASTING) for name in ("equal", "greater", "not_equal")
)


def _compares_wide(value: SSAValue) -> bool:
    """Whether a condition comes from a comparison of 64-bit integers, through `and`, `or` and `not`."""
    if (compared := made_by(value, *_COMPARISONS)) is not None:
        return any(_element(operand.type) == "si64" for operand in compared.operands)
    logical = made_by(value, *_ANDS, f"{BROADCASTING}or", "coreai.or", "coreai.not")
    return logical is not None and any(_compares_wide(operand) for operand in logical.operands)


@construct("of an `and` of comparisons of 64-bit integers, to floats")
def mask_of_wide_integers(op: Operation) -> bool:
    made = made_by(op.operands[0], *_ANDS)
    return made is not None and is_float(_element(op.results[0].type)) and _compares_wide(op.operands[0])


@construct("of an `and` of conditions, to floats")
def mask_of_conditions(op: Operation) -> bool:
    return made_by(op.operands[0], *_ANDS) is not None and is_float(_element(op.results[0].type))


_SHIFTED = ("coreai.sub", f"{BROADCASTING}sub", f"{BROADCASTING}mul", "coreai.mul", f"{BROADCASTING}minimum")
"""Ops that make the operand of an exponential negative: less the maximum, or the negative magnitude."""


@construct("of a sum of an exponential whose operand may be positive")
def of_open_exponential(op: Operation) -> bool:
    summed = made_by(_before(op.operands[0]), *_SUMS, "coreai.reduce_sum", "coreai.scan")
    if summed is None:
        return False
    exponentials = [made_by(_before(operand), "coreai.exp") for operand in summed.operands]
    return any(each is not None and made_by(_before(each.operands[0]), *_SHIFTED) is None for each in exponentials)


def _before(value: SSAValue) -> SSAValue:
    """A value before reshapes and casts."""
    while (made := made_by(value, "coreai.reshape", "coreai.cast")) is not None:
        value = made.operands[0]
    return value


@construct("of a softmax")
def of_softmax(op: Operation) -> bool:
    return made_by(op.operands[0], "coreai.softmax") is not None


def _is_at_most_one(value: SSAValue) -> bool:
    """Whether a value was divided by a maximum."""
    divided = made_by(value, f"{BROADCASTING}divide", "coreai.divide")
    largest = None if divided is None else Value(divided.operands[1]).maker
    while largest is not None and largest.name in (f"{BROADCASTING}maximum", "coreai.maximum", "coreai.reshape"):
        largest = Value(largest.operands[0]).maker
    return largest is not None and largest.name == "coreai.reduce_max"


@construct("of a number times itself, which was not divided by a maximum")
def of_square(op: Operation) -> bool:
    product = made_by(op.operands[0], f"{BROADCASTING}mul", "coreai.mul")
    if product is None or product.operands[0] is not product.operands[1]:
        return False
    return not _is_at_most_one(product.operands[0])


def _infinite(value: SSAValue, module: IRModule) -> bool:
    values = constant_values(value, module.blobs)
    return values is not None and values.dtype.kind == "f" and bool(np.isneginf(values).any())


def _is_masked_by_infinity(op: Operation, module: IRModule) -> bool:
    masking = made_by(op.operands[0], *_SUMS, "coreai.where", f"{BROADCASTING}where")
    return masking is not None and any(_infinite(operand, module) for operand in masking.operands)


masked_by_infinity = Construct("masked with a constant of -inf", _is_masked_by_infinity)


@construct("of a product of two dimensions")
def of_flat_product(op: Operation) -> bool:
    value = op.operands[0]
    while (made := made_by(value, *_ALIKE)) is not None:
        value = made.operands[0]
    product = made_by(value, *PRODUCTS)
    return product is not None and len(_shape(product.results[0])) <= 2


# ---- windows ----------------------------------------------------------------------------------------


def kernel_over(most: int, operand: int | None = None) -> Construct:
    """A window wider than `most`.

    Args:
        most: the largest width.
        operand: the operand with the sizes of the window; by default the sizes of the weight, operand 1.
    """

    def holds(op: Operation, module: IRModule) -> bool:
        sizes = _shape(op.operands[1])[2:] if operand is None else _integers(op, operand)
        return any(size is not None and size > most for size in sizes[-1:])

    return Construct(f"with a window wider than {most}", holds)


def stride_over(most: int) -> Construct:
    """A stride larger than `most`; operand 2 has the strides."""
    return Construct(f"with a stride over {most}", lambda op, module: any(each > most for each in _integers(op, 2)))


@construct("with a dilation")
def dilated(op: Operation) -> bool:
    return any(each > 1 for each in _integers(op, 3))


@construct("with a kernel of 8 or more, or a stride of 16 or more, without output padding")
def long_transposed(op: Operation) -> bool:
    kernel, strides, padding = _shape(op.operands[1])[2:], _integers(op, 2), _integers(op, 5)
    large = any(size is not None and size >= 8 for size in kernel) or any(stride >= 16 for stride in strides)
    return large and not any(padding)


@construct("with a computed weight and a batch of 2 or more")
def computed_weight(op: Operation) -> bool:
    batch, maker = _shape(op.operands[0])[:1], Value(op.operands[1]).maker
    stored = maker is not None and all(
        is_constant(each) for each in (Value(operand).maker or maker for operand in maker.operands)
    )
    return not (stored or (maker is not None and is_constant(maker))) and batch != (1,)


# ---- moves ------------------------------------------------------------------------------------------


@construct("along the last axis, from another start than 0")
def offset_along_width(op: Operation) -> bool:
    return any(start != 0 for start in _integers(op, 1)[-1:])


@construct("at a place that is computed")
def at_computed_place(op: Operation) -> bool:
    return constant_integers(op.operands[1]) is None


def _sorts_behind(value: SSAValue, steps: int) -> list[Operation]:
    """The sorts from whose positions an integer is computed, through few ops."""
    maker = Value(value).maker
    if maker is None or not steps or not _element(value.type).startswith(("s", "u")):
        return []
    if maker.name == "coreai.argsort":
        return [maker]
    return [sort for operand in maker.operands for sort in _sorts_behind(operand, steps - 1)]


@construct("of another tensor, at positions of a sort")
def at_sorted_positions(op: Operation) -> bool:
    sorts = _sorts_behind(op.operands[1], 8)
    return bool(sorts) and not any(_comes_from(sort.operands[0], op.operands[0], 4) for sort in sorts)


def _comes_from(value: SSAValue, source: SSAValue, steps: int) -> bool:
    """Whether a value is computed from another one by few ops: then a gather of it only sorts it."""
    maker = Value(value).maker
    if value is source or maker is None or not steps:
        return value is source
    return any(_comes_from(operand, source, steps - 1) for operand in maker.operands)


@construct("of the nearest elements")
def of_nearest(op: Operation) -> bool:
    return "nearest" in str(op.properties.get("interpolation_mode", ""))


# ---- attention and states ---------------------------------------------------------------------------


@construct("with values of another head size than the queries")
def heads_differ(op: Operation) -> bool:
    sizes = [_shape(operand)[-1:] for operand in op.operands[:3]]
    return len(sizes) == 3 and None not in (*sizes[0], *sizes[2]) and sizes[0] != sizes[2]


def attention_whose(says: str, holds: Callable[[tuple[int | None, ...], tuple[int | None, ...]], bool]) -> Construct:
    """A condition on the shapes of the queries and the keys of an attention."""
    return Construct(says, lambda op, module: holds(_shape(op.operands[0]), _shape(op.operands[1])))


many_batches = attention_whose("of a batch of 10 or more", lambda query, key: (query[0] or 0) >= 10)
many_scores = attention_whose(
    "with more than 2^32 scores",
    lambda query, key: math.prod(size or 1 for size in (*query[:-1], key[-2])) > 2**32,
)
wide_heads = attention_whose("with heads of 512 or more", lambda query, key: (query[-1] or 0) >= 512)
many_queries = attention_whose("of 384 queries or more", lambda query, key: (query[-2] or 0) >= 384)


def _calls(module: IRModule, name: str) -> list[Operation]:
    """The calls of a composite."""
    names = module.composite_names()
    return [op for op in ops_inside(module.op) if op.name == "coreai.invoke" and names.get(callee(op)) == name]


two_with_open_attention = Construct(
    "twice or more, beside an attention with a dynamic length",
    lambda op, module: (
        len(_calls(module, "gated_delta_update")) > 1
        and any(dynamic.holds(each, module) for each in _calls(module, "scaled_dot_product_attention"))
    ),
)


@construct("of a state of fixed size that is written more than once")
def written_again(op: Operation) -> bool:
    handle = op.operands[0]
    writes = [use.operation for use in handle.uses if use.operation.name == op.name]
    return isinstance(handle.type, HandleType) and None not in shape_of(handle.type.tensor_type) and len(writes) > 1


@construct("of a state with a dynamic size")
def open_state(op: Operation) -> bool:
    type_ = op.operands[0].type
    return isinstance(type_, HandleType) and None in shape_of(type_.tensor_type)


@construct("of a state of float32")
def wide_state(op: Operation) -> bool:
    type_ = op.operands[0].type
    return isinstance(type_, HandleType) and _element(type_.tensor_type) == "f32"


# ---- stored weights ---------------------------------------------------------------------------------


def stored_bits(*bits: int) -> Construct:
    """Stored values of so many bits, operand 0."""
    return Construct(
        f"of {' or '.join(map(str, bits))} bits",
        lambda op, module: BIT_WIDTHS.get(_element(op.operands[0].type)) in bits,
    )


def _channels(op: Operation) -> tuple[int, ...]:
    """The size of the axis along which the scales of stored values differ, if each of its channels has one; otherwise
    nothing."""
    data, scale = _shape(op.operands[0]), _shape(op.operands[1])
    axes = [axis for axis, size in enumerate(scale) if size != 1]
    if len(axes) != 1 or scale[axes[0]] != data[axes[0]] or data[axes[0]] is None:
        return ()
    return (data[axes[0]] or 0,)


@construct("with a scale for each channel")
def scaled_by_channel(op: Operation) -> bool:
    return bool(_channels(op))


@construct("with scales for blocks")
def scaled_by_block(op: Operation) -> bool:
    return any(size != 1 for size in _shape(op.operands[1])) and not _channels(op)


@construct("with a scale for each of more than 65,024 channels")
def many_channels(op: Operation) -> bool:
    return any(size > 65024 for size in _channels(op))


@construct("of weights that are looked up in a table")
def of_looked_up(op: Operation) -> bool:
    return made_by(op.operands[0], "coreai.lut_to_dense") is not None
