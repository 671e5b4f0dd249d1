"""Where loops and branches get copies for the runtime, and that programs compute the same with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.defects.known.conditions_in_place import carry_conditions, is_unsafe_condition
from patcomp.defects.known.moved_copies import choose_outside_values
from patcomp.evaluate.machine import evaluate
from patcomp.ir import IRModule, Value, tensor
from patcomp.ir import coreai as c
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Operation
from patcomp.patterns.statistics import Statistics
from tests.helpers.defects import own_values
from tests.helpers.programs import program

BROADCASTING = "coreai.decomposable.broadcasting_"
INPUTS = {"x": "2x2xf32", "y": "2x2xf32", "flag": "i1"}
Body = Callable[[Value, Value, Value], Any]
Rewrite = Callable[[IRModule, Statistics], None]


def ops(module: IRModule, name: str) -> list[Operation]:
    return [op for op in module.op.walk() if op.name == name]


def place_of(op: Operation) -> str:
    """The op with the block around another op, and the number of the block."""
    around = op.parent_op()
    assert around is not None
    number = next(index for index, region in enumerate(around.regions) if op.parent in region.blocks)
    name = around.name.removeprefix("coreai.")
    return name if name == "graph" else f"{name} {number}"


def copy_ops(top: Operation) -> list[Operation]:
    return [op for op in top.walk() if len(op.operands) == 2 and op.operands[0] is op.operands[1]]


def copies(module: IRModule) -> list[str]:
    """The place and the shape of each copy."""
    found = copy_ops(module.op)
    assert {op.name for op in found} <= {f"{BROADCASTING}maximum", f"{BROADCASTING}or"}
    return [f"{place_of(op)}: {str(op.results[0].type).removeprefix('tensor<').removesuffix('>')}" for op in found]


def rewritten(rewrite: Rewrite, body: Body, inputs: dict[str, str] = INPUTS) -> tuple[IRModule, dict[str, int]]:
    """A program after a rewrite, which computes the same as before, and how often the rewrite is recorded."""
    statistics = Statistics()
    before, module = program(inputs, body), program(inputs, body)
    rewrite(module, statistics)
    verify(module, finished=False)
    for flag in (True, False):
        given = {"x": torch.tensor([[1.0, -2.0], [3.0, 0.5]]), "y": torch.eye(2), "flag": torch.tensor(flag)}
        expected, found = evaluate(before, given), evaluate(module, given)
        assert all(torch.equal(value, found[name]) for name, value in expected.items())
    assert all(entry.tries == entry.rewrites and entry.seconds == 0 for entry in statistics.rules.values())
    return module, statistics.fired


def loop(inits: list[Value], step: Callable[..., list[Value]], goes_on: Callable[..., Value] | None = None) -> Any:
    """A loop of two steps, whose counter and its first value nothing else uses; the results without the counter."""
    start = c.broadcasting_add(c.constant(0), c.constant(1))
    condition = goes_on or (lambda i, *_: c.broadcasting_greater(3, i))
    return c.while_([start, *inits], condition, lambda i, *each: [c.broadcasting_add(i, 1), *step(*each)])[1:]


def own(x: Value) -> Value:
    """A value that an op has computed for one use."""
    return c.broadcasting_mul(x, 0.5)  # type: ignore[no-any-return]


def turned(x: Value) -> Value:
    return c.transpose(x, [1, 0])  # type: ignore[no-any-return]


def stepped(init: Callable[[Value, Value], Value], step: Callable[[Value], Value] = own) -> Body:
    return lambda x, y, flag: loop([init(x, y)], lambda a: [step(a)])


def twice(x: Value, y: Value) -> Value:
    return c.broadcasting_add(c.reduce_max(shared := own(x), [0]), loop([shared], lambda a: [own(a)])[0])  # type: ignore[no-any-return]


CARRIED: dict[str, tuple[Body, list[str]]] = {
    "computed values": (stepped(lambda x, y: own(x)), []),
    "an input": (stepped(lambda x, y: x), ["graph: 2x2xf32"]),
    "a constant": (
        stepped(lambda x, y: c.constant(np.eye(2, dtype=np.float32))), ["graph: 2x2xf32"],
    ),
    "two uses": (lambda x, y, flag: twice(x, y), ["graph: 2x2xf32"]),
    "the result of a loop": (stepped(lambda x, y: loop([own(x)], lambda a: [own(a)])[0]), ["graph: 2x2xf32"]),
    "a value that is handed on": (stepped(lambda x, y: own(x), lambda a: a), ["while 1: 2x2xf32"]),
    "the result of a loop in a loop": (
        stepped(lambda x, y: own(x), lambda a: loop([own(a)], lambda b: [own(b)])[0]),
        ["while 1: 2x2xf32"],
    ),
    "a value from outside": (
        lambda x, y, flag: loop([own(x)], lambda a: [c.broadcasting_add(own(a), own(y))]), [],
    ),
    "an input from outside": (lambda x, y, flag: loop([own(x)], lambda a: [y]), ["while 1: 2x2xf32"]),
    "a computed value from outside": (
        lambda x, y, flag: (lambda made: loop([own(x)], lambda a: [made]))(own(y)), ["while 1: 2x2xf32"],
    ),
    "flags": (
        lambda x, y, flag: loop([flag], lambda a: [c.not_(a)]), ["graph: i1"],
    ),
    "an unsafe read": (stepped(lambda x, y: own(x), lambda a: c.reverse(a, [0])), ["while 1: 2x2xf32"]),
    "two reads": (
        stepped(lambda x, y: own(x), lambda a: c.broadcasting_add(own(a), c.reverse(a, [0]))), ["while 1: 2x2xf32"],
    ),
}  # fmt: skip
"""A program, and the copies that it gets."""


@pytest.mark.parametrize("name", CARRIED)
def test_copies_of_carried_values(name: str):
    body, expected = CARRIED[name]
    module, fired = rewritten(own_values, body)
    assert sorted(copies(module)) == sorted(expected)
    assert fired == ({"own carried value": len(expected)} if expected else {})
    assert own_again(module) == {}


def own_again(module: IRModule) -> dict[str, int]:
    statistics = Statistics()
    own_values(module, statistics)
    return statistics.fired


VIEWS: dict[str, Callable[[Value], Value]] = {
    "reshape": lambda x: c.reshape(x, [2, 2]),
    "expand_dims": lambda x: c.expand_dims(x, [0]),
    "shrink_dims": lambda x: c.shrink_dims(x, [0]),
    "transpose": lambda x: turned(x),
    "slice_": lambda x: c.slice_(x, [0, 0], [1, 2], [1, 1]),
    "split": lambda x: c.split(x, [1, 1], 0)[0],
    "broadcast_to": lambda x: c.broadcast_to(x, [3, 2, 2]),
    "broadcast_in_dims": lambda x: c.broadcast_in_dims(x, [3], [0]),
}
"""Ops whose result may be the memory of their operand."""


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_copied(name: str):
    def body(x: Value, y: Value, flag: Value) -> Any:
        of_one_row = name in ("shrink_dims", "broadcast_in_dims")
        return loop([VIEWS[name](c.reduce_max(x, [0]) if of_one_row else own(x))], lambda a: [own(a)])

    module, _ = rewritten(own_values, body)
    assert len(copies(module)) == 1


NUMBERS = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
BRANCHES: dict[str, tuple[Body, list[str], int]] = {
    "computed in one": (lambda x, y, f: c.if_(f, lambda: [own(x)], lambda: [y]), [], 0),
    "computed in the other": (lambda x, y, f: c.if_(f, lambda: [x], lambda: [own(y)]), [], 0),
    "both from outside": (lambda x, y, f: c.if_(f, lambda: [x], lambda: [y]), ["if 0: 2x2xf32"], 1),
    "a constant and from outside": (
        lambda x, y, f: c.if_(f, lambda: [c.constant(NUMBERS)], lambda: [y]), ["if 1: 2x2xf32"], 1,
    ),
    "from outside and a constant": (
        lambda x, y, f: c.if_(f, lambda: [x], lambda: [c.constant(NUMBERS)]), ["if 0: 2x2xf32"], 1,
    ),
    "a constant and computed": (lambda x, y, f: c.if_(f, lambda: [c.constant(NUMBERS)], lambda: [own(y)]), [], 0),
    "of a constant and from outside": (
        lambda x, y, f: c.if_(f, lambda: [c.exp(c.constant(NUMBERS))], lambda: [y]), ["if 1: 2x2xf32"], 1,
    ),
    "from outside and of a constant": (
        lambda x, y, f: c.if_(f, lambda: [x], lambda: [c.exp(c.constant(NUMBERS))]), ["if 0: 2x2xf32"], 1,
    ),
    "of a constant and of an input": (
        lambda x, y, f: c.if_(f, lambda: [c.broadcasting_add(y, c.constant(NUMBERS))], lambda: [y]), [], 0,
    ),
    "two constants": (
        lambda x, y, f: c.if_(f, lambda: [c.constant(NUMBERS)], lambda: [c.constant(-NUMBERS)]), [], 1,
    ),
    "a view from outside": (
        lambda x, y, f: c.if_(f, lambda: [turned(x)], lambda: [y]), ["if 0: 2x2xf32"], 1,
    ),
    "the second result": (
        lambda x, y, f: c.if_(f, lambda: [own(x), x], lambda: [own(y), y]), ["if 0: 2x2xf32"], 1,
    ),
    "a branch in a branch": (
        lambda x, y, f: c.if_(
            f, lambda: c.if_(f, lambda: [own(x)], lambda: [own(y)]), lambda: [own(x)]
        ),
        ["if 0: 2x2xf32"], 1,
    ),
    "a branch in the other branch": (
        lambda x, y, f: c.if_(
            f, lambda: [own(x)], lambda: c.if_(f, lambda: [own(x)], lambda: [own(y)])
        ),
        ["if 1: 2x2xf32"], 1,
    ),
    "the result of a branch outside": (
        lambda x, y, f: (lambda made: c.if_(f, lambda: [own(x)], lambda: [made]))(
            c.if_(f, lambda: [own(x)], lambda: [own(y)])[0]
        ),
        [], 0,
    ),
}  # fmt: skip
"""A program, the copies that it gets, and how many results of branches are changed."""


@pytest.mark.parametrize("name", BRANCHES)
def test_copies_of_results_of_branches(name: str):
    body, expected, count = BRANCHES[name]
    module, fired = rewritten(own_values, body)
    assert copies(module) == expected
    assert fired == ({"own branch result": count} if count else {})
    assert [place_of(op) for op in ops(module, f"{BROADCASTING}where")] == ["if 0"] * (name == "two constants")


def stated(body: Callable[[Value, Value], list[Value]]) -> IRModule:
    """A program that reads and writes a state."""

    def run(handle: Value, x: Value) -> list[Value]:
        content, token = c.read_handle(handle, c.create_token())
        result = body(content, x)[0]
        return [result, c.write_handle(handle, own(x), token)]

    return program({"x": "2x2xf32"}, run, states={"state": "2x2xf32"})


def adds(content: Value, x: Value) -> list[Value]:
    return loop([own(x)], lambda a: [c.broadcasting_add(own(a), content)])  # type: ignore[no-any-return]


STATES: dict[str, tuple[Callable[[Value, Value], list[Value]], int]] = {
    "read in a loop": (adds, 1),
    "read twice": (
        lambda s, x: loop([own(x)], lambda a: [c.broadcasting_add(c.broadcasting_mul(own(a), s), s)]), 1,
    ),
    "a view of it": (lambda s, x: adds(turned(s), x), 1),
    "a view of a view": (lambda s, x: adds(c.reshape(turned(s), [2, 2]), x), 1),
    "it and a view": (
        lambda s, x: loop([own(x)], lambda a: [c.broadcasting_add(c.broadcasting_mul(own(a), s), turned(s))]), 1,
    ),
    "computed of it": (lambda s, x: adds(own(s), x), 0),
    "in a branch": (
        lambda s, x: c.if_(
            c.constant(True), lambda: [c.broadcasting_add(s, x)], lambda: [own(x)]
        ), 1,
    ),
    "outside of loops": (lambda s, x: [c.broadcasting_add(s, adds(x, x)[0])], 0),
}  # fmt: skip
"""A program of a state's content and an input, and how many copies of the state it needs."""


@pytest.mark.parametrize("name", STATES)
def test_copies_of_states_that_blocks_read(name: str):
    body, count = STATES[name]
    module, statistics = stated(body), Statistics()
    own_values(module, statistics)
    assert statistics.fired.get("own captured state", 0) == count
    assert len([place for place in copies(module) if place == "graph: 2x2xf32"]) == count
    states = {"state": torch.eye(2)}
    expected = evaluate(stated(body), {"x": torch.ones(2, 2)}, state={"state": torch.eye(2)})
    assert torch.equal(evaluate(module, {"x": torch.ones(2, 2)}, state=states)["y0"], expected["y0"])


@pytest.mark.parametrize(
    ("inner", "count"), [("ops", 0), ("loop", 1), ("branch", 1), ("call of loop", 1), ("call of ops", 0)]
)
def test_states_are_copied_for_called_graphs_with_blocks(inner: str, count: int):
    module, types = IRModule(), [tensor((2, 2), "f32")]
    bodies: dict[str, Callable[[Value, Value], Any]] = {
        "ops": c.broadcasting_add,
        "loop": lambda x, y: loop([own(x)], lambda a: [c.broadcasting_add(own(a), y)]),
        "branch": lambda x, y: c.if_(c.constant(True), lambda: [own(x)], lambda: [own(y)]),
        "call of loop": lambda x, y: c.invoke("loop", [own(x), y], types),
        "call of ops": lambda x, y: c.invoke("ops", [own(x), y], types),
    }
    for name in dict.fromkeys((inner.removeprefix("call of "), inner)):
        program({"x": "2x2xf32", "y": "2x2xf32"}, bodies[name], name=name, module=module)

    def run(handle: Value, x: Value) -> list[Value]:
        content, token = c.read_handle(handle, c.create_token())
        (of_state,), (of_input,) = (c.invoke(inner, [value, x], types) for value in (content, own(x)))
        return [c.broadcasting_add(of_state, of_input), c.write_handle(handle, own(x), token)]

    program({"x": "2x2xf32"}, run, states={"state": "2x2xf32"}, module=module)
    statistics = Statistics()
    own_values(module, statistics)
    assert statistics.fired.get("own captured state", 0) == count
    readers = {use.operation.name for op in copy_ops(module.graph("main")) for use in op.results[0].uses}
    assert readers == ({"coreai.invoke"} if count else set())


# ---- choices between values from outside -----------------------------------------------------------


CHOICES: dict[str, tuple[Body, int, int]] = {
    "both": (lambda x, y, f: c.if_(f, lambda: [x], lambda: [y]), 1, 0),
    "constants": (lambda x, y, f: c.if_(f, lambda: [c.constant(NUMBERS)], lambda: [c.constant(-NUMBERS)]), 1, 0),
    "one": (lambda x, y, f: c.if_(f, lambda: [x], lambda: [own(y)]), 0, 1),
    "the other": (lambda x, y, f: c.if_(f, lambda: [own(x)], lambda: [y]), 0, 1),
    "the second result": (lambda x, y, f: c.if_(f, lambda: [own(x), x], lambda: [own(y), y]), 1, 1),
    "the first result": (lambda x, y, f: c.if_(f, lambda: [x, own(x)], lambda: [y, own(y)]), 1, 1),
    "two of three": (
        lambda x, y, f: c.if_(f, lambda: [x, own(x), y], lambda: [c.constant(NUMBERS), own(y), x]), 2, 1,
    ),
    "computed before": (
        lambda x, y, f: (lambda made: [c.exp(made), *c.if_(f, lambda: [made], lambda: [y])])(own(x)), 1, 0,
    ),
    "of a branch inside": (
        lambda x, y, f: c.if_(f, lambda: c.if_(f, lambda: [x], lambda: [y]), lambda: [own(y)]), 1, 1,
    ),
}  # fmt: skip
"""A program, how many values `where` chooses, and how many branches are left."""


@pytest.mark.parametrize("name", CHOICES)
def test_choices_between_values_from_outside(name: str):
    body, chosen, left = CHOICES[name]
    module, fired = rewritten(choose_outside_values, body)
    assert len(ops(module, f"{BROADCASTING}where")) == chosen
    branches = ops(module, "coreai.if")
    assert len(branches) == left
    assert all(len(op.results) == len(op.regions[0].block.last_op.operands) for op in branches)
    assert fired == ({"choice between values from outside": 1} if chosen else {})


def test_tokens_are_left_to_the_branch():
    def body(handle: Value, x: Value) -> list[Value]:
        first, second = c.create_token(), c.create_token()
        chosen, token = c.if_(c.constant(True), lambda: [x, first], lambda: [own(x), second])
        return [chosen, c.write_handle(handle, x, token)]

    module = program({"x": "2xf32"}, body, states={"state": "2xf32"})
    choose_outside_values(module, Statistics())
    assert [len(op.results) for op in ops(module, "coreai.if")] == [2]


def test_sizes_that_are_not_known_are_left_to_the_branch():
    body = lambda x, y, f: c.if_(f, lambda: [x], lambda: [y])  # noqa: E731
    module = program({"x": "?x2xf32", "y": "?x2xf32", "flag": "i1"}, body)
    choose_outside_values(module, Statistics())
    assert len(ops(module, "coreai.if")) == 1


# ---- conditions ------------------------------------------------------------------------------------


def until(goes_on: Callable[..., Value]) -> Body:
    return lambda x, y, flag: loop([own(x)], lambda a: [own(a)], goes_on)


def _largest(a: Value) -> Value:
    return c.reshape(c.reduce_max(a, [0, 1]), [])  # type: ignore[no-any-return]


CONDITIONS: dict[str, tuple[Body, bool]] = {
    "a comparison": (until(lambda i, a: c.broadcasting_greater(3, i)), False),
    "two comparisons": (until(lambda i, a: c.and_(c.broadcasting_greater(3, i), c.broadcasting_greater(4, i))), True),
    "a comparison with a computed number": (
        lambda x, y, flag: (
            lambda most: loop([own(x)], lambda a: [own(a)], lambda i, a: c.broadcasting_greater(most, i))
        )(c.broadcasting_add(c.constant(1), 2)), False,
    ),
    "one op that is no comparison": (until(lambda i, a: c.reshape(c.constant(np.array([False])), [])), True),
    "a reduction": (until(lambda i, a: c.broadcasting_greater(_largest(a), 0.5)), True),
}  # fmt: skip


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_that_are_carried(name: str):
    body, unsafe = CONDITIONS[name]
    (loop_op,) = ops(program(INPUTS, body), "coreai.while")
    assert is_unsafe_condition(loop_op) == unsafe
    module, fired = rewritten(carry_conditions, body)
    (loop_op,) = ops(module, "coreai.while")
    assert fired == ({"carried condition": 1} if unsafe else {})
    assert len(loop_op.results) == 2 + unsafe
    assert not is_unsafe_condition(loop_op)
    if unsafe:
        block = loop_op.regions[0].block
        assert list(block.ops) == [block.last_op]
        assert list(block.last_op.operands) == [block.args[2], *block.args]
