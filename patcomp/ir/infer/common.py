"""The base of the inference functions: errors, the registry, the op that they get, rules for shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from patcomp.ir.constants import MOST_INTEGERS, constant_integers
from patcomp.ir.rows import Row
from patcomp.ir.types import FAMILIES, Shape, shape_of, tensor
from patcomp.ir.xdsl import Attribute, SSAValue, TensorType, maker_of


class InferenceError(ValueError):
    """The operands of an op do not fit each other."""


class UndeterminedError(InferenceError):
    """The result types depend on values known only at run time, so the author of the op must state them."""


class RuntimeRefusalError(InferenceError):
    """The dialect allows the operands, but the Core AI runtime aborts on them or computes something else."""


@dataclass(frozen=True)
class InferredOp:
    """An op as an inference function sees it: what is known of its operands before the run."""

    row: Row
    operands: Sequence[SSAValue]
    properties: Mapping[str, Attribute]

    def shape(self, operand: int = 0) -> Shape:
        return shape_of(self.operands[operand].type)

    def shapes(self) -> list[Shape]:
        return [shape_of(operand.type) for operand in self.operands]

    def element(self, operand: int = 0) -> Attribute:
        type_ = self.operands[operand].type
        if not isinstance(type_, TensorType):
            raise InferenceError(f"expected a tensor, got {type_}")
        return type_.element_type

    def length(self, operand: int) -> int | None:
        """The number of elements of a 1-d operand, None if it is dynamic."""
        return self.shape(operand)[0]

    def integers(self, operand: int) -> tuple[int, ...] | None:
        """The integers of an operand, None if it is not constant."""
        return constant_integers(self.operands[operand])

    def sizes(self, operand: int, count: int, what: str) -> tuple[int, ...] | None:
        """The `count` integers of an operand, None if it is not constant."""
        integers = self.integers(operand)
        if integers is not None:
            require(len(integers) == count, f"{what} must have {count} values, got {list(integers)}")
        return integers

    def axes(self, operand: int, rank: int) -> tuple[int, ...] | None:
        """The axes in an operand, counted from the front; None if it is not constant."""
        integers = self.integers(operand)
        if integers is None:
            return None
        axes = tuple(normalize_axis(axis, rank) for axis in integers)
        require(len(set(axes)) == len(axes), f"axes {list(integers)} repeat one another")
        return axes

    def partial(self, operand: int) -> Shape | None:
        """The integers of an operand, None for each that is only known at run time; None if their number is unknown."""
        return partial_integers(self.operands[operand])

    def result(self, shape: Sequence[int | None], element: int | str | None = None) -> list[Attribute]:
        """One result of a shape.

        Args:
            element: its element type by name, or the operand that has it; by default what the row says.
        """
        element = self.row.result_element if element is None else element
        if isinstance(element, int):
            return [tensor(shape, self.element(element))]
        return [tensor(shape, FAMILIES.get(element, (element,))[0])]


Inference = Callable[[InferredOp], list[Attribute]]

INFERENCES: dict[str, Inference] = {}


def inference(function: Inference) -> Inference:
    """Register a function under the name that rows of the table give it."""
    INFERENCES[function.__name__.strip("_")] = function
    return function


def require(condition: bool, message: str, error: type[InferenceError] = InferenceError) -> None:
    """Raise `error` with a message unless a condition holds."""
    if not condition:
        raise error(message)


def normalize_axis(axis: int, rank: int) -> int:
    """An axis counted from the end as one counted from the front.

    Raises:
        InferenceError: the axis is out of range.
    """
    require(-rank <= axis < rank, f"axis {axis} is out of range for rank {rank}")
    return axis % rank


SIZE_MAKERS = frozenset(f"coreai.{name}" for name in ("get_shape", "cast", "reshape", "shrink_dims", "concat", "slice"))
"""The ops through which `partial_integers` follows a vector of sizes."""


_FEWEST = {"coreai.get_shape": 1, "coreai.cast": 1, "coreai.reshape": 1, "coreai.shrink_dims": 1, "coreai.slice": 4}
"""How many operands `partial_integers` reads at least."""


def partial_integers(value: SSAValue) -> Shape | None:
    """The integers of an index operand, None for each known at run time only; None if their number is unknown, too.

    A size vector that is made of constants and of dimensions of tensors is followed to where these come from.
    """
    if (constant := constant_integers(value)) is not None:
        return constant
    shape, maker = shape_of(value.type), maker_of(value)
    if maker is None:
        return _unknown(shape)
    name, operands = maker.name, maker.operands
    if not all(isinstance(operand.type, TensorType) for operand in operands) or len(operands) < _FEWEST.get(name, 0):
        return _unknown(shape)  # the op is invalid; the verifier says so when it comes to it
    if name == "coreai.get_shape":
        return shape_of(operands[0].type)
    if name in ("coreai.cast", "coreai.reshape", "coreai.shrink_dims"):
        inner = partial_integers(operands[0]) if len(shape_of(operands[0].type)) < 2 else None
        return inner if inner is not None and _unknown(shape) == (None,) * len(inner) else _unknown(shape)
    if name == "coreai.concat" and len(shape) == 1:
        parts = [partial_integers(part) for part in operands[1:]]
        return None if None in parts else tuple(item for part in parts for item in part)  # type: ignore[union-attr]
    if name == "coreai.slice" and len(shape) == 1:
        inner, bounds = partial_integers(operands[0]), [constant_integers(bound) for bound in operands[1:4]]
        if inner is not None and all(bound is not None and len(bound) == 1 for bound in bounds) and bounds[2] != (0,):
            return inner[slice(*(bound[0] for bound in bounds))]  # type: ignore[index, arg-type]
    return _unknown(shape)


def _unknown(shape: Shape) -> Shape | None:
    if len(shape) > 1 or None in shape:
        return None
    count = math.prod(dim for dim in shape if dim is not None)
    return (None,) * count if count <= MOST_INTEGERS else None


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The numpy broadcast of shapes; a dynamic dimension against a static one above 1 takes the static one.

    Raises:
        InferenceError: the shapes do not broadcast.
    """
    rank = max(len(shape) for shape in shapes)
    result: list[int | None] = []
    for position in range(-rank, 0):
        dims = [shape[position] for shape in shapes if len(shape) >= -position]
        static = {dim for dim in dims if dim is not None and dim != 1}
        if len(static) > 1:
            raise InferenceError("shapes " + ", ".join(shape_text(shape) for shape in shapes) + " do not broadcast")
        result.append(static.pop() if static else None if None in dims else 1)
    return tuple(result)


def shape_text(shape: Shape) -> str:
    """A shape for messages, `2x?`."""
    return "x".join("?" if dim is None else str(dim) for dim in shape) or "scalar"


def compatible(left: Shape, right: Shape) -> bool:
    """Whether two shapes can be the same at run time: equal rank, equal dimensions where both are static."""
    return len(left) == len(right) and all(a is None or b is None or a == b for a, b in zip(left, right, strict=True))


def merge(left: Shape, right: Shape) -> Shape:
    """The more static of two compatible shapes, dimension by dimension."""
    return tuple(b if a is None else a for a, b in zip(left, right, strict=True))
