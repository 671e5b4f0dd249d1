"""Each thing that an audit looks for, at its border, on programs of a few Core AI ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from patcomp.errors import RuleError
from patcomp.ir import IRModule, Value, coreai
from patcomp.ir.xdsl import Operation
from patcomp.patterns import Rule, RuleSet, Stage, op_rule
from patcomp.questions.audit import Audit, Finding, audit
from patcomp.questions.reach import check_reach
from patcomp.questions.regions import Regions
from patcomp.targets import Target, Wants
from tests.helpers.programs import program

ADD, MUL = "coreai.decomposable.broadcasting_add", "coreai.decomposable.broadcasting_mul"


def found(module: IRModule, rules: RuleSet | None = None, target_rules: tuple[str, ...] = (), **wants: Any) -> Audit:
    return audit(module, Target("mine", rules=target_rules, wants=Wants(**wants)), rules or RuleSet([]))


def kinds(module: IRModule, **wants: Any) -> dict[str, tuple[int, bool]]:
    """How many there are of each finding, and whether it is advice."""
    return {each.what: (each.count, each.is_advice) for each in found(module, **wants).findings}


def squared(type_: str) -> IRModule:
    return program({"x": type_}, lambda x: coreai.broadcasting_mul(x, x))


BORDERS: list[tuple[str, dict[str, Any], dict[str, tuple[int, bool]]]] = [
    ("2x3x4xf16", {"max_rank": 3}, {}),
    ("2x3x4xf16", {"max_rank": 2}, {"rank over 2": (2, False)}),
    ("2x8xf16", {"max_size": 8}, {}),
    ("2x8xf16", {"max_size": 7}, {"a dimension over 7": (2, False)}),
    ("?x8xf16", {"max_size": 8}, {}),
    ("2x8xf16", {"static_shapes": True}, {}),
    ("?x8xf16", {"static_shapes": True}, {"dynamic sizes": (2, False)}),
    ("2x8xf16", {"element_types": frozenset({"f16"})}, {}),
    ("2x8xsi32", {"element_types": frozenset({"f16"})}, {}),
    ("2x8xf32", {"element_types": frozenset({"f16"})}, {"f32 values": (2, False)}),
    ("2x8xf16", {"min_width": 8}, {}),
    ("2x7xf16", {"min_width": 8}, {"a last dimension under 8, which is padded": (2, True)}),
    ("2x7xsi32", {"min_width": 8}, {}),
    ("2x?xf16", {"min_width": 8}, {}),
    ("f16", {"min_width": 8}, {}),
    ("2x32xf16", {"row_bytes": 64}, {}),
    ("2x24xf16", {"row_bytes": 64}, {"an input or output with rows of 48 bytes, not of 64": (2, True)}),
    ("2x16xf32", {"row_bytes": 64}, {}),
    ("2x24xf16", {"row_bytes": 64, "min_width": 25}, {"a last dimension under 25, which is padded": (2, True)}),
    (
        "2x24xf16",
        {"row_bytes": 64, "min_width": 24},
        {"an input or output with rows of 48 bytes, not of 64": (2, True)},
    ),
    ("24x?xf16", {"row_bytes": 64}, {}),
    ("2x8xf16", {"left_out": frozenset({"coreai.sin"})}, {}),
    ("2x8xf16", {"left_out": frozenset({MUL})}, {MUL: (1, False)}),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "wants", "expected"), BORDERS)
def test_borders(type_: str, wants: dict[str, Any], expected: dict[str, tuple[int, bool]]) -> None:
    assert kinds(squared(type_), **wants) == expected


def test_states_are_looked_at() -> None:
    def body(handle: Value, x: Value) -> list[Value]:
        token = coreai.create_token()
        written = coreai.write_handle(handle, x, token)
        return [x, written]

    module = program({"x": "2x8xf32"}, body, states={"s": "2x8xf32"})
    assert kinds(module, max_rank=1)["rank over 1"][0] >= 2


def test_numbers_beyond_half_precision() -> None:
    def times(number: float) -> IRModule:
        return program({"x": "2x8xf16"}, lambda x: coreai.broadcasting_mul(coreai.cast(x, "f32"), number))

    half = {"element_types": frozenset({"f16", "f32"})}
    assert kinds(times(65504.0), **half) == {}
    assert kinds(times(70000.0), **half) == {"the number 70000, beyond float16": (1, False)}
    assert kinds(times(70000.0)) == {}


def test_the_size_of_the_weights() -> None:
    weight = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32)
    module = program({"x": "2x32xf32"}, lambda x: coreai.broadcasting_add(x, coreai.constant(weight[:1], "f32")))
    large = program({"x": "32x32xf32"}, lambda x: coreai.broadcasting_add(x, coreai.constant(weight, "f32")))
    assert kinds(module, max_asset_bytes=10**6) == {}
    assert kinds(large, max_asset_bytes=4096) == {}
    assert kinds(large, max_asset_bytes=4095) == {"weights of 4,096 bytes, more than 4,095": (1, False)}


def test_problems_come_before_advice() -> None:
    module = squared("2x7xf32")
    both = found(module, min_width=8, element_types=frozenset({"f16"}))
    assert [each.is_advice for each in both.findings] == [False, True]
    assert not both.clean
    assert str(both).startswith("mine: 1 kinds of problems\n  f32 values: 2; see half precision")
    assert "\n  advice: a last dimension under 8" in str(both)
    only = found(module, min_width=8)
    assert only.clean
    assert str(only).startswith("mine: takes the program\n  advice: ")
    assert only.to_dict() == {
        "target": "mine",
        "clean": True,
        "findings": [
            {
                "what": "a last dimension under 8, which is padded",
                "count": 2,
                "places": (),
                "mended_by": ("carry transposes",),
                "is_advice": True,
            }
        ],
    }
    assert str(Finding("a", 2, ("here", "there"))) == "a: 2\n    here\n    there"


def of_target(name: str, *ops: str) -> Rule:
    return op_rule("target", *ops, name=name)(lambda op, c: None)


def test_the_rules_that_would_help() -> None:
    module = squared("2x8xf16")
    rules = RuleSet(
        [
            of_target("mine", MUL),
            of_target("another op", ADD),
            of_target("of all", ADD, MUL),
            of_target("argmax by comparison", MUL),  # a rule of other targets has the name
            op_rule("optimize", MUL, name="of another stage")(lambda op, c: None),
        ]
    )
    left_out = frozenset({MUL})
    (one,) = found(module, rules, left_out=left_out).findings
    assert one.mended_by == ("mine", "of all")
    (one,) = found(module, rules, ("argmax by comparison",), left_out=left_out).findings
    assert one.mended_by == ("mine", "of all", "argmax by comparison")


# ---- regions -------------------------------------------------------------------------------------

Body = Callable[[Value], Any]


def sin(x: Value) -> Value:
    return coreai.sin(x)


def cos(x: Value) -> Value:
    """Runs elsewhere."""
    return coreai.cos(x)


def add(x: Value, y: Value) -> Value:
    return coreai.broadcasting_add(x, y)


REGIONS: dict[str, tuple[Body, int, int]] = {
    "everything at once": (lambda x: sin(sin(x)), 1, 0),
    "nothing": (lambda x: cos(x), 0, 0),
    "first elsewhere": (lambda x: sin(cos(x)), 1, 0),
    "last elsewhere": (lambda x: cos(sin(x)), 1, 0),
    "between": (lambda x: sin(cos(sin(x))), 2, 1),
    "two between": (lambda x: sin(cos(cos(sin(x)))), 2, 1),
    "twice": (lambda x: sin(cos(sin(cos(sin(x))))), 3, 2),
    "beside": (lambda x: add(sin(x), cos(x)), 1, 0),
    "beside a longer way": (lambda x: add(sin(sin(x)), cos(sin(x))), 2, 1),
    "two ways": (lambda x: add(sin(cos(sin(x))), sin(cos(sin(x)))), 2, 2),
    "of two results": (lambda x: [sin(cos(sin(x))), sin(x)], 2, 1),
}


@pytest.mark.parametrize("name", REGIONS)
def test_regions(name: str) -> None:
    body, count, borders = REGIONS[name]
    module = program({"x": "2x8xf16"}, body)
    graph = module.graph("main")
    elsewhere = [op for op in graph.walk() if op.name == "coreai.cos"]
    regions = Regions.of(graph, module, elsewhere)
    assert (regions.count, len(regions.borders)) == (count, borders)
    assert all(isinstance(op, Operation) and op.name == "coreai.cos" for op in regions.borders)
    advice = kinds(module, left_out=frozenset({"coreai.cos"})).get("regions with other ops between them")
    assert advice == ((count, True) if count > 1 else None)


# ---- reach ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "op", "message"),
    [
        ("normalize", "aten.exp", ""),
        ("recover", "aten.exp", ""),
        ("lower", "aten.exp", ""),
        ("optimize", "coreai.exp", ""),
        ("target", "coreai.exp", ""),
        ("recover", "coreai.exp", "of aten, and it starts from coreai; choose from target, optimize"),
        ("optimize", "aten.exp", "of coreai, and it starts from aten; choose from normalize, recover, lower"),
        ("recover", "aten.expp", "PyTorch has no op aten.expp; there are "),
        ("recover", "aten.qqqqqqqqqqqqqqqqqq", "PyTorch has no op aten.qqqqqqqqqqqqqqqqqq$"),
    ],
)  # fmt: skip
def test_which_rules_can_fire(stage: str, op: str, message: str) -> None:
    rule = op_rule(stage, op, name="rule")(lambda op, c: None)
    assert rule.stage is Stage(stage)
    if not message:
        check_reach(rule)
        return
    with pytest.raises(RuleError, match=f"can never fire: .*{message}"):
        check_reach(rule)
