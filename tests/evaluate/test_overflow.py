"""Evaluations that find what half precision cannot hold, on programs of a few Core AI ops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from patcomp.evaluate.expectation import Expectation
from patcomp.evaluate.kept import _fewest
from patcomp.evaluate.loss import _loss, verify_compressed
from patcomp.evaluate.machine import evaluate
from patcomp.evaluate.overflow import Overflow, OverflowMachine, first_overflow, overflows_of_half
from patcomp.evaluate.verification import Verification
from patcomp.ir import Value, coreai, tensor
from patcomp.ir.module import IRModule
from tests.helpers.programs import program

ADD, MUL, SQUARE = "coreai.decomposable.broadcasting_add", "coreai.decomposable.broadcasting_mul", "coreai.square"
Body = Callable[[Value], Any]


def times(x: Value, number: float) -> Value:
    return coreai.broadcasting_mul(x, number)


def add(x: Value, y: Any) -> Value:
    return coreai.broadcasting_add(x, y)


def loop(x: Value, body: Body) -> Value:
    """A body, twice."""
    return coreai.while_(
        [coreai.constant(0), x],
        lambda i, x: coreai.broadcasting_greater(coreai.constant(2), i),
        lambda i, x: [coreai.broadcasting_add(i, 1), body(x)],
    )[1]


def goes_on(x: Value) -> Value:
    """Once in float32, and three times if the numbers are infinite."""
    return coreai.while_(
        [coreai.constant(0), x],
        lambda i, x: coreai.broadcasting_and(
            coreai.broadcasting_greater(coreai.constant(3), i),
            coreai.broadcasting_greater(coreai.reshape(coreai.reduce_max(x, [0]), []), coreai.constant(65500, "f16")),
        ),
        lambda i, x: [coreai.broadcasting_add(i, 1), add(x, -30000)],
    )[1]


def found_in(type_: str, body: Body, given: Tensor, find: Callable[[IRModule, Tensor], Sequence[Overflow]]) -> Any:
    """Each overflow: the op, the call that it is in, and the number."""
    found = find(program({"x": type_}, body), given)
    return [(each.operation.name, each.call and each.call.name, each.value) for each in found]


FOUND: dict[str, tuple[str, Body, list[float], list[tuple[str, str | None, float]]]] = {
    "nothing": ("2xf32", lambda x: times(x, 2), [1, 32752], []),
    "a large number": ("2xf32", lambda x: times(x, 2), [1, 32753], [(MUL, None, 65506)]),
    "a negative one is larger": ("2xf32", lambda x: times(x, 2), [40000, -50000], [(MUL, None, -100000)]),
    "an infinity": ("2xf32", coreai.exp, [0, 1000], [("coreai.exp", None, math.inf)]),
    "too large already": ("1xf32", lambda x: times(x, 2), [70000], []),
    "a constant": ("1xf32", lambda x: add(x, 1e6), [1], []),
    "integers": ("1xsi32", lambda x: coreai.broadcasting_mul(x, 1000000), [1], []),
    "no elements": ("0xf32", lambda x: times(x, 60000), [], []),
    "what follows": ("1xf32", lambda x: coreai.sin(add(times(x, 50000), x)), [20], [(MUL, None, 1e6)]),
    "two of them": ("1xf32", lambda x: [times(x, 50000), add(x, 65500)], [20], [(MUL, None, 1e6), (ADD, None, 65520)]),
    "twice in a loop": (
        "1xf32", lambda x: loop(x, lambda y: coreai.tanh(times(y, 65504))), [20], [(MUL, "coreai.while", 20 * 65504)]
    ),
    "twice, and both times beyond": (
        "1xf32", lambda x: loop(x, lambda y: coreai.tanh(times(times(y, 300), 300))), [1],
        [(MUL, "coreai.while", 90000)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_where_values_first_exceed_float16(name: str) -> None:
    type_, body, given, expected = FOUND[name]

    def find(module: IRModule, x: Tensor, half: bool = True) -> list[Overflow]:
        machine = OverflowMachine(module, half=half)
        evaluate(module, {"x": x}, machine=machine)
        return machine.overflows

    x = torch.tensor(given, dtype=torch.int32 if "si" in type_ else torch.float32)
    assert found_in(type_, body, x, find) == expected
    assert found_in(type_, body, x, lambda *args: find(*args, half=False)) == []


def test_not_a_number_and_floats_of_float16() -> None:
    module = program({"x": "1xf16"}, lambda x: [coreai.log(x), times(times(coreai.cast(x, "f32"), 300), 300)])
    machine = OverflowMachine(module)
    evaluate(module, {"x": -torch.ones(1).half()}, machine=machine)
    assert [each.operation.name for each in machine.overflows] == ["coreai.log"]
    assert math.isnan(machine.overflows[0].value)


def test_states_are_no_numbers() -> None:
    def body(state: Value, x: Value) -> list[Value]:
        return [times(x, 65504), coreai.write_handle(state, x, coreai.create_token())]

    module = program({"x": "1xf32"}, body, states={"s": "1xf32"})
    machine = OverflowMachine(module, half=True)
    evaluate(module, {"x": torch.full((1,), 2.0)}, state={"s": torch.zeros(1)}, machine=machine)
    assert [each.operation.name for each in machine.overflows] == [MUL]


def test_each_call_of_a_graph_has_its_own_overflows() -> None:
    type_ = tensor((1,), "f32")
    module = program({"x": "1xf32"}, lambda x: coreai.tanh(times(times(x, 300), 300)), name="inner")
    program({"x": "1xf32"}, lambda x: coreai.invoke("inner", [x], [type_]), name="outer", module=module)
    program({"x": "1xf32"}, lambda x: coreai.invoke("inner", coreai.invoke("outer", [x], [type_]), [type_]),
            module=module)  # fmt: skip
    machine = OverflowMachine(module, half=True)
    evaluate(module, {"x": torch.ones(1)}, machine=machine)
    calls = [op for op in module.graph("main").regions[0].block.ops if op.name == "coreai.invoke"]
    assert [each.call for each in machine.overflows] == calls
    assert [each.place for each in machine.overflows] == calls
    assert [each.composite({"outer": "norm"}) for each in machine.overflows] == ["norm", None]


HALF: dict[str, tuple[Body, list[float], list[tuple[str, str | None, float]]]] = {
    "nothing": (lambda x: times(x, 2), [1, 2], []),
    "finite in float32": (lambda x: times(times(x, 300), 300), [1, 2], [(MUL, None, 180000)]),
    "what follows, too": (lambda x: times(times(times(x, 300), 300), 0.5), [1, 2],
                          [(MUL, None, 180000), (MUL, None, 90000)]),
    "ops in float32": (lambda x: times(coreai.cast(x, "f32"), 1e6), [1, 2], []),
    "infinite in float32, too": (lambda x: coreai.log(add(x, -1)), [1, 2], []),
    "one more than in float32": (lambda x: times(coreai.log(add(x, -1)), 60000), [1, 4],
                                 [(MUL, None, 60000 * math.log(3))]),
    "a cast of it": (lambda x: coreai.cast(times(times(x, 300), 300), "f32"), [1, 2], [(MUL, None, 180000)]),
    "in a loop": (lambda x: loop(x, lambda y: coreai.tanh(times(times(y, 300), 300))), [1, 2],
                  [(MUL, "coreai.while", 180000), (MUL, "coreai.while", 300 * 300)]),
}  # fmt: skip


@pytest.mark.parametrize("name", HALF)
def test_what_half_precision_makes_infinite(name: str) -> None:
    body, given, expected = HALF[name]

    def find(module: IRModule, x: Tensor) -> list[Overflow]:
        return overflows_of_half(module, {"x": x}, {}, "main")

    found = found_in("2xf16", body, torch.tensor(given).half(), find)
    assert [each[:2] for each in found] == [each[:2] for each in expected]
    assert [each[2] for each in found] == pytest.approx([each[2] for each in expected], rel=1e-3)


def test_the_first_overflow_is_told() -> None:
    module = program({"x": "2xf16"}, lambda x: times(times(x, 300), 300))
    told = first_overflow(module, {"x": torch.ones(2).half()}, {}, "main")
    assert told is not None
    assert (told.op, told.value) == (MUL, 90000)
    assert first_overflow(module, {"x": torch.zeros(2).half()}, {}, "main") is None


def test_a_loop_that_goes_on_in_half_precision() -> None:
    module = program({"x": "2xf16"}, lambda x: goes_on(times(times(x, 300), 300)))
    told = first_overflow(module, {"x": torch.ones(2).half()}, {}, "main")
    assert told is not None
    assert (told.op, told.value) == (MUL, 90000)


# ---- the fewest ops in float32 -------------------------------------------------------------------


MASKS = list(itertools.product((False, True), repeat=3))


def test_no_op_can_be_left_out_of_the_fewest() -> None:
    """For every function of three ops of which all are enough, and none is not."""
    every = ["a", "b", "c"]
    parts = [[each for each, taken in zip(every, mask, strict=True) if taken] for mask in MASKS]
    for answers in itertools.product((False, True), repeat=6):
        enough = dict(zip(map(tuple, parts), (False, *answers, True), strict=True))
        kept = _fewest(every, lambda nodes, enough=enough: enough[tuple(nodes)])
        assert enough[tuple(kept)]
        assert not any(enough[tuple(other for other in kept if other != each)] for each in kept)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_fewest_are_the_needed_ones(count: int) -> None:
    """In few trials if few are needed."""
    every = [str(index) for index in range(count)]
    for needed in itertools.chain(([each] for each in every), ([*pair] for pair in itertools.combinations(every, 2))):
        trials: list[Sequence[str]] = []

        def is_enough(nodes: Sequence[str], needed: list[str] = needed, trials: list[Any] = trials) -> bool:
            trials.append(nodes)
            return set(needed) <= set(nodes)

        assert _fewest(every, is_enough) == needed
        assert len(trials) <= 2 * count + 3


# ---- what stored weights cost ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "given", "rms"),
    [
        ([3.0, -4.0], [3.0, -4.0], 0.0),
        ([3.0, -4.0], [3.0, -3.0], 0.2),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 0.0], [0.0, 1.0], 1.0),
        ([1.0, 1.0], [math.inf, 1.0], math.inf),
        ([3 + 4j, 0j], [3 + 3j, 0j], 0.2),
        ([1, 2, 3, 4], [1, 2, 3, 5], 0.25),
        ([True, False], [True, True], 0.5),
        ([], [], 0.0),
    ],
)
def test_the_loss_of_an_output(expected: list[Any], given: list[Any], rms: float) -> None:
    wanted, made = torch.tensor(expected), torch.tensor(given)
    loss = _loss("y0", wanted, made)
    assert (loss.name, loss.rms) == ("y0", pytest.approx(rms))


def test_a_program_is_right_by_its_own_weights_and_loses_what_they_lose() -> None:
    module, inputs = program({"x": "2xf32"}, coreai.sin), {"x": torch.tensor([1.0, 2.0])}
    exact = Expectation(torch.sin, {}, {}, {"y0": 2 * torch.sin(inputs["x"])}, dict)

    def verified(factor: float) -> Verification:
        runs = {"runtime": lambda values, states: {"y0": factor * torch.sin(values["x"])}}
        return verify_compressed(module, exact, (inputs, {}), "main", runs)

    assert [verified(factor).errors[0].passed for factor in (1.0, 1.1)] == [True, False]
    assert verified(1.0).reference == "its own weights on the evaluator"
    assert [(each.name, each.rms) for each in verified(1.0).loss] == [("y0", pytest.approx(0.5))]
