"""The element types of tensors by their names in the IR, and in an asset."""

from __future__ import annotations

from patcomp.emit.bytecode import StoredEntry

STORED_ELEMENTS: dict[str, str] = {
    "i1": "bool_v1",
    "f16": "float16_v1",
    "bf16": "bfloat16_v1",
    "f32": "float32_v1",
    "f64": "float64_v1",
    "f8E4M3FN": "float8E4M3FN_v1",
    "f8E5M2": "float8E5M2_v1",
    "f8E8M0FNU": "float8E8M0FN_v1",
    "f4E2M1FN": "float4E2M1FN_v1",
    "complex<f32>": "complex_float32_v1",
    **{f"si{width}": f"sint{width}_v1" for width in (2, 4, 8, 16, 32, 64)},
    **{f"ui{width}": f"uint{width}_v1" for width in (1, 2, 3, 4, 6, 8, 16, 32, 64)},
}
"""The stored name of each element type."""
ELEMENT_NAMES = {stored: name for name, stored in STORED_ELEMENTS.items()}
"""The element type of each stored name."""


def tensor_element_name(entry: StoredEntry) -> str:
    """The name of the element type of a stored tensor type, such as `"f32"`."""
    return ELEMENT_NAMES[entry[2][0]]
