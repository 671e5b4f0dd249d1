"""The text of a Metal kernel: names that Metal takes, dtype templates, the signature, helpers that collide with none.

[[kernel]] void vector_add_1a2b3c4d(
    tensor<device float, dextents<int, 1>, tensor_handle> x [[buffer(0)]],
    tensor<device float, dextents<int, 1>, tensor_handle> output [[buffer(1)]],
    uint id [[thread_position_in_grid]])
{ { output[id] = x[id]; } }
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from patcomp.ir.aten import MEMORY_ARGUMENTS
from patcomp.ir.types import Shape, element_name
from patcomp.ir.value import ValueType

METAL_TYPES: dict[str, str] = {
    "f16": "half", "bf16": "bfloat", "f32": "float",
    "si8": "int8_t", "si16": "int16_t", "si32": "int", "si64": "int64_t",
    "ui8": "uint8_t", "ui16": "uint16_t", "ui32": "uint", "ui64": "uint64_t",
}  # fmt: skip
"""The Metal type of each element type that a kernel can read and write. Booleans are passed as `ui8`."""

_NUMBER_ELEMENTS = {bool: "ui8", int: "si32", float: "f32"}

_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
        alignas alignof and and_eq asm auto bitand bitor bool bfloat break case catch char class compl const
        const_cast constant constexpr continue decltype default delete device do double dynamic_cast else
        enum explicit export extern false float for fragment friend goto half if inline int int8_t int16_t
        int32_t int64_t kernel long metal mpp mutable namespace new noexcept not not_eq nullptr object_data
        operator or or_eq private protected public ray_data register reinterpret_cast return short signed
        sizeof size_t static static_assert static_cast struct switch template tensor tensor_handle this
        thread thread_local threadgroup threadgroup_imageblock throw true try typedef typeid typename uchar
        uint uint8_t uint16_t uint32_t uint64_t ulong union unsigned ushort using vertex virtual void
        volatile wchar_t while xor xor_eq threads_per_grid threads_per_thread_group
        """,
    )
)

_HEADERS = ("#include <metal_stdlib>", "#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>")


def check_name(name: Any, what: str) -> None:
    """Check that something can be called `name` in Metal and in the schema of a PyTorch op.

    Raises:
        ValueError: the name is not a string, not an identifier, or reserved.
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{what} must be a name, got {name!r}")
    if not name.isascii() or not name.isidentifier():
        raise ValueError(f"{what} must be an identifier of letters, digits and underscores, got {name!r}")
    if name in _RESERVED | MEMORY_ARGUMENTS or keyword.iskeyword(name) or name.startswith("__"):
        raise ValueError(f"{what} cannot be {name!r}, which is a reserved word of Metal, Python or PyTorch")


@dataclass(frozen=True)
class MetalParameter:
    """A parameter that Metal itself fills: `MetalParameter("id", "uint", "thread_position_in_grid")`.

    Args:
        name: its name in the source.
        dtype: its Metal type, `"uint"` or `"uint3"`.
        attr: the attribute that says what Metal passes, without brackets.

    Raises:
        ValueError: an argument is invalid.
    """

    name: str
    dtype: str
    attr: str

    def __post_init__(self) -> None:
        check_name(self.name, "the name of a MetalParameter")
        if not isinstance(self.dtype, str) or not re.fullmatch(r"[A-Za-z_][\w:<>, ]*", self.dtype):
            raise ValueError(f"the dtype of MetalParameter {self.name!r} must be a Metal type, got {self.dtype!r}")
        if not isinstance(self.attr, str) or not re.fullmatch(r"[A-Za-z_]\w*(\(\w+\))?", self.attr):
            raise ValueError(
                f"the attr of MetalParameter {self.name!r} must be a Metal attribute such as "
                f"'thread_position_in_grid', without brackets, got {self.attr!r}"
            )
        if self.attr.startswith("buffer"):
            raise ValueError(f"MetalParameter {self.name!r} cannot be a buffer; buffers are the inputs and results")


@dataclass(frozen=True)
class Buffer:
    """An input or result of one variant of a kernel."""

    name: str
    element: str
    """The name of the element type as the program stores it."""
    rank: int
    value: bool | int | float | None = None
    """The value of a Python number known at export, which becomes a local variable that shadows the parameter."""

    @classmethod
    def of_tensor(cls, name: str, type_: ValueType) -> Buffer:
        """A tensor as a kernel stores it: in its runtime type, or in bytes for booleans."""
        element = element_name(type_.element_type)
        return cls(name, "ui8" if element == "i1" else element, type_.rank)

    @classmethod
    def of_number(cls, name: str, kind: type, value: Any = None) -> Buffer:
        """A Python number; its value is None if only a run knows it."""
        known = None if value is None or isinstance(value, torch.SymInt) else kind(value)
        return cls(name, _NUMBER_ELEMENTS[kind], 0, known)

    @property
    def metal_type(self) -> str:
        """The Metal type of the elements."""
        return "bool" if isinstance(self.value, bool) else METAL_TYPES[self.element]

    @property
    def declaration(self) -> str:
        if self.rank == 0:
            return f"constant {METAL_TYPES[self.element]}& {self.name}"
        return f"tensor<device {self.metal_type}, dextents<int, {self.rank}>, tensor_handle> {self.name}"

    @property
    def local(self) -> str:
        """The local variable of a known number."""
        if isinstance(self.value, bool):
            return f"bool {self.name} = {str(self.value).lower()};"
        if isinstance(self.value, float):
            return f"float {self.name} = {float(np.float32(self.value))!r}f;"
        return f"int {self.name} = {self.value};"


def problem_of(inputs: Sequence[Buffer], results: Sequence[Buffer], shapes: Sequence[Shape] = ()) -> str:
    """Why Metal does not support one of the inputs or results; empty if it supports all."""
    for buffer in (*inputs, *results):
        if buffer.element not in METAL_TYPES:
            return f"{buffer.name!r} has the element type {buffer.element}, which Metal does not have"
    for buffer in results:
        if buffer.rank == 0:
            return f"result {buffer.name!r} is a 0-d tensor; let torch_defn return it in the shape [1]"
    empty = [buffer.name for buffer, shape in zip((*inputs, *results), shapes, strict=False) if 0 in shape]
    return f"{empty[0]!r} has no elements" if empty else ""


def fill_templates(text: str, templates: Mapping[str, str]) -> str:
    """A text with every placeholder replaced by its Metal type, in one pass and only at word boundaries."""
    if not templates:
        return text

    def whole(placeholder: str) -> str:
        before = r"(?<!\w)" if re.match(r"\w", placeholder) else ""
        after = r"(?!\w)" if re.search(r"\w$", placeholder) else ""
        return before + re.escape(placeholder) + after

    longest_first = sorted(templates, key=len, reverse=True)
    return re.sub("|".join(map(whole, longest_first)), lambda found: templates[found.group()], text)


def kernel_source(
    name: str,
    inputs: Sequence[Buffer],
    results: Sequence[Buffer],
    parameters: Sequence[MetalParameter],
    body: str,
    helpers: str = "",
) -> str:
    """The complete source of a kernel function.

    Helpers are written in a namespace with this function's name, which only its body opens, and their macros are
    undefined at its end. So equal names never collide, whether Metal links kernels or compiles them as one text.
    """
    includes, helpers = _without_includes(helpers)
    buffers = [f"{buffer.declaration} [[buffer({i})]]" for i, buffer in enumerate((*inputs, *results))]
    signature = [*buffers, *(f"{p.dtype} {p.name} [[{p.attr}]]" for p in parameters)]
    space = f"{name}_helpers"
    lines = [*_HEADERS, *(line for line in includes if line not in _HEADERS)]
    lines += ["using namespace metal;", "using namespace mpp::tensor_ops;", ""]
    if helpers:
        lines += [f"namespace {space} {{", helpers, "}", ""]
    lines += [f"[[kernel]] void {name}(", ",\n".join(f"    {item}" for item in signature) + ")", "{"]
    lines += [f"    using namespace {space};"] if helpers else []
    # a block of its own: a local variable may shadow a parameter only there
    lines += [
        "    {",
        *(f"    {item.local}" for item in inputs if item.value is not None),
        body.strip("\n"),
        "    }",
        "}",
    ]
    macros = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", helpers, re.MULTILINE)
    return "\n".join([*lines, *(f"#undef {macro}" for macro in dict.fromkeys(macros))]) + "\n"


def _without_includes(helpers: str) -> tuple[list[str], str]:
    """The includes of a text, which no namespace can hold, and the rest."""
    lines = helpers.strip("\n").splitlines()
    includes = [line.strip() for line in lines if re.match(r"\s*#\s*include\b", line)]
    return list(dict.fromkeys(includes)), "\n".join(line for line in lines if line.strip() not in includes)
