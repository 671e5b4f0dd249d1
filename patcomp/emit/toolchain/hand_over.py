"""A program in the form that the toolchain takes: text in MLIR's generic form, and the weights as buffers."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from patcomp.errors import VerifyError
from patcomp.ir.blobs import NO_VALUES
from patcomp.ir.module import IRModule
from patcomp.ir.text import TextPrinter
from patcomp.ir.types import shape_of, storage_bytes
from patcomp.ir.weights import resource_attributes
from patcomp.ir.xdsl import Attribute, DenseResourceAttr, TensorType


@dataclass(frozen=True)
class HandOver:
    """The form of a program that the toolchain reads. Making one never prints or copies a weight."""

    text: str
    """The program. All weights have one placeholder name: a name in the text could not be used for a buffer again."""

    constants: tuple[str, ...]
    """The key of the weight of each constant that has one, in the order of the text; equal weights have one key."""

    weights: Mapping[str, Any]
    """The buffers by key."""

    @classmethod
    def of(cls, module: IRModule) -> HandOver:
        """The program of a module.

        Raises:
            VerifyError: a weight is missing from the blob store or has the wrong size (the toolchain would crash).
        """
        check_blobs(module)
        keys = [attribute.resource_handle.data for attribute in resource_attributes(module)]
        same = module.blobs.same_content(keys)
        constants = tuple(same[key] for key in keys)
        return cls(hand_over_text(module), constants, {key: module.blobs[key].data for key in constants})

    def with_copied_weights(self) -> HandOver:
        """The same with the weights as bytes, which can be pickled."""
        return replace(self, weights={key: bytes(data) for key, data in self.weights.items()})


def check_blobs(module: IRModule) -> None:
    """Check that every weight that a module names is in its store and has the size of its type.

    Raises:
        VerifyError: one is missing or has another size; the message names it.
    """
    for attribute in dict.fromkeys(resource_attributes(module)):
        key = attribute.resource_handle.data
        if key in module.blobs.without_values:
            raise VerifyError(NO_VALUES.format(key))
        if key not in module.blobs:
            raise VerifyError(f"the program names the weight {key!r}, which is not in its blob store")
        assert isinstance(attribute.type, TensorType)
        expected = storage_bytes(shape_of(attribute.type), attribute.type.element_type)  # type: ignore[arg-type]
        if len(module.blobs[key].data) != expected:
            raise VerifyError(
                f"weight {key!r} has {len(module.blobs[key].data)} bytes, but {attribute.type} takes {expected}"
            )


def hand_over_text(module: IRModule) -> str:
    """The text of a program for the toolchain; its weights are not needed."""
    stream = io.StringIO()
    _HandOverPrinter(stream, generic=True).print_op(module.op)
    return stream.getvalue()


class _HandOverPrinter(TextPrinter):
    def print_attribute_text(self, attribute: Attribute) -> None:
        if isinstance(attribute, DenseResourceAttr):
            self.print_string("dense_resource<unset> : ")
            self.print_attribute(attribute.type)
        else:
            super().print_attribute_text(attribute)
