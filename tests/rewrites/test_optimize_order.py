"""Each step of optimize matters, and so does the order of two neighbours, unless it is said to be free.

A small program shows it: without the step, or in the other order, other ops are left or more is computed.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from patcomp.defects import Defect, mends
from patcomp.ir import IRModule, Value
from patcomp.ir import coreai as c
from patcomp.rewrites import Options
from patcomp.rewrites.optimize import STEPS_OF_A_GRAPH, STEPS_OF_THE_MODULE
from patterns_catalog import default_rules
from tests.helpers.programs import program

ROOM = importlib.import_module("patcomp.rewrites.optimize")  # `patcomp.rewrites.optimize` may be the function
RULES = default_rules().stage("optimize")
XY = {"x": "2x3xf32", "y": "2x3xf32"}
FLAG, CHOICE = {"x": "2x3xf32", "flag": "i1"}, {**XY, "flag": "i1"}
OPEN = {"x": "?x3xf32", "y": "?x3xf32", "flag": "i1"}
STATE = {"state": "2x3xf32"}
WEIGHT = np.linspace(-1, 1, 300, dtype=np.float32)
LARGE = np.linspace(-1, 1, 20_000, dtype=np.float32)


def read_by_dead_ops(x: Value, y: Value) -> Value:
    """A rule takes `x + y * -1`, if nothing else reads the product."""
    negative = c.broadcasting_mul(y, -1.0)
    c.sin(c.exp(negative))
    return c.broadcasting_add(x, negative)  # type: ignore[no-any-return]


def equal_masks(x: Value, y: Value) -> Value:
    first, second = (c.broadcasting_mul(c.constant([1.0, 2.0, 3.0]), c.constant([2.0, 2.0, 2.0])) for _ in range(2))
    return c.broadcasting_add(c.broadcasting_mul(x, first), c.broadcasting_mul(y, second))  # type: ignore[no-any-return]


def chosen(flag: Any, one: Callable[[], Any], other: Callable[[], Any]) -> Value:
    return c.if_(flag, lambda: [one()], lambda: [other()])[0]  # type: ignore[no-any-return]


def negated_in_a_branch(x: Value, y: Value) -> Value:
    negative = chosen(c.constant(True), lambda: c.broadcasting_mul(y, -1.0), lambda: c.sin(x))
    return c.broadcasting_add(x, negative)  # type: ignore[no-any-return]


def read_by_the_other_branch(x: Value, y: Value) -> Value:
    other = c.sin(c.exp(x))
    return chosen(c.constant(True), lambda: c.tanh(y), lambda: other)


DEAD_CALL = """
coreai.graph private @called(%a: tensor<2xf32> {coreai.name = "a"}) -> (tensor<2xf32> {coreai.name = "r"}) {
  %r = coreai.exp %a : tensor<2xf32> -> tensor<2xf32>
  coreai.output %r : tensor<2xf32>
}
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
  %a = coreai.invoke @called(%x)  : (tensor<2xf32>) -> tensor<2xf32>
  %y = coreai.sin %x : tensor<2xf32> -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
"""


def written_unchanged(handle: Value, x: Value, y: Value) -> list[Value]:
    content, token = c.read_handle(handle, c.create_token())
    return [c.broadcasting_add(content, x), c.write_handle(handle, content, token)]


def read_twice(handle: Value, x: Value, flag: Value) -> list[Value]:
    first, token = c.read_handle(handle, c.create_token())
    again, token = c.read_handle(handle, token)
    made = chosen(flag, lambda: c.exp(c.broadcasting_add(first, again)), lambda: c.sin(x))
    return [made, c.write_handle(handle, c.tanh(x), token)]


def loop(x: Value, step: Callable[[Value], Value]) -> Value:
    """Five steps."""
    start, body = [c.constant(0), x], lambda i, a: [c.broadcasting_add(i, 1), step(a)]
    return c.while_(start, lambda i, a: c.broadcasting_greater(5, i), body)[1]  # type: ignore[no-any-return]


def loop_on_values(x: Value, y: Value) -> Value:
    def goes_on(a: Value) -> Value:
        return c.broadcasting_greater(9.0, c.reshape(c.reduce_sum(a, [0, 1]), []))  # type: ignore[no-any-return]

    return c.while_([x], goes_on, lambda a: [c.exp(a)])[0]  # type: ignore[no-any-return]


def state_in_a_loop(handle: Value, x: Value, y: Value) -> list[Value]:
    content, token = c.read_handle(handle, c.create_token())
    return [loop(x, lambda a: c.broadcasting_add(a, c.sin(content))), c.write_handle(handle, c.tanh(x), token)]


def selected(x: Value) -> Value:
    """Elements of a size that depends on data."""
    return c.gather_nd(x, c.cast(c.non_zero(c.broadcasting_greater(x, 0.0)), "si32"))  # type: ignore[no-any-return]


def scattered(x: Value) -> Value:
    """Two scatters into elements of open size; the second one's values are computed after the first."""
    made, rows, source = [], c.constant([[0, 0, 0]]), c.slice_(x, [0, 0], [1, 3], [1, 1])
    for factor in (3.0, 5.0):
        values = c.broadcasting_mul(source, factor)
        made.append(c.scatter_along_axis(x, rows, values, 0, scatter_mode="add"))
    return c.broadcasting_add(*made)  # type: ignore[no-any-return]


def computed_twice(x: Value) -> Value:
    weight = c.constant(LARGE)
    again = c.relu(c.broadcasting_mul(weight, 1.0))
    return c.broadcasting_add(c.broadcasting_mul(x, c.relu(weight)), again)  # type: ignore[no-any-return]


def of(body: Callable[..., Any], inputs: dict[str, str] = XY, **options: Any) -> Callable[[], IRModule]:
    return lambda: program(inputs, body, **options)


PROGRAMS: dict[str, Callable[[], IRModule]] = {
    "a value that dead ops read": of(read_by_dead_ops),
    "equal masks": of(equal_masks),
    "a computed condition": of(
        lambda x, y: chosen(c.broadcasting_greater(c.constant(2), c.constant(1)), lambda: c.exp(x), lambda: c.sin(x))
    ),
    "half of a rule in a branch": of(negated_in_a_branch),
    "equal after a rule": of(lambda x, y: c.broadcasting_add(c.exp(c.broadcasting_mul(x, 1.0)), c.exp(x))),
    "read by the other branch": of(read_by_the_other_branch),
    "a dead call": lambda: IRModule.parse(DEAD_CALL),
    "a state that is written unchanged": of(written_unchanged, states=STATE),
    "a state that is read twice": of(read_twice, FLAG, states=STATE),
    "a loop": of(lambda x, y: loop(x, c.exp)),
    "a loop on values": of(loop_on_values),
    "a choice of inputs": of(lambda x, y, flag: chosen(flag, lambda: x, lambda: y), CHOICE),
    "a choice of nothing": of(
        lambda x, y, flag: chosen(flag, lambda: c.exp(x), lambda: c.sin(y)),
        {"x": "0x3xf32", "y": "0x3xf32", "flag": "i1"},
    ),
    "a choice in a loop": of(lambda x, y, flag: loop(x, lambda a: chosen(flag, lambda: x, lambda: y)), CHOICE),
    "choices of open inputs": of(lambda x, y, flag: c.if_(flag, lambda: [x, y], lambda: [y, x]), OPEN),
    "equal branches": of(lambda x, y, flag: chosen(flag, lambda: c.exp(x), lambda: c.exp(y)), OPEN),
    "selected in a loop": of(lambda x: loop(selected(x), lambda a: c.broadcasting_mul(a, [2.0])), {"x": "4xf32"}),
    "a state in a loop": of(state_in_a_loop, states=STATE),
    "a loop in a branch": of(lambda x, flag: chosen(flag, lambda: loop(x, c.exp), lambda: c.sin(x)), FLAG),
    "scatters in a branch": of(
        lambda x, y, flag: chosen(flag, lambda: scattered(x), lambda: c.broadcasting_mul(x, 2.0)), OPEN
    ),
    "a formula of a large weight": of(lambda x: c.broadcasting_add(x, c.relu(LARGE)), {"x": "20000xf32"}),
    "a weight that is computed twice": of(computed_twice, {"x": "20000xf32"}),
    "a formula of a weight": of(lambda x: c.broadcasting_add(x, c.relu(WEIGHT)), {"x": "300xf32"}),
}


def optimized(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    of_graph: Sequence[Any] = STEPS_OF_A_GRAPH,
    of_module: Sequence[Any] = STEPS_OF_THE_MODULE,
    mended: Sequence[Defect] | None = None,
) -> tuple[list[str], int]:
    """The lines of a program that other steps give, without names of values, and how many ops were folded."""
    module = PROGRAMS[name]()
    with monkeypatch.context() as patch:
        patch.setattr(ROOM, "STEPS_OF_A_GRAPH", of_graph)
        patch.setattr(ROOM, "STEPS_OF_THE_MODULE", of_module)
        if mended is not None:
            patch.setattr(ROOM, "mends_for", lambda module, stage: ((each, each.mend) for each in mended))
        statistics = ROOM.optimize(module, RULES, Options())
    return re.sub(r"%\w+", "%", module.text()).splitlines(), statistics.fired.get("constant folding", 0)


def unordered(result: tuple[list[str], int]) -> tuple[list[str], int]:
    return sorted(result[0]), result[1]


FREE = None
"""No program is optimized in another way in the other order; only places of ops may differ."""

OF_A_GRAPH: list[tuple[str, str, str | None]] = [
    ("_drop_dead", "a value that dead ops read", FREE),
    ("_merge_equal", "equal masks", "equal masks"),
    ("_fold", "equal masks", "a computed condition"),
    ("_inline_known", "a computed condition", "half of a rule in a branch"),
    ("_apply_rules", "equal after a rule", "equal after a rule"),
    ("_merge_equal", "equal after a rule", "a weight that is computed twice"),
    ("_fold_weights", "a formula of a large weight", "a formula of a large weight"),
    ("_drop_dead", "read by the other branch", FREE),
]
"""Each step, a program that needs it, and one that needs it before the next step."""

OF_THE_MODULE: list[tuple[str, str, str | None]] = [
    ("_drop_uncalled", "a dead call", FREE),
    ("_drop_repeated_accesses", "a state that is written unchanged", "a state that is read twice"),
    ("_mend", "a loop", FREE),
]

OF_THE_MENDS: dict[str, tuple[str, str | None]] = {
    "conditions_in_place": ("a loop on values", FREE),
    "moved_copies": ("a choice of inputs", FREE),
    "empty_tensors": ("selected in a loop", FREE),
    "repeated_in_loops": ("a state in a loop", "a state in a loop"),
    "captured_states": ("a state that is read twice", FREE),
    "carried_values_in_place": ("a loop", FREE),
    "nested_results": ("a loop in a branch", FREE),
    "choices_of_outside_values": ("choices of open inputs", FREE),
    "merged_branches": ("equal branches", FREE),
    "scatters_in_branches": ("scatters in a branch", FREE),
    "folded_constants": ("a formula of a weight", FREE),
}

FURTHER_ORDERS = [
    ("conditions_in_place", "carried_values_in_place", "a loop on values"),
    ("moved_copies", "carried_values_in_place", "a choice in a loop"),
    ("moved_copies", "choices_of_outside_values", "a choice of inputs"),
    ("empty_tensors", "carried_values_in_place", "selected in a loop"),
]
"""Pairs of mends that are no neighbours, and a program that needs this order."""


def variants(kind: str) -> tuple[str, Sequence[Any], list[tuple[str, str, str | None]]]:
    """The argument of `optimized`, the steps, and what is said of them."""
    if kind == "graph":
        return "of_graph", STEPS_OF_A_GRAPH, OF_A_GRAPH
    if kind == "module":
        return "of_module", STEPS_OF_THE_MODULE, OF_THE_MODULE
    found = mends("optimize")
    return "mended", found, [(each.name, *OF_THE_MENDS[each.name]) for each in found]


@pytest.mark.parametrize("kind", ["graph", "module", "mends"])
def test_each_step_matters(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    argument, steps, said = variants(kind)
    assert [getattr(step, "__name__", None) or step.name for step in steps] == [name for name, *_ in said]
    for index, (name, needs_it, _) in enumerate(said):
        without = {argument: (*steps[:index], *steps[index + 1 :])}
        assert optimized(needs_it, monkeypatch, **without) != optimized(needs_it, monkeypatch), f"{name} does nothing"


@pytest.mark.parametrize("kind", ["graph", "module", "mends"])
def test_each_order_matters_or_is_free(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    argument, steps, said = variants(kind)
    for index, (name, _, needs_it_first) in enumerate(said[:-1]):
        swapped = {argument: (*steps[:index], steps[index + 1], steps[index], *steps[index + 2 :])}
        differs = [
            each
            for each in ([needs_it_first] if needs_it_first else PROGRAMS)
            if unordered(optimized(each, monkeypatch, **swapped)) != unordered(optimized(each, monkeypatch))
        ]
        assert differs == ([needs_it_first] if needs_it_first else []), f"{name} and its next step"


@pytest.mark.parametrize(("first", "second", "name"), FURTHER_ORDERS)
def test_mends_that_are_no_neighbours(first: str, second: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    order = [each.name for each in mends("optimize")]
    assert order.index(first) < order.index(second)
    pair = {each.name: each for each in mends("optimize")}
    given, other = [pair[first], pair[second]], [pair[second], pair[first]]
    assert unordered(optimized(name, monkeypatch, mended=given)) != unordered(
        optimized(name, monkeypatch, mended=other)
    )
