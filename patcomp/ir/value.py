"""`Value`: an SSA value for rules and authors, with its shape and element type as Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from patcomp.ir.constants import constant_values, is_constant, uniform_number
from patcomp.ir.types import Shape, element_name, shape_of, static_shape
from patcomp.ir.xdsl import Attribute, Operation, OpTrait, SSAValue, TensorType, maker_of, replace_uses, set_name

_Kind = str | type[OpTrait]
"""The name of an op, or a trait."""


class ValueType:
    """A tensor type with `shape` as a tuple (None for dynamic) and `element_type`; `.attribute` is xDSL's."""

    __slots__ = ("attribute",)

    def __init__(self, attribute: Attribute):
        self.attribute = attribute

    @property
    def shape(self) -> Shape:
        return shape_of(self.attribute)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape of a type that has no dynamic dimension; a `TypeError` otherwise."""
        return static_shape(self.attribute)

    @property
    def is_static(self) -> bool:
        return None not in self.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def element_type(self) -> Attribute:
        assert isinstance(self.attribute, TensorType)
        return self.attribute.element_type

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        return element_name(self.element_type)

    def __eq__(self, other: object) -> bool:
        return self.attribute == (other.attribute if isinstance(other, ValueType) else other)

    def __hash__(self) -> int:
        return hash(self.attribute)

    def __str__(self) -> str:
        return str(self.attribute)

    __repr__ = __str__


class Value:
    """An SSA value. Two `Value`s are equal when they are the same SSA value."""

    __slots__ = ("ssa",)

    def __init__(self, ssa: SSAValue):
        self.ssa = ssa

    @property
    def type(self) -> ValueType:
        return ValueType(self.ssa.type)

    @property
    def name(self) -> str:
        """The value's name in the text, which comes from the FX node; empty if it has none."""
        return self.ssa.name_hint or ""

    @property
    def shape(self) -> Shape:
        """Dimensions, None for a dynamic one."""
        return shape_of(self.ssa.type)

    @property
    def rank(self) -> int:
        return len(shape_of(self.ssa.type))

    @property
    def element_type(self) -> Attribute:
        assert isinstance(self.ssa.type, TensorType)
        return self.ssa.type.element_type

    @property
    def dtype(self) -> str:
        """Name of the element type, `"f32"`."""
        return element_name(self.element_type)

    @property
    def is_static(self) -> bool:
        return None not in self.shape

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The dimensions of a value that has no dynamic one; a `TypeError` otherwise."""
        return static_shape(self.ssa.type)

    @property
    def constant(self) -> np.ndarray | None:
        """The values, when the value is an inline constant; None otherwise."""
        return constant_values(self.ssa)

    @property
    def uniform(self) -> np.generic | None:
        """The number that every element of an inline constant equals; None if there is none."""
        return uniform_number(self.maker.properties.get("value")) if is_constant(self.ssa) else None  # type: ignore[union-attr]

    @property
    def maker(self) -> Operation | None:
        """The op that computes the value; None for an argument of a block."""
        return maker_of(self.ssa)

    def made_by(self, *kinds: _Kind) -> Operation | None:
        """The op that computes the value, if it has one of these names or traits; otherwise None."""
        return made_by(self.ssa, *kinds)

    @property
    def users(self) -> list[Operation]:
        """The ops that read the value, each once."""
        return list(dict.fromkeys(use.operation for use in self.ssa.uses))

    @property
    def is_read_once(self) -> bool:
        """Whether one op reads the value, as one operand."""
        return self.ssa.has_one_use()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.ssa is other.ssa

    def __hash__(self) -> int:
        return hash(self.ssa)

    def __repr__(self) -> str:
        return f"Value(%{self.ssa.name_hint or '?'} : {self.ssa.type})"


def made_by(value: SSAValue, *kinds: _Kind) -> Operation | None:
    """The op that computes a value, if it has one of these names or traits; otherwise None."""
    op = maker_of(value)
    if op is None or not any(op.name == kind if isinstance(kind, str) else op.has_trait(kind) for kind in kinds):
        return None
    return op


def replace_op(op: Operation, values: Sequence[SSAValue]) -> None:
    """Put values in the place of an op's results, under their names, and erase the op."""
    for result, value in zip(op.results, values, strict=True):
        set_name(value, result.name_hint)
        replace_uses(result, value)
    op.detach()
    op.erase()


def ssa(value: Any) -> SSAValue:
    """The SSA value of a `Value`; an SSA value is returned unchanged."""
    return value.ssa if isinstance(value, Value) else value
