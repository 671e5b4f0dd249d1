"""The frames of stored tensors (`rewrites/target/frames.py`), against numbers: all frames of small tensors.

`stored(x, frame)` is what a frame means. An op that is carried must give the stored result from stored operands.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.evaluate.machine import evaluate
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.rewrites.target.frames import (
    _CARRIERS,
    Carried,
    Frame,
    carried,
    channels_first,
    order,
    regrouped,
    renamed_units,
    source_frame,
    stored_shape,
    transposed,
)
from tests.helpers.programs import program

Shape = tuple[int, ...]


def stored(x: torch.Tensor, frame: Frame) -> torch.Tensor:
    """A tensor as a frame says that it is stored."""
    axes = [axis for axis in frame if axis is not None]
    missing = [axis for axis in range(x.dim()) if axis not in axes]
    return x.permute([*axes, *missing]).reshape(stored_shape(tuple(x.shape), frame))


def frames(shape: Sequence[int], *, added: bool = True) -> Iterator[Frame]:
    """All frames of a shape: all orders, without some axes of size 1, with one further dimension or none."""
    units = [axis for axis, size in enumerate(shape) if size == 1]
    for count in range(len(units) + 1):
        for dropped in itertools.combinations(units, count):
            for axes in itertools.permutations(axis for axis in range(len(shape)) if axis not in dropped):
                yield axes
                if added:
                    yield from ((*axes[:place], None, *axes[place:]) for place in range(len(axes) + 1))


def type_of(shape: Sequence[int]) -> str:
    return "x".join([*map(str, shape), "f32"])


def numbers(shape: Sequence[int]) -> torch.Tensor:
    return torch.arange(1.0, torch.Size(shape).numel() + 1).reshape(tuple(shape)) / 8


Form = Callable[..., Value | Sequence[Value]]


@dataclass(frozen=True)
class Op:
    """An op on tensors of some shapes, in several forms."""

    shapes: tuple[Shape, ...]
    forms: Sequence[Form]
    refused: int
    """For how many frames of the operands, in all forms, the op wants them in order."""


AXES = [*range(3), -1, -3]
SEVERAL = [*((axis,) for axis in AXES), (0, 1), (1, 2), (2, 0), (0, 1, 2)]
PARTS = [((0, 1, 0), (2, 3, 4), (1, 1, 1)), ((0, 0, 3), (2, 3, 4), (1, 2, 1)), ((1, -2, 0), (2, 3, -1), (1, 1, 2))]


def sums(axes: tuple[int, ...]) -> Form:
    return lambda x: coreai.reduce_sum(x, list(axes))


def largest(axis: int) -> Form:
    return lambda x: coreai.reduce_max(x, [axis])


def softmax(axis: int) -> Form:
    return lambda x: coreai.softmax(x, axis)


def joined(axis: int) -> Form:
    return lambda x, y: coreai.concat(axis, [x, y])


def part(starts: tuple[int, ...], ends: tuple[int, ...], steps: tuple[int, ...]) -> Form:
    return lambda x: coreai.slice_(x, list(starts), list(ends), list(steps))


def padded(x: Value) -> Value:
    return coreai.pad(x, [0, 1, 2, 0, 1, 3], 0.5, padding_mode="constant")


WHOLE = (2, 3, 4)
OPS: dict[str, Op] = {
    "exp": Op((WHOLE,), [coreai.exp], 5),
    "add": Op((WHOLE, WHOLE), [coreai.broadcasting_add], 25),
    "a row": Op((WHOLE, (4,)), [coreai.broadcasting_add], 15),
    "a column": Op(((3, 1), WHOLE), [coreai.broadcasting_sub], 55),
    "units": Op(((2, 1, 3), (1, 1, 3)), [coreai.broadcasting_mul], 931),
    "reduce": Op((WHOLE,), [sums(axes) for axes in SEVERAL], 0),
    "reduce a unit": Op(((2, 1, 3),), [largest(axis) for axis in AXES], 8),
    "softmax": Op((WHOLE,), [softmax(axis) for axis in AXES], 0),
    "concat": Op(((2, 3, 2), (2, 3, 2)), [joined(axis) for axis in AXES], 125),
    "slice": Op((WHOLE,), [part(*bounds) for bounds in PARTS], 0),
    "pad": Op(((2, 3, 1),), [padded], 8),
    "split": Op((WHOLE,), [lambda x: coreai.split(x, [1, 2], 1), lambda x: coreai.split(x, [1, 3], -1)], 0),
}


@pytest.mark.parametrize("name", OPS)
def test_carried_ops_give_the_stored_results(name: str) -> None:
    assert check(OPS[name]) == OPS[name].refused


def check(op: Op) -> int:
    """Check an op for all frames of its operands; return how often it is not carried."""
    refused = 0
    inputs = [numbers(shape) + place for place, shape in enumerate(op.shapes)]
    types = {f"x{place}": type_of(shape) for place, shape in enumerate(op.shapes)}
    for form in op.forms:
        module = program(types, form)
        expected = list(evaluate(module, {f"x{place}": x for place, x in enumerate(inputs)}).values())
        block = module.graph("main").regions[0].block
        operation, arguments = block.last_op.operands[0].owner, list(block.args)  # type: ignore[union-attr]
        assert isinstance(operation, CoreaiOp)
        known: dict[object, torch.Tensor] = {}
        for chosen in itertools.product(*(frames(shape) for shape in op.shapes)):
            how = carried(
                operation, [chosen[arguments.index(each)] if each in arguments else None for each in operation.operands]
            )
            if how is None:
                refused += 1
                continue
            key = (tuple(str(each) for each in how.operands), how.result)
            if key not in known:
                known[key] = torch.empty(0)
                check_carried(operation, how, dict(zip(arguments, inputs, strict=True)), expected)
    return refused


def check_carried(
    operation: CoreaiOp, how: Carried, inputs: Mapping[Any, torch.Tensor], expected: Sequence[torch.Tensor]
) -> None:
    """Compute an op on stored operands, and compare the results."""
    given = {
        place: stored(inputs[operand], frame)
        for place, (operand, frame) in enumerate(zip(operation.operands, how.operands, strict=True))
        if isinstance(frame, tuple)
    }

    def body(*values: Value) -> list[Value]:
        by_place = dict(zip(given, values, strict=True))
        operands = []
        for place, (operand, wanted) in enumerate(zip(operation.operands, how.operands, strict=True)):
            if place in by_place:
                operands.append(by_place[place].ssa)
            elif isinstance(wanted, np.ndarray):
                operands.append(coreai.constant(wanted).ssa)
            else:
                operands.append(Builder.current().insert(operand.owner.clone()).results[0])
        results = [tensor(stored_shape(Value(result).static_shape, how.result), "f32") for result in operation.results]
        copy = type(operation).create(operands=operands, result_types=results, properties=dict(operation.properties))
        return [Value(result) for result in Builder.current().insert(copy).results]

    types = {f"x{place}": type_of(value.shape) for place, value in given.items()}
    module = program(types, body)
    found = list(evaluate(module, {f"x{place}": value for place, value in given.items()}).values())
    for one, other in zip(expected, found, strict=True):
        close = torch.allclose(stored(one, how.result), other, rtol=1e-6)  # softmax rounds by the order
        assert close, (str(operation), how)


def test_every_carrier_is_checked() -> None:
    assert set(_CARRIERS) == {
        f"coreai.{name}" for name in OPS if name in ("softmax", "concat", "slice", "pad", "split")
    }


# ---- views ---------------------------------------------------------------------------------------


def test_a_transposed_frame_is_the_same_stored_tensor() -> None:
    for shape in ((2, 3, 4), (2, 1, 3), (1, 2), (2, 2, 3)):
        x = numbers(shape)
        for permutation in itertools.permutations(range(len(shape))):
            module = program({"x": type_of(shape)}, lambda v, p=permutation: coreai.transpose(v, list(p)))
            operation = next(op for op in module.op.walk() if op.name == "coreai.transpose")
            for frame in frames(shape):
                found = transposed(operation, frame)
                assert found is not None
                assert torch.equal(stored(x.permute(permutation), found), stored(x, frame))


def shapes(count: int, rank: int) -> list[Shape]:
    """All shapes of some elements with at most two sizes of 1."""
    sizes = [size for size in range(1, count + 1) if count % size == 0]
    return [
        shape
        for length in range(1, rank + 1)
        for shape in itertools.product(sizes, repeat=length)
        if torch.Size(shape).numel() == count and shape.count(1) <= 2
    ]


def reshapes(count: int, rank: int) -> Iterator[tuple[Shape, Shape]]:
    return itertools.product(shapes(count, rank), repeat=2)


def test_frames_of_views() -> None:
    count = dict.fromkeys(("renamed", "regrouped", "source"), 0)
    for before, after in (*reshapes(6, 3), *reshapes(8, 3)):
        x = numbers(before)
        for frame in frames(before, added=False):
            named, grouped = renamed_units(before, after, frame), regrouped(before, after, frame)
            for name, result in (("renamed", named), ("regrouped", grouped)):
                if result is not None:
                    count[name] += 1
                    view = stored(x, frame).reshape(stored_shape(after, result))
                    assert torch.equal(view, stored(x.reshape(after), result)), (before, after, frame)
            for result in (named, grouped, channels_first(before, after)):
                if result is not None:
                    count["source"] += 1
                    source = source_frame(before, after, frame, result)
                    view = stored(x, source).reshape(stored_shape(after, result))
                    assert torch.equal(view, stored(x.reshape(after), result)), (before, after, frame, result)
            same_sizes = [size for size in before if size != 1] == [size for size in after if size != 1]
            assert (named is not None) == same_sizes
    assert count == {"renamed": 902, "regrouped": 2176, "source": 3200}


def test_frames_of_equal_orders_differ_in_views_only() -> None:
    for shape in ((2, 1, 3), (1, 2, 1), (2, 3)):
        x = numbers(shape)
        for one, other in itertools.product(frames(shape), repeat=2):
            same = torch.equal(stored(x, one).reshape(-1), stored(x, other).reshape(-1))
            assert same == (order(shape, one) == order(shape, other))
