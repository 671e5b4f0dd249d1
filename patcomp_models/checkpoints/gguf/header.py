"""What a GGUF file says about itself: its keys, and where its tensors are."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from patcomp.errors import shortened
from patcomp_models.checkpoints.untrusted import check_file
from patcomp_models.errors import LanguageModelError

BLOCKS = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
}  # fmt: skip
"""By the number of a type: its name, how many elements a block has, and how many bytes."""

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_NESTED = 4
"""The arrays inside each other that are read; files have one."""
_MOST_ALIGNED = 1 << 20
_MOST_AXES = 4
"""Of a tensor, as in llama.cpp."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file.

    Attributes:
        kind: the name of its type, `Q4_K`.
        number: of the type.
        shape: in PyTorch's order: the inputs of a weight last.
        data: its bytes, mapped into memory; (rows, bytes of a row).
    """

    kind: str
    number: int
    shape: tuple[int, ...]
    data: np.ndarray


@dataclass(frozen=True)
class Header:
    """The keys of a file, and its tensors by name."""

    keys: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    def floats(self, name: str) -> np.ndarray | None:
        """The numbers of a tensor of float32, or None if there is none of this name.

        Raises:
            LanguageModelError: it is of another type.
        """
        found = self.tensors.get(name)
        if found is not None and found.kind != "F32":
            raise LanguageModelError(f"{name} is of {found.kind}, and must be of F32")
        return None if found is None else np.array(found.data.view(np.float32).flatten())


def read_header(file: Path) -> Header:
    """Read the keys and the places of the tensors of a file; their bytes are mapped.

    Raises:
        LanguageModelError: the file is no GGUF file, is cut off, has a tensor of an unknown type, or several tensors in
            one place.
    """
    check_file(file, LanguageModelError)
    if file.stat().st_size < 24:
        raise LanguageModelError(f"{str(file)!r} is not a GGUF file: it is cut off")
    mapped = np.memmap(file, np.uint8, mode="r")
    reader = _Reader(mapped, file)
    if bytes(mapped[:4]) != b"GGUF":
        raise LanguageModelError(f"{str(file)!r} is not a GGUF file: it does not begin with GGUF")
    reader.at = 4
    version = reader.number("I")
    if version not in (2, 3):
        raise LanguageModelError(
            f"{str(file)!r} is GGUF of version {version}; 2 and 3 are read (not of other endianness)"
        )
    count, keys = reader.number("Q"), dict[str, Any]()
    for _ in range(reader.number("Q")):
        key = reader.string()
        keys[key] = reader.value(reader.number("I"))
    places = [(reader.string(), reader.shape(), reader.number("I"), reader.number("Q")) for _ in range(count)]
    alignment = keys.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 0 < alignment <= _MOST_ALIGNED:
        raise LanguageModelError(f"{str(file)!r} has the alignment {alignment!r}, and must have a number of bytes")
    start = -(-reader.at // alignment) * alignment
    tensors, ends = dict[str, StoredTensor](), 0
    for name, shape, kind, offset in sorted(places, key=lambda place: place[-1]):
        tensors[name] = _tensor(file, mapped, name, shape, kind, start + offset)
        if start + offset < ends:  # a small file could hold any number of weights
            raise LanguageModelError(f"{str(file)!r} is damaged: {name} is in the place of another tensor")
        ends = start + offset + tensors[name].data.size
    return Header(keys, {name: tensors[name] for name, *_ in places})


def _tensor(file: Path, mapped: np.ndarray, name: str, shape: tuple[int, ...], number: int, start: int) -> StoredTensor:
    if number not in BLOCKS:
        raise LanguageModelError(f"{str(file)!r}: {name} is of the type {number}, which is not known")
    if 0 in shape or len(shape) > _MOST_AXES:
        raise LanguageModelError(f"{str(file)!r} is damaged: {name} has the shape {shortened(str(shape))}")
    kind, elements, size = BLOCKS[number]
    rows, columns = math.prod(shape[:-1]), shape[-1] if shape else 1
    if columns % elements:
        raise LanguageModelError(f"{str(file)!r}: {name} has {columns} inputs, which are no blocks of {kind}")
    width = columns // elements * size
    if start + rows * width > mapped.size:
        raise LanguageModelError(f"{str(file)!r} is cut off: it lacks bytes of {name}")
    data = mapped[start : start + rows * width].reshape(rows, width)
    return StoredTensor(kind, number, shape, data)


class _Reader:
    """Reads numbers and strings, one after the other."""

    def __init__(self, mapped: np.ndarray, file: Path):
        self.mapped, self.file, self.at = mapped, file, 0

    def _bytes(self, size: int) -> bytes:
        if self.at + size > self.mapped.size:
            raise LanguageModelError(f"{str(self.file)!r} is cut off: its keys or the list of its tensors end early")
        self.at += size
        return bytes(self.mapped[self.at - size : self.at])

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self._bytes(struct.calcsize(f"<{form}")))[0]

    def string(self) -> str:
        return self._bytes(self.number("Q")).decode("utf-8", "replace")

    def shape(self) -> tuple[int, ...]:
        return tuple(self.number("Q") for _ in range(self.number("I")))[::-1]

    def value(self, kind: int, nested: int = 0) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.string()
        if nested > _MOST_NESTED:
            raise LanguageModelError(f"{str(self.file)!r} has arrays in arrays in a key, which no model has")
        if kind != _ARRAY:
            raise LanguageModelError(f"{str(self.file)!r} has a key of the type {kind}, which is not known")
        kind, count = self.number("I"), self.number("Q")
        if kind in _NUMBERS:
            form = _NUMBERS[kind]
            return list(struct.unpack(f"<{count}{form}", self._bytes(count * struct.calcsize(f"<{form}"))))
        return [self.value(kind, nested + 1) for _ in range(count)]
