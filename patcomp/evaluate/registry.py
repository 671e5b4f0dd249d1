"""The table of the functions that compute ops, and the object that these functions get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.element_types import narrow, widen
from patcomp.families import modules_in
from patcomp.ir.attributes import word_of
from patcomp.ir.locations import describe
from patcomp.ir.module import IRModule
from patcomp.ir.types import element_name
from patcomp.ir.xdsl import Attribute, Block, Operation, SSAValue

Implementation = Callable[..., Any]

_IMPLEMENTATIONS: dict[str, Implementation] = {}


@cache
def implementations() -> dict[str, Implementation]:
    """The function of each op by its full name. It takes an `EvaluatedOp` and the operands."""
    modules_in("patcomp.evaluate.ops")  # each registers its functions
    return _IMPLEMENTATIONS


def implements(*names: str) -> Callable[[Implementation], Implementation]:
    """Register a function as the meaning of ops: `@implements("coreai.add")`.

    The function takes an `EvaluatedOp` and the op's operands, and returns its result, or a list when it has several.
    """

    def register(function: Implementation) -> Implementation:
        for name in names:
            assert name not in _IMPLEMENTATIONS, f"{name} is implemented twice"
            _IMPLEMENTATIONS[name] = function
        return function

    return register


class Runner(Protocol):
    """The interpreter of ops, as their functions see it."""

    @property
    def module(self) -> IRModule:
        """The program."""

    def accumulated(self, weight: Tensor) -> Tensor:
        """A weight in the type in which products are summed."""

    def constant(self, attribute: Attribute) -> Tensor:
        """The elements of a constant."""

    def mismatch(self, value: Any, type_: Attribute) -> str:
        """How a value differs from its type; empty if it has the type."""

    def run_graph(self, graph: Operation, operands: Sequence[Any]) -> list[Any]:
        """The results of a graph."""

    def run_block(self, block: Block, arguments: Sequence[Any], values: dict[SSAValue, Any]) -> list[Any]:
        """The operands of a block's terminator.

        Args:
            block: the block.
            arguments: the values of its arguments.
            values: those that it reads from outside.
        """


@dataclass(frozen=True)
class EvaluatedOp:
    """An op as its function sees it: its properties and result types while it runs."""

    operation: Operation
    machine: Runner
    values: dict[Any, Any]
    """The values of the graph that the op is in, for regions that use outer ones."""

    def element(self, result: int = 0) -> str:
        """Name of the element type of a result."""
        return element_name(self.operation.results[result].type.element_type)  # type: ignore[attr-defined]

    def operand_element(self, operand: int = 0) -> str:
        """Name of the element type of an operand."""
        return element_name(self.operation.operands[operand].type.element_type)  # type: ignore[attr-defined]

    def attribute(self, name: str, default: str = "") -> Any:
        """The Python value of a property (enumerations as strings), or `default` when it is absent."""
        attribute: Attribute | None = self.operation.properties.get(name)
        if attribute is None:
            return default
        declared = next((item for item in self.operation.ROW.properties if item.name == name), None)  # type: ignore[attr-defined]
        if declared is not None and declared.words:
            return word_of(declared, attribute)
        data = getattr(attribute, "data", None)
        return data if data is not None else attribute.value.data  # type: ignore[attr-defined]

    def result(self, tensor: Tensor, result: int = 0) -> Tensor:
        """A computed tensor in the element type of a result."""
        return narrow(tensor, self.element(result))

    def error(self, message: str) -> EvaluationError:
        """An error that names the op and where it comes from."""
        return EvaluationError(f"{self.operation.name}: {message} ({describe(self.operation)})")

    def region(self, index: int, arguments: Sequence[Any]) -> list[Any]:
        """Runs a region of the op and returns the operands of its terminator."""
        return self.machine.run_block(self.operation.regions[index].block, arguments, self.values)


def computed(function: Callable[..., Tensor]) -> Implementation:
    """The implementation that widens the operands, applies `function` and narrows the result."""

    def implementation(op: EvaluatedOp, *operands: Tensor) -> Tensor:
        return op.result(function(*map(widen, operands)))

    return implementation


def integers(tensor: Tensor) -> list[int]:
    """The elements of an index operand (axes, sizes, bounds)."""
    return widen(tensor).reshape(-1).tolist()


def front_axes(op: EvaluatedOp, axes: Tensor, rank: int) -> list[int]:
    """Axes counted from the front.

    Raises:
        EvaluationError: one is out of range or they repeat.
    """
    given = integers(axes)
    if any(not -rank <= axis < rank for axis in given):
        raise op.error(f"axes {given} are out of range for rank {rank}")
    result = [axis % rank for axis in given]
    if len(set(result)) != len(result):
        raise op.error(f"axes {given} repeat one another")
    return result


def axis_of(op: EvaluatedOp, axis: Tensor, rank: int) -> int:
    """A single axis counted from the front."""
    return front_axes(op, axis, rank)[0]
