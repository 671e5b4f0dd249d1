"""Where new ops go: the insertion point, location and blob store that the authoring functions use.

with Builder(block, blobs=module.blobs):
    y = coreai.broadcasting_add(x, 1.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from patcomp.ir.blobs import BlobStore
from patcomp.ir.constants import constant_attribute
from patcomp.ir.locations import UNKNOWN
from patcomp.ir.value import Value
from patcomp.ir.xdsl import (
    Attribute,
    Block,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    LocationAttr,
    Operation,
    Region,
)

_CURRENT: ContextVar[Builder | None] = ContextVar("builder", default=None)


class Builder:
    """Appends ops to a block, or inserts them before an op, with one location and one blob store."""

    def __init__(
        self,
        block: Block,
        *,
        before: Operation | None = None,
        blobs: BlobStore | None = None,
        location: LocationAttr | Callable[[], LocationAttr] = UNKNOWN,
    ):
        self.block = block
        self.before = before
        self.blobs = blobs
        self._location = location
        self.created: list[Operation] = []
        """Every op inserted so far, in order."""
        self._constants: dict[tuple[int, bytes], Value] = {}
        self._tokens: list[Any] = []

    @property
    def location(self) -> LocationAttr:
        """The location of inserted ops; a function is called when the first op needs the location."""
        if callable(self._location):
            self._location = self._location()
        return self._location

    @location.setter
    def location(self, location: LocationAttr | Callable[[], LocationAttr]) -> None:
        self._location = location

    @classmethod
    def current(cls) -> Builder:
        """The innermost active builder.

        Raises:
            RuntimeError: none is active.
        """
        builder = _CURRENT.get()
        if builder is None:
            raise RuntimeError("no insertion point: call this inside a lowering or a `with Builder(block):`")
        return builder

    def __enter__(self) -> Builder:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *exception: object) -> None:
        _CURRENT.reset(self._tokens.pop())

    def insert(self, op: Operation) -> Operation:
        """Insert an op at the insertion point, with the builder's location."""
        op.location = self.location
        if self.before is not None:
            self.block.insert_op_before(op, self.before)
        else:
            self.block.add_op(op)
        self.created.append(op)
        return op

    def take_back(self, kept: int) -> None:
        """Erase the ops that were inserted after the first `kept` ones. No other op may use them."""
        taken = self.created[kept:]
        for op in reversed(taken):
            op.detach()
            op.erase()
        del self.created[kept:]
        erased = {result for op in taken for result in op.results}
        self._constants = {key: value for key, value in self._constants.items() if value.ssa not in erased}

    def constant(self, array: np.ndarray, element: Attribute, name: str = "constant") -> Value:
        """A constant of values in storage form (`elements.to_numpy`); small equal constants are made once.

        A large one is a weight of that name.
        """
        return self.constant_of(constant_attribute(array, element, self.blobs, name))

    def constant_of(self, attribute: DenseIntOrFPElementsAttr | DenseResourceAttr) -> Value:
        """A constant of an attribute; small equal constants are made once."""
        from patcomp.ir.dialect import create_op

        key = None
        if isinstance(attribute, DenseIntOrFPElementsAttr) and math.prod(attribute.get_shape()) <= 16:
            key = (id(attribute.type), attribute.data.data)  # the value that is kept keeps its type
            if key in self._constants:
                return self._constants[key]
        op = self.insert(create_op("coreai.constant", (), (attribute.type,), {"value": attribute}))
        value = Value(op.results[0])
        if key is not None and self.before is None:
            self._constants[key] = value
        return value

    def region(
        self,
        argument_types: Sequence[Attribute],
        body: Callable[..., Value | Sequence[Value]],
        terminator: str = "coreai.yield",
    ) -> Region:
        """A region of one block, filled by `body(*arguments)`, whose results the terminator passes on.

        Raises:
            TypeError: the body returns something other than values.
        """
        from patcomp.ir.dialect import create_op

        block = Block(arg_types=argument_types)
        with Builder(block, blobs=self.blobs, location=self.location) as inner:
            made = body(*(Value(argument) for argument in block.args))
            results: list[Any] = list(made) if isinstance(made, list | tuple) else [made]
            if wrong := [result for result in results if not isinstance(result, Value)]:
                raise TypeError(f"a branch or the body of a loop gives values, got {wrong[0]!r}")
            inner.insert(create_op(terminator, [value.ssa for value in results], ()))
        return Region(block)
