"""The weights that a program names."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, element_name, is_static, static_shape, storage_bytes
from patcomp.ir.xdsl import Attribute, DenseResourceAttr

_WORTH_KEEPING = 1024
"""The elements from which on integers of few bits count for the size of an asset."""


def is_compressed_type(type_: Attribute) -> bool:
    """Whether a weight of this type is probably a compressed one: many integers of at most 8 bits."""
    return (
        isinstance(type_, TensorType)
        and element_name(type_.element_type) in ("si2", "ui2", "si4", "ui4", "si8", "ui8")
        and is_static(type_)
        and math.prod(static_shape(type_)) >= _WORTH_KEEPING
    )


@dataclass(frozen=True)
class StoredWeight:
    """A weight of a program."""

    name: str
    shape: tuple[int, ...]
    element_type: str
    bytes: int


def stored_weights(module: IRModule) -> Iterator[StoredWeight]:
    """Each weight that a program names, once. Weights that share memory have one name."""
    types = {attribute.resource_handle.data: attribute.type for attribute in resource_attributes(module)}
    for name, type_ in types.items():
        assert isinstance(type_, TensorType)
        shape, element = static_shape(type_), type_.element_type
        yield StoredWeight(name, shape, element_name(element), storage_bytes(shape, element))


def resource_attributes(module: IRModule) -> Iterator[DenseResourceAttr]:
    """The attributes of constants that are weights, in the order of the text, one for each constant."""
    for op in module.op.walk():
        value = op.properties.get("value") if op.name == "coreai.constant" else None
        if isinstance(value, DenseResourceAttr):
            yield value
