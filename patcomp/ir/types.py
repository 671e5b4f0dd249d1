"""Types of the IR: element types, tensors, tokens, handles; interned, because xDSL does not intern.

Creating a `TensorType` costs 8 microseconds and comparing two equal ones 0.6; an interned one is
looked up once and compared by identity. Build every type through `tensor(...)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from patcomp.errors import DynamicSizeError
from patcomp.ir.xdsl import (
    DYNAMIC_INDEX,
    ArrayAttr,
    Attribute,
    AttrParser,
    BFloat16Type,
    ComplexType,
    Float4E2M1FNType,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntAttr,
    IntegerType,
    NoneAttr,
    ParametrizedAttribute,
    Printer,
    Signedness,
    StringAttr,
    TensorType,
    TypeAttribute,
    irdl_attr_definition,
    parse_balanced_text,
    unchecked,
)

_NO_ENCODING = NoneAttr()

DYNAMIC = None
"""A dimension that is known only at run time, in the shapes that patcomp's Python API shows."""

Shape = tuple[int | None, ...]


def _integer(signedness: Signedness, width: int) -> IntegerType:
    return IntegerType(width, signedness)


ELEMENT_TYPES: dict[str, Attribute] = {
    "f16": Float16Type(),
    "bf16": BFloat16Type(),
    "f32": Float32Type(),
    "f64": Float64Type(),
    "f8E4M3FN": Float8E4M3FNType(),
    "f8E5M2": Float8E5M2Type(),
    "f8E8M0FNU": Float8E8M0FNUType(),
    "f4E2M1FN": Float4E2M1FNType(),
    "i1": IntegerType(1),
    "complex<f32>": ComplexType(Float32Type()),
    "complex<f64>": ComplexType(Float64Type()),
    **{f"si{w}": _integer(Signedness.SIGNED, w) for w in (2, 4, 8, 16, 32, 64)},
    **{f"ui{w}": _integer(Signedness.UNSIGNED, w) for w in (1, 2, 3, 4, 6, 8, 16, 32, 64)},
}
"""Element types by the name that MLIR text gives them."""

_NAMES = {attribute: name for name, attribute in ELEMENT_TYPES.items()}
_NAMES_BY_ID = {id(attribute): name for name, attribute in ELEMENT_TYPES.items()}
"""The names of the attributes of the table, which live as long as the process. Hashing an attribute takes longer."""

ELEMENT_OF_TORCH: dict[str, str] = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
    "float8_e8m0fnu": "f8E8M0FNU",
    "bool": "i1",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
    **{f"int{w}": f"si{w}" for w in (2, 4, 8, 16, 32, 64)},
    **{f"uint{w}": f"ui{w}" for w in (1, 2, 3, 4, 6, 8, 16, 32, 64)},
}
"""The element type of each PyTorch dtype, by name, because the IR does not import PyTorch."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "F": ("bf16", "f16", "f32", "f64"),
    "F8": ("f8E5M2", "f8E4M3FN"),
    "INT": ("si8", "si16", "si32", "si64", "ui8", "ui16", "ui32", "ui64"),
    "LOW": ("si2", "ui2", "si4", "ui4"),
    "F4": ("f4E2M1FN", "f8E8M0FNU"),
    "C": ("complex<f32>",),
    "B": ("i1",),
    "IDX": ("si16", "si32"),
    "UIDX": ("ui16", "ui32"),
}
"""The families of element types that the dialect table uses for operands."""

BIT_WIDTHS: dict[str, int] = {
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f8E4M3FN": 8, "f8E5M2": 8, "f8E8M0FNU": 8,
    "f4E2M1FN": 4, "i1": 1, "complex<f32>": 64, "complex<f64>": 128,
    **{f"si{w}": w for w in (2, 4, 8, 16, 32, 64)},
    **{f"ui{w}": w for w in (1, 2, 3, 4, 6, 8, 16, 32, 64)},
}  # fmt: skip
"""Bits an element takes in a packed buffer (i1 is the exception: a byte each, see `storage_bytes`)."""


ML_DTYPES: dict[str, np.dtype] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
}
"""The dtypes of floats that numpy itself lacks; an element takes a byte at least."""


def element_name(element: Attribute) -> str:
    """The MLIR spelling of an element type: `"f32"`, `"si64"`; `str(element)` for a foreign one."""
    return _NAMES_BY_ID.get(id(element)) or _NAMES.get(element) or str(element)


def element_type(name: str | Attribute) -> Attribute:
    """The element type attribute of a name such as `"f32"`; an attribute passes through.

    Raises:
        ValueError: the name is not an element type of the dialect.
    """
    if not isinstance(name, str):
        return name
    try:
        return ELEMENT_TYPES[name]
    except KeyError:
        raise ValueError(f"unknown element type {name!r}; one of {', '.join(ELEMENT_TYPES)}") from None


@cache
def _tensor(shape: Shape, element: Attribute, encoding: Attribute) -> TensorType:
    sizes = tuple(unchecked(IntAttr, data=DYNAMIC_INDEX if dim is None else dim) for dim in shape)
    return unchecked(TensorType, shape=unchecked(ArrayAttr, data=sizes), element_type=element, encoding=encoding)


def tensor(shape: Sequence[int | None], element: str | Attribute, encoding: Attribute | None = None) -> TensorType:
    """The interned ranked tensor type of a shape (`None` for a dynamic dimension) and an element type."""
    return _tensor(tuple(shape), element_type(element), encoding or _NO_ENCODING)


def shape_of(type_: Attribute) -> Shape:
    """The shape of a tensor type, `None` for each dynamic dimension.

    Raises:
        TypeError: the type is not a ranked tensor.
    """
    if not isinstance(type_, TensorType):
        raise TypeError(f"expected a ranked tensor type, got {type_}")
    # kept on the type, because a lookup would hash the type, which costs more than the shape
    shape: Shape | None = type_.__dict__.get("_shape")
    if shape is None:
        shape = tuple(None if dim == DYNAMIC_INDEX else dim for dim in type_.get_shape())
        object.__setattr__(type_, "_shape", shape)
    return shape


def is_empty(type_: Attribute) -> bool:
    """Whether all values of a type are tensors without elements, of one shape."""
    return isinstance(type_, TensorType) and None not in shape_of(type_) and 0 in shape_of(type_)


def static_shape(type_: Attribute) -> tuple[int, ...]:
    """The shape of a tensor type without dynamic dimensions.

    Raises:
        TypeError: the type is not a ranked tensor.
        DynamicSizeError: it has a dynamic dimension.
    """
    shape = shape_of(type_)
    if None in shape:
        raise DynamicSizeError(f"expected a static tensor type, got {type_}")
    return shape  # type: ignore[return-value]


def is_static(type_: Attribute) -> bool:
    """Whether a tensor type has no dynamic dimension."""
    return None not in shape_of(type_)


def is_open(type_: Attribute) -> bool:
    """Whether a type is a tensor type with a dynamic dimension."""
    return isinstance(type_, TensorType) and not is_static(type_)


def integer_range(element: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer element type, given by name."""
    bits = BIT_WIDTHS[element]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if element[0] == "s" else (0, (1 << bits) - 1)


def is_float(element: Attribute | str) -> bool:
    """Whether an element type, or one of this name, is a real floating-point type (f8 and f4 included)."""
    return (element if isinstance(element, str) else element_name(element))[0] in "fb"


def is_integer(element: Attribute | str) -> bool:
    """Whether an element type, or one of this name, is an integer (not `i1`)."""
    return (element if isinstance(element, str) else element_name(element))[:2] in ("si", "ui")


_RUNTIME_ELEMENTS = {"si64": "si32", "ui64": "ui32", "f64": "f32", "complex<f64>": "complex<f32>"}


def runtime_type(type_: Attribute) -> Attribute:
    """The type of a PyTorch tensor after lowering: 64-bit elements become 32-bit, as indices require."""
    if not isinstance(type_, TensorType):
        return type_
    name = element_name(type_.element_type)
    if name not in _RUNTIME_ELEMENTS:
        return type_
    return tensor(shape_of(type_), _RUNTIME_ELEMENTS[name], type_.encoding)


def storage_bytes(shape: Sequence[int], element: Attribute) -> int:
    """Bytes of a `dense_resource` blob: sub-byte types are bit-packed, `i1` takes a byte an element."""
    count = 1
    for dim in shape:
        count *= dim
    name = element_name(element)
    if name == "i1":
        return count
    return (count * BIT_WIDTHS[name] + 7) // 8


@irdl_attr_definition
class TokenType(ParametrizedAttribute, TypeAttribute):
    """`!coreai.token`: orders reads and writes of one state buffer."""

    name = "coreai.token"


@irdl_attr_definition
class HandleType(ParametrizedAttribute, TypeAttribute):
    """`!coreai.handle<tensor<...>>`: a mutable buffer that the caller owns."""

    name = "coreai.handle"
    tensor_type: Attribute

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            return [parser.parse_type()]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.tensor_type)


class BalancedText(ParametrizedAttribute):
    """Base of attributes and types that patcomp does not interpret: it keeps the text in `<...>`."""

    if TYPE_CHECKING:  # xDSL wants the field declared by each subclass
        text: StringAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        return [StringAttr(parse_balanced_text(parser))]

    def print_parameters(self, printer: Printer) -> None:
        printer.print_string(f"<{self.text.data}>")


@irdl_attr_definition
class ImageType(BalancedText, TypeAttribute):
    """`!coreai.image<<k24RGB> x 4 : i64 x 6 : i64>`: an image of a pixel format, height and width."""

    name = "coreai.image"
    text: StringAttr


@irdl_attr_definition
class SymbolType(ParametrizedAttribute, TypeAttribute):
    """`!param.symbol`: the type of a symbol constant."""

    name = "param.symbol"


@irdl_attr_definition
class ParameterType(ParametrizedAttribute, TypeAttribute):
    """`!param.type`: the type of a type parameter of a graph."""

    name = "param.type"


@irdl_attr_definition
class ParameterReferenceType(BalancedText, TypeAttribute):
    """`!param.param_ref<#param.ref<T> : !param.type>`: a use of a type parameter."""

    name = "param.param_ref"
    text: StringAttr


TOKEN = TokenType()
SYMBOL = SymbolType()
