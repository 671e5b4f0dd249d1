"""Weights: handles into a store that never copies their bytes; PyTorch owns them until an asset is written."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from patcomp.ir.elements import numpy_dtype
from patcomp.ir.pages import release
from patcomp.ir.types import (
    static_shape,
    storage_bytes,
)
from patcomp.ir.xdsl import Attribute, TensorType

_FIRST_BYTES = 4096
"""Weights that differ here need not be read to be told apart."""
NO_VALUES = (
    "the weight {!r} has no values, because its tensor is fake or on the meta device; give the model its weights, then "
    "export and convert it again"
)


@dataclass(eq=False)
class Blob:
    """The bytes of one weight, in their owner's memory, and their tensor type."""

    key: str
    data: memoryview
    type: TensorType
    owners: tuple[object, ...] = ()
    """The objects that must stay alive for `data` to be valid (the PyTorch tensor and its array)."""
    _hash: str = ""

    @property
    def content_hash(self) -> str:
        """SHA-256 of element type and bytes; computed on first use, because it reads the whole weight."""
        if not self._hash:
            digest = hashlib.sha256(str(self.type.element_type).encode())
            digest.update(self.data)
            release([self.data])
            self._hash = digest.hexdigest()
        return self._hash

    def array(self) -> np.ndarray:
        """The weight as a numpy array without copying; raw `uint8` where numpy lacks the element type."""
        dtype = numpy_dtype(self.type.element_type)
        raw = np.frombuffer(self.data, dtype=np.uint8)
        return raw if dtype is None else raw.view(dtype).reshape(static_shape(self.type))


@dataclass(eq=False)
class BlobStore:
    """The weights of a module by key; tensors that share memory have one entry, also across graphs."""

    blobs: dict[str, Blob] = field(default_factory=dict)
    without_values: dict[str, object] = field(default_factory=dict)
    """The keys of weights that a program names, but that have no bytes, with the tensor of each. Such a program has a
    text; it can neither be run nor saved."""
    read: set[str] = field(default_factory=set)
    """The keys of weights whose numbers a stage of a conversion read."""
    _by_memory: dict[tuple[int, int, TensorType], str] = field(default_factory=dict)
    _by_content: dict[tuple[TensorType, str], str] = field(default_factory=dict)

    def add(self, key: str, data: memoryview | bytes | np.ndarray, type_: TensorType, owner: object = None) -> str:
        """Store a weight without copying it; return its key.

        Args:
            key: requested name, such as `model.layers.0.weight`; it is made an MLIR identifier and unique.
            data: the bytes in C order; sub-byte elements bit-packed, `i1` a byte each.
            type_: static tensor type of the weight.

        Raises:
            ValueError: the number of bytes does not fit the type.
        """
        array = data if isinstance(data, np.ndarray) else np.frombuffer(data, dtype=np.uint8)
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        expected = storage_bytes(static_shape(type_), type_.element_type)
        if raw.nbytes != expected:
            raise ValueError(f"weight {key!r} has {raw.nbytes} bytes, but {type_} takes {expected}")
        memory = (raw.__array_interface__["data"][0], raw.nbytes, type_)
        if raw.nbytes and memory in self._by_memory:
            return self._by_memory[memory]
        unique = self._unique(re.sub(r"[^A-Za-z0-9_.$]", "_", key))
        self.blobs[unique] = Blob(unique, memoryview(raw), type_, (owner, raw))  # type: ignore[arg-type]
        self._by_memory[memory] = unique
        return unique

    def remove(self, key: str) -> None:
        """Drop a weight and its entries in the lookup tables, because its memory may soon belong to another weight."""
        del self.blobs[key]
        for found in (self._by_memory, self._by_content):
            for known in [known for known, name in found.items() if name == key]:
                del found[known]  # type: ignore[arg-type]

    def renamed(self, names: Mapping[str, str]) -> BlobStore:
        """The same weights under other keys."""
        made = BlobStore()
        made.blobs = {names[key]: replace(blob, key=names[key]) for key, blob in self.blobs.items()}
        made.without_values = {names[key]: tensor for key, tensor in self.without_values.items()}
        made._by_memory = {memory: names[key] for memory, key in self._by_memory.items() if key in names}
        made._by_content = {content: names[key] for content, key in self._by_content.items() if key in names}
        return made

    def copy(self) -> BlobStore:
        """The same weights in a store of its own, without copies of their bytes."""
        made = copy(self)
        for name in ("blobs", "without_values", "_by_memory", "_by_content"):
            setattr(made, name, dict(getattr(self, name)))
        return made

    def with_values(self, key: str, values: np.ndarray) -> BlobStore:
        """A store in which one weight has other values, of its own type and shape."""
        made, raw = self.copy(), np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        made.blobs[key] = Blob(key, memoryview(raw), self.blobs[key].type, (raw,))  # type: ignore[arg-type]
        return made

    def add_packed(self, key: str, data: np.ndarray, type_: TensorType) -> str:
        """Store bytes that were packed here, unless equal ones are stored: several ops may read a compressed weight."""
        content = (type_, hashlib.sha256(data.data).hexdigest())
        if content not in self._by_content:
            self._by_content[content] = self.add(key, data, type_)
        return self._by_content[content]

    def name(self, key: str, type_: TensorType, tensor: object) -> str:
        """The key of a weight without values; the same tensor has the same key.

        Args:
            key: requested name, as in `add`.
            type_: static tensor type of the weight.
            tensor: the PyTorch tensor that has no values.
        """
        memory = (id(tensor), -1, type_)
        if memory not in self._by_memory:
            self._by_memory[memory] = self._unique(re.sub(r"[^A-Za-z0-9_.$]", "_", key))
            self.without_values[self._by_memory[memory]] = tensor
        return self._by_memory[memory]

    def _unique(self, key: str) -> str:
        if not re.match(r"[A-Za-z_]", key):
            key = f"_{key}"
        candidate, number = key, 1
        while candidate in self.blobs or candidate in self.without_values:
            candidate, number = f"{key}_{number}", number + 1
        return candidate

    @property
    def keys(self) -> list[str]:
        """The keys of all weights, with and without values, in the order in which they were added."""
        return list(dict.fromkeys((*self._by_memory.values(), *self.blobs, *self.without_values)))

    def __getitem__(self, key: str) -> Blob:
        return self.blobs[key]

    def __contains__(self, key: str) -> bool:
        return key in self.blobs

    def __iter__(self) -> Iterator[Blob]:
        return iter(self.blobs.values())

    def same_content(self, keys: Iterable[str]) -> dict[str, str]:
        """For each key, the first of them whose weight has the same element type and bytes, in any shape."""
        alike: dict[tuple[Attribute, int, bytes], list[Blob]] = {}
        for key in dict.fromkeys(keys):
            blob = self.blobs[key]
            beginning = bytes(blob.data[:_FIRST_BYTES])
            alike.setdefault((blob.type.element_type, len(blob.data), beginning), []).append(blob)
        result = {}
        for blobs in alike.values():
            first: dict[str, str] = {}
            for blob in blobs:  # one that begins like no other is not read
                content = blob.content_hash if len(blobs) > 1 else ""
                result[blob.key] = first.setdefault(content, blob.key)
        return result
