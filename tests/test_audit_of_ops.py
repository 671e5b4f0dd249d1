"""Each thing that an audit looks for, at its border, on programs of a few Core AI ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  (as everyone calls it)

from patcomp import TorchConverter
from patcomp.errors import RuleError, UnknownNameError
from patcomp.evaluate.overflow import Overflow
from patcomp.ir import IRModule, Value, aten, coreai, tensor
from patcomp.ir.locations import Origin, describe, origin_location
from patcomp.ir.xdsl import Operation
from patcomp.patterns import Rule, RuleSet, Stage, decomposition, example, op_rule
from patcomp.questions.audit import audit
from patcomp.questions.findings import Audit, Finding
from patcomp.questions.programs import explain, why_not
from patcomp.questions.reach import check_reach
from patcomp.questions.regions import Regions
from patcomp.targets import Target, Wants
from patterns_catalog.composites.norms import rms_norm
from tests.frontend_torch.models import Function
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
    ("2x8xf16", {"size_of_all": 8, "max_size": 9}, {}),
    ("2x8xf16", {"size_of_all": 7, "max_size": 8}, {"a dimension over 7, which older chips do not take": (2, True)}),
    ("2x8xf16", {"size_of_all": 6, "max_size": 7}, {"a dimension over 7": (2, False)}),
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
    ("f16", {"row_bytes": 64}, {}),
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
    assert kinds(module, row_bytes=64) == {"an input or output with rows of 32 bytes, not of 64": (2, True)}


def test_a_padding_that_only_windows_read_is_theirs() -> None:
    def body(x: Value) -> Value:
        padded = coreai.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], 0.0, padding_mode="constant")
        coreai.pad(x, [0, 0, 0, 0, 2, 2, 2, 2], 0.0, padding_mode="constant")  # which nothing reads
        return coreai.maxpool2d(padded, [2, 2], [1, 1], [1, 1], False)

    assert kinds(program({"x": "1x2x8x8xf16"}, body), left_out=frozenset({"coreai.pad"})) == {"coreai.pad": (1, False)}


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
                "sources": (),
                "crossings": 0,
            }
        ],
        "estimates": [],
    }
    assert str(Finding("a", 2, ("here", "there"))) == "a: 2\n    here\n    there"


def of_target(name: str, *ops: str, targets: tuple[str, ...] = ()) -> Rule:
    return op_rule("target", *ops, name=name, targets=targets)(lambda op, c: None)


def test_the_rules_that_would_help() -> None:
    module = squared("2x8xf16")
    rules = RuleSet(
        [
            of_target("mine", MUL),
            of_target("another op", ADD),
            of_target("of all", ADD, MUL),
            of_target("of another target", MUL, targets=("gpu",)),
            op_rule("optimize", MUL, name="of another stage")(lambda op, c: None),
        ]
    )
    left_out = frozenset({MUL})
    (one,) = found(module, rules, left_out=left_out).findings
    assert one.mended_by == ("mine", "of all")
    (one,) = found(module, rules, ("of another target",), left_out=left_out).findings
    assert one.mended_by == ("mine", "of all", "of another target")


def test_values_beyond_float16_name_composites_rules_and_the_first_places() -> None:
    """A call of a composite stands for the ops in its body, and a branch does so without a name."""
    branches = Function(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))
    model = nn.Sequential(nn.RMSNorm(8, eps=1e-6), branches)
    module = TorchConverter().add_exported_program(torch.export.export(model, (torch.ones(2, 8),))).to_coreai().module
    (called,) = module.composite_names()
    (call,), (inner, *_) = module.invokes()[called], module.graph(called).regions[0].block.ops
    (branch,) = (op for op in module.op.walk() if op.name == "coreai.if")
    sine = branch.regions[0].block.first_op
    assert sine is not None
    rules = RuleSet(
        [
            of_target("of sines", "coreai.sin"),
            of_target("of both", "coreai.sin", inner.name),
            replace(of_target("of norms", ADD), composite=rms_norm),
        ]
    )
    overflows = [Overflow(sine, branch, 7e4), Overflow(inner, call, math.inf), Overflow(inner, None, -1e5)]
    one = audit(module, Target("mine"), rules, [*overflows, overflows[0]]).findings[0]
    assert (one.what, one.count, one.is_advice) == ("values beyond float16", 4, False)
    assert one.mended_by == ("of sines", "of both", "of norms")
    assert [place.partition(": ")[0] for place in one.places] == [
        "70000 of coreai.sin", f"inf of {inner.name} in rms_norm", f"-100000 of {inner.name}",
    ]  # fmt: skip
    assert one.places[1].partition(": ")[2] == describe(call)
    assert audit(module, Target("mine"), rules).findings == ()


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
        ("recover", "aten.qqqqqqqqqqqqqqqqqq", "PyTorch has no op aten.qqqqqqqqqqqqqqqqqq"),
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


# ---- called graphs, windows ----------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "regions"), [(1, 2), (2, 2)])
def test_a_call_runs_elsewhere_if_an_op_of_its_graph_does(depth: int, regions: int) -> None:
    type_ = tensor((2, 8), "f16")
    module = program({"x": "2x8xf16"}, lambda x: cos(sin(x)), name="inner")
    program({"x": "2x8xf16"}, sin, name="other", module=module)
    program({"x": "2x8xf16"}, lambda x: coreai.invoke("inner", [x], [type_]), name="outer", module=module)
    called = "inner" if depth == 1 else "outer"

    def body(x: Value) -> Value:
        first = coreai.invoke("other", [x], [type_])[0]
        return sin(coreai.invoke(called, [first], [type_])[0])

    program({"x": "2x8xf16"}, body, module=module)
    elsewhere = [op for op in module.op.walk() if op.name == "coreai.cos"]
    found_ = Regions.of(module.graph("main"), module, elsewhere)
    assert (found_.count, [op.name for op in found_.borders]) == (regions, ["coreai.invoke"])
    assert Regions.of(module.graph("main"), module, []).count == 1


def test_regions_of_a_program_with_a_state() -> None:
    def body(handle: Value, x: Value) -> list[Value]:
        written = coreai.write_handle(handle, sin(x), coreai.create_token())
        return [cos(x), written]

    module = program({"x": "2x8xf16"}, body, states={"s": "2x8xf16"})
    assert Regions.of(module.graph("main"), module, []).count == 1


WINDOWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coreai.conv2d": lambda x: F.conv2d(x[0], torch.ones(4, 3, 1, 1), stride=5),
    "coreai.conv3d": lambda x: F.conv3d(x, torch.ones(4, 2, 1, 1, 1), stride=5),
    "coreai.max_pool_2d": lambda x: F.max_pool2d(x[0], 5),
    "coreai.max_pool_3d": lambda x: F.max_pool3d(x, (1, 5, 5)),
    "coreai.sum_pool_2d": lambda x: F.avg_pool2d(x[0], 5),
    "coreai.conv_transpose2d": lambda x: F.conv_transpose2d(x[0], torch.ones(3, 4, 1, 1), stride=5),
    "coreai.conv_transpose3d": lambda x: F.conv_transpose3d(x, torch.ones(2, 4, 1, 1, 1), stride=5),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_strides_of_windows(name: str) -> None:
    exported = torch.export.export(Function(WINDOWS[name]), (torch.ones(1, 2, 3, 11, 11),))
    program_ = TorchConverter().add_exported_program(exported).to_coreai()
    (op,) = (op for op in program_.module.op.walk() if op.name == name)
    assert op is not None
    factors = "strides of other factors than 2, 3"
    assert [each.what for each in found(program_.module, stride_factors=frozenset({2, 3})).findings] == [factors]
    assert found(program_.module, stride_factors=frozenset({5}), max_palettized_stride=2).findings == ()


@pytest.mark.parametrize(
    ("most", "stride", "is_found"), [(3, 4, True), (4, 4, False), (None, 4, False), (1, 1, False), (1, None, False)]
)
def test_strides_with_palettes(most: int | None, stride: int | None, is_found: bool) -> None:
    """A stride that is an input is not known."""

    def body(x: Value, weight: Value, strides: Value) -> Value:
        table = coreai.constant(np.zeros((1, 1, 1, 1, 16, 1), np.float16), "f16")
        looked_up = coreai.lut_to_dense(weight, table, coreai.constant(0, "si16"))
        step = strides if stride is None else coreai.constant(np.array([1, stride], np.uint32), "ui32")
        ones = coreai.constant(np.array([1, 1], np.uint32), "ui32")
        return coreai.conv2d(x, looked_up, step, ones, coreai.constant(1, "ui32"))

    module = program({"x": "1x2x9x9xf16", "weight": "4x2x1x1xui4", "strides": "2xui32"}, body)
    whats = [f"strides over {most} with palettized weights"] if is_found else []
    assert [each.what for each in found(module, max_palettized_stride=most).findings] == whats


@pytest.mark.parametrize("kind", ["constant", "input", "computed"])
def test_only_constants_in_few_bits_are_stored_weights(kind: str) -> None:
    def body(x: Value, given: Value) -> Value:
        codes = coreai.constant(np.arange(32, dtype=np.uint8).reshape(4, 8) % 16, "ui4")
        read = {"constant": codes, "input": given, "computed": coreai.reverse(given, [0])}[kind]
        table = coreai.constant(np.zeros((1, 1, 16, 1), np.float16), "f16")
        return coreai.broadcasting_add(x, coreai.lut_to_dense(read, table, coreai.constant(0, "si16")))

    listed = kinds(program({"x": "4x8xf16", "given": "4x8xui4"}, body), stored="w8")
    assert listed == ({"weights stored as pal4": (1, False)} if kind == "constant" else {})


def test_weights_that_are_an_input_are_no_palettes() -> None:
    exported = torch.export.export(
        Function(lambda x, w: F.conv2d(x, w, stride=4)), (torch.ones(1, 3, 9, 9), torch.ones(4, 3, 1, 1))
    )
    module = TorchConverter().add_exported_program(exported).to_coreai().module
    assert found(module, max_palettized_stride=2).findings == ()


# ---- questions about whole programs --------------------------------------------------------------


def test_questions_about_a_program() -> None:
    seen: list[Any] = []

    def noted(op: Any, c: Any) -> None:
        seen.append(c)

    def composed(self: Any) -> Any:
        return self

    rules = RuleSet(
        [
            op_rule("normalize", "aten.exp", name="early")(noted),
            op_rule("lower", "aten.exp", name="late")(noted),
            op_rule("optimize", "aten.exp", name="never")(noted),
            decomposition("aten.neg", name="taken apart", examples=[example("2xf32")])(composed),
        ]
    )
    stages: list[str] = []

    def before(stage: str) -> IRModule:
        stages.append(stage)
        return program({"x": "2x8xf32"}, lambda x: aten.build("aten.exp", x.type, self=x))

    assert why_not(rules, before, "early") == why_not(rules, before, "late").replace("late", "early")
    assert seen == [aten, coreai]
    assert stages == ["normalize", "lower"]
    assert "can never fire" in why_not(rules, before, "never")
    assert why_not(rules, before, "taken apart").startswith(
        "taken apart is a decomposition: the import decomposes aten.neg"
    )
    assert len(stages) == 2
    check_reach(rules["taken apart"])
    module = before("lower")
    for op in module.op.walk():
        op.location = origin_location(Origin("node", "layer", "", 0))
    assert explain(module, rules, "node")
    for what in ("%", "", "nowhere"):
        with pytest.raises(UnknownNameError, match="no op of the program is called"):
            explain(module, rules, what)


def test_at_most_three_ops_of_a_similar_name_are_listed() -> None:
    rule = op_rule("lower", "aten.bitwise_an", name="rule")(lambda op, c: None)
    with pytest.raises(RuleError) as raised:
        check_reach(rule)
    assert str(raised.value).partition("there are ")[2].count(",") == 2
