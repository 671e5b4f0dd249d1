"""Which values of a loop the runtime may write over before its body has read them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from patcomp.defects.known.carried_values_in_place import read_unsafely
from patcomp.defects.known.conditions_in_place import is_unsafe_condition
from patcomp.ir import Value, tensor
from patcomp.ir import coreai as c
from tests.evaluate.loop_programs import loop
from tests.helpers.programs import program


def own(x: Value) -> Value:
    """A value that an op computes."""
    return c.broadcasting_mul(x, 0.5)  # type: ignore[no-any-return]


def nested(a: Value) -> Value:
    return c.if_(c.constant(True), lambda: [own(a)], lambda: [a])[0]


def updated(a: Value, rows: Value) -> Value:
    return c.scatter_nd(a, c.constant(np.array([[1]], np.int32)), rows)  # type: ignore[no-any-return]


def zeros() -> Value:
    return c.constant(np.zeros((2, 2), np.int32))  # type: ignore[no-any-return]


def row(x: Value) -> Value:
    return c.slice_(x, [0, 0], [1, 2], [1, 1])  # type: ignore[no-any-return]


READS: dict[str, tuple[Callable[[Value, Value], list[Value]], list[int]]] = {
    "elementwise": (lambda a, b: [own(a), own(b)], []),
    "twice by one op": (lambda a, b: [c.broadcasting_mul(a, a), own(b)], []),
    "by two ops": (lambda a, b: [c.broadcasting_add(own(a), c.exp(a)), own(b)], [1]),
    "only handed on": (lambda a, b: [b, a], []),
    "handed on and read": (lambda a, b: [b, own(b)], [2]),
    "moved": (lambda a, b: [c.reverse(a, [0]), own(b)], [1]),
    "in a block": (lambda a, b: [own(b), nested(a)], [1]),
    "after a block": (lambda a, b: [nested(own(b)), own(a)], [1]),
    "before a block": (lambda a, b: [own(a), nested(own(b))], []),
    "after a call": (lambda a, b: [*c.invoke("f", [own(b)], [tensor((2, 2), "f32")]), own(a)], [1]),
    "updated": (lambda a, b: [updated(a, row(own(b))), own(own(b))], [2]),
    "updates": (lambda a, b: [updated(own(b), row(a)), c.broadcasting_mul(own(b), 2.0)], [1, 2]),
    "updates of another": (lambda a, b: [c.scatter_along_axis(own(b), zeros(), a, 0), own(b)], [1, 2]),
    "updates of itself": (lambda a, b: [c.scatter_along_axis(a, zeros(), a, 0), own(b)], [1]),
}  # fmt: skip
"""What a loop computes of two carried values, and the numbers of the values that it may read too late."""


@pytest.mark.parametrize("name", READS)
def test_reads_of_carried_values_that_may_be_too_late(name: str):
    step, unsafe = READS[name]
    module = program({"x": "2x2xf32", "y": "2x2xf32"}, lambda x, y: loop(3, [x, y], step))
    (outer,) = (op for op in module.op.walk() if op.name == "coreai.while")
    assert [argument.index for argument in read_unsafely(outer.regions[1].block)] == unsafe


def test_tokens_are_no_memory():
    def body(handle: Value, x: Value) -> list[Value]:
        def step(a: Value, token: Value) -> list[Value]:
            return [own(a), c.write_handle(handle, x, token)]

        return loop(3, [x, c.create_token()], step)

    module = program({"x": "2xf32"}, body, states={"state": "2xf32"})
    (outer,) = (op for op in module.op.walk() if op.name == "coreai.while")
    assert list(read_unsafely(outer.regions[1].block)) == []


def test_a_condition_that_passes_on_other_values_is_left_alone():
    def body(x: Value, y: Value) -> list[Value]:
        goes_on = lambda i, *_: c.and_(c.broadcasting_greater(3, i), c.broadcasting_greater(4, i))  # noqa: E731
        return c.while_([c.constant(0), x, y], goes_on, lambda i, a, b: [c.broadcasting_add(i, 1), own(a), own(b)])[1:]

    module = program({"x": "2xf32", "y": "2xf32"}, body)
    (outer,) = (op for op in module.op.walk() if op.name == "coreai.while")
    assert is_unsafe_condition(outer)
    terminator = outer.regions[0].block.last_op
    flag, i, a, b = terminator.operands
    terminator.operands = [flag, i, b, a]
    assert not is_unsafe_condition(outer)
