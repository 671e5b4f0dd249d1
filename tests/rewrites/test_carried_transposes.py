"""The step that carries transposes: the elements stay the same, bit for bit, and few transposes are left."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from patcomp.emit.native import Native
from patcomp.evaluate.machine import evaluate
from patcomp.ir import IRModule, Value, coreai
from patcomp.ir.verify import verify
from patcomp.rewrites.target.transposes import carry_transposes
from tests.helpers.programs import program

Body = Callable[..., Value | Sequence[Value]]


def turned(x: Value, *order: int) -> Value:
    return coreai.transpose(x, list(order))


def ops(module: IRModule, name: str) -> int:
    return sum(op.name == f"coreai.{name}" for op in module.op.walk())


def weight(*shape: int) -> Value:
    return coreai.constant(torch.linspace(-1, 1, math.prod(shape)).reshape(shape).numpy())


CARRIED: dict[str, tuple[Body, int]] = {
    "two transposes": (lambda x: turned(turned(x, 1, 2, 0), 2, 0, 1), 0),
    "an element-wise op": (lambda x: turned(coreai.exp(turned(x, 0, 2, 1)), 0, 2, 1), 0),
    "a constant that broadcasts": (
        lambda x: turned(coreai.broadcasting_mul(turned(x, 0, 2, 1), weight(3)), 0, 2, 1), 1,  # of the constant
    ),
    "two operands": (
        lambda x: turned(coreai.broadcasting_add(turned(x, 2, 0, 1), turned(coreai.exp(x), 2, 0, 1)), 1, 2, 0), 0,
    ),
    "a number": (lambda x: turned(coreai.broadcasting_mul(turned(x, 0, 2, 1), 2.0), 0, 2, 1), 0),
    "a reduction": (lambda x: turned(coreai.reduce_max(turned(x, 0, 2, 1), [1]), 0, 2, 1), 0),
    "a softmax": (lambda x: turned(coreai.softmax(turned(x, 0, 2, 1), 1), 0, 2, 1), 0),
    "a slice": (
        lambda x: turned(coreai.slice_(turned(x, 0, 2, 1), [0, 1, 0], [2, 3, 2], [1, 1, 1]), 0, 2, 1), 0,
    ),
    "a concat": (
        lambda x: turned(coreai.concat(1, [turned(x, 0, 2, 1), turned(coreai.exp(x), 0, 2, 1)]), 0, 2, 1), 0,
    ),
    "a split": (lambda x: [turned(part, 0, 2, 1) for part in coreai.split(turned(x, 0, 2, 1), [1, 3], 1)], 0),
    "a pad": (
        lambda x: turned(coreai.pad(turned(x, 0, 2, 1), [0, 0, 1, 2, 0, 3], 0.5, padding_mode="constant"), 0, 2, 1), 0,
    ),
    "heads": (
        lambda x: coreai.reshape(turned(coreai.reshape(turned(x, 0, 2, 1), [2, 4, 3, 1]), 0, 2, 1, 3), [2, 3, 4]), 0,
    ),
    "a dimension of size 1": (
        lambda x: coreai.shrink_dims(turned(coreai.expand_dims(turned(x, 0, 2, 1), [2]), 0, 3, 2, 1), [2]), 0,
    ),
    "joined dimensions, which need their order": (lambda x: coreai.reshape(turned(x, 0, 2, 1), [2, 12]), 1),
    "an output": (lambda x: turned(x, 0, 2, 1), 1),
    "a value that is read in both orders": (lambda x: [coreai.exp(turned(x, 0, 2, 1)), x], 1),
    "few readers in order": (
        # one transpose of the whole, not one for each part
        lambda x: [coreai.batch_matmul(part, turned(part, 0, 2, 1)) for part in coreai.split(
            coreai.exp(turned(x, 0, 2, 1)), [1, 3], 1)], 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CARRIED)
def test_what_is_left(name: str, native: Native) -> None:
    body, left = CARRIED[name]
    module = program({"x": "2x3x4xf32"}, body)
    expected = evaluate(module, {"x": (x := torch.randn(2, 3, 4))})
    assert carry_transposes(module) > 0 or left
    verify(module)
    assert ops(module, "transpose") <= left
    given_outputs = native.run(module, {"x": x})
    for output, made in evaluate(module, {"x": x}).items():
        if name == "a softmax":  # its sum has another order
            torch.testing.assert_close(made, expected[output])
        else:
            assert torch.equal(made, expected[output])
        torch.testing.assert_close(torch.from_numpy(given_outputs[output]), expected[output])


def test_an_op_with_regions_gets_its_operands_in_order() -> None:
    def body(x: Value, which: Value) -> Value:
        moved = turned(coreai.exp(x), 0, 2, 1)
        return coreai.if_(which, lambda: coreai.exp(moved), lambda: moved)

    module = program({"x": "2x3x4xf32", "which": "xi1".removeprefix("x")}, body)
    inputs = {"x": torch.randn(2, 3, 4), "which": torch.tensor(True)}
    expected = evaluate(module, inputs)["y0"]
    carry_transposes(module)
    verify(module)
    assert torch.equal(evaluate(module, inputs)["y0"], expected)


def test_dynamic_sizes_are_left_alone() -> None:
    module = program({"x": "?x3x4xf32"}, lambda x: turned(coreai.exp(turned(x, 0, 2, 1)), 0, 2, 1))
    text = module.text()
    assert carry_transposes(module) == 0
    assert module.text() == text


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    """A program of moves, views and ops that compute the same in any order."""
    choices = [draw(st.integers(0, 10**6)) for _ in range(draw(st.integers(1, 14)))]

    def body(x: Value) -> list[Value]:
        values = [x]
        for choice in choices:
            value, number = values[choice % len(values)], choice // 7
            values.append(_made(value, values[number % len(values)], number))
        return values[1:][-3:]

    return body


def _made(x: Value, other: Value, number: int) -> Value:
    shape, rank = x.static_shape, x.rank
    axis = number % rank
    kinds = ("move", "move", "split", "join", "exp", "add", "row", "max", "slice", "concat", "unit", "sort")
    kind = kinds[number // 3 % len(kinds)]
    if kind == "move":
        order = list(range(rank))
        order.insert(number // 5 % rank, order.pop(axis))
        return coreai.transpose(x, order)
    if kind == "split" and rank < 5 and (factors := [n for n in (2, 3) if shape[axis] % n == 0 and shape[axis] > n]):
        return coreai.reshape(x, [*shape[:axis], factors[0], shape[axis] // factors[0], *shape[axis + 1 :]])
    if kind == "join" and axis + 1 < rank:
        return coreai.reshape(x, [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]])
    if kind == "add" and other.static_shape == shape:
        return coreai.broadcasting_add(x, other)
    if kind == "row":
        return coreai.broadcasting_mul(x, weight(shape[-1]))
    if kind == "max":
        return coreai.broadcasting_sub(x, coreai.reduce_max(x, [axis]))
    if kind == "slice" and shape[axis] > 1:
        starts, ends = [0] * rank, list(shape)
        starts[axis] = 1
        return coreai.slice_(x, starts, ends, [1] * rank)
    if kind == "concat" and other.static_shape == shape and math.prod(shape) < 500:
        return coreai.concat(axis, [x, other])
    if kind == "unit" and rank < 5:
        return coreai.expand_dims(x, [axis])
    if kind == "sort":
        return coreai.reverse(x, [axis])  # an op that is not carried
    return coreai.abs_(x)


@given(bodies())
def test_any_program_keeps_its_elements(body: Body) -> None:
    module = program({"x": "2x6x4xf32"}, body)
    inputs = {"x": torch.randn(2, 6, 4)}
    expected = evaluate(module, inputs)
    carry_transposes(module)
    verify(module, runtime=False)
    for name, made in evaluate(module, inputs).items():
        assert torch.equal(made, expected[name])
