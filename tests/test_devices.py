"""What is publicly known of devices: each construct, what a conversion and an audit say, and the simulated device."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from patcomp import AIProgram, ConversionWarning, TorchConverter
from patcomp.devices import UNITS, known_facts, occurrences
from patcomp.evaluate.devices import BEHAVIOURS, SimulatedDevice
from patcomp.evaluate.machine import evaluate
from patcomp.ir import IRModule, Value, coreai
from patcomp.ir.composite import Composite
from patcomp.ir.coreai_table import ROWS
from patcomp.patterns import composites
from patcomp.questions.audit import audit
from patcomp.questions.costs import estimates
from patcomp.targets import TARGETS, Target
from patcomp_lab.commands.devices_page import devices_pages
from patterns_catalog import default_rules
from tests.frontend_torch.models import Function
from tests.helpers.command import Command
from tests.helpers.programs import program

FACTS = {fact.name: fact for fact in known_facts()}
GENERATED = Path(__file__).parents[1] / "docs" / "generated"


# ---- the table --------------------------------------------------------------------------------------


def test_each_fact_has_a_source_a_place_and_a_name_of_its_own() -> None:
    assert len(FACTS) == len(known_facts()) > 120
    for fact in known_facts():
        assert fact.source, fact.name
        assert all(re.fullmatch(r"https://[\w./#-]+", each) for each in fact.source), fact.name
        assert all((fact.seen, fact.says, fact.units)), fact.name
        assert set(fact.units) <= set(UNITS), fact.name
        assert not (fact.where and not fact.ops), f"{fact.name}: conditions on no op"


def test_each_name_in_a_fact_exists() -> None:
    ops = {f"coreai.{row.name}" for row in ROWS} | {f"composite {item.name}" for item in composites
                                                     if isinstance(item, Composite)}  # fmt: skip
    rules = {rule.name for rule in default_rules()}
    for fact in known_facts():
        assert set(fact.ops) <= ops, fact.name
        assert set(fact.rules) <= rules, fact.name


def test_the_pages_are_current() -> None:
    kept = {page.name: page.read_text() for page in GENERATED.glob("device-facts*.md")}
    assert kept == devices_pages(), "python -m patcomp_lab.commands.devices_page docs/generated"


# ---- constructs -------------------------------------------------------------------------------------

X, Y = {"x": "2x64xf16"}, {"x": "2x64xf32"}


def of(inputs: dict[str, str], body: Callable[..., Any], **options: Any) -> Callable[[], IRModule]:
    return lambda: program(inputs, body, **options)


def masked(number: float, element: str = "f16") -> Callable[[Value], Value]:
    mask = np.where(np.arange(64) < 3, number, 0.0).astype(np.float32)
    return lambda x: coreai.softmax(coreai.broadcasting_add(x, coreai.constant(mask, element)), 1)


def gathered(data: Callable[[Value, Value], Value]) -> Callable[..., Value]:
    def body(x: Value, y: Value) -> Value:
        best = coreai.slice_(coreai.argsort(x, 1, True, True), [0, 0], [2, 8], [1, 1])
        best = coreai.broadcasting_modulo(best, 64)
        return coreai.gather_along_axis(data(x, y), best, 1)

    return body


def transposed(kernel: int, padding: int = 0) -> Callable[[Value], Value]:
    def body(x: Value) -> Value:
        weight = coreai.constant(np.ones((4, 4, kernel, kernel), np.float32))
        return coreai.conv_transpose2d(x, weight, [2, 2], [0, 0], [1, 1], [padding, padding], 1)

    return body


def convolved(kernel: int, dilation: int = 1) -> Callable[[Value], Value]:
    weight = np.arange(16.0 * kernel * kernel, dtype=np.float32).reshape(4, 4, kernel, kernel)
    return lambda x: coreai.conv2d(x, coreai.constant(weight), [1, 1], [dilation, dilation], 1)


def stored(element: str, scales: tuple[int, int]) -> Callable[[Value], Value]:
    def body(x: Value) -> Value:
        data = coreai.constant(np.ones((64, 64), np.int8), element)
        scale, zero = np.ones(scales, np.float32), np.zeros(scales, np.int8)
        weight = coreai.blockwise_shift_scale(
            data, coreai.constant(scale, "f16"), coreai.constant(zero, element), coreai.constant(0 * scale, "f16")
        )
        return coreai.broadcasting_batch_matmul(x, weight)

    return body


def divided(x: Value) -> Value:
    most = coreai.broadcasting_maximum(coreai.reduce_max(coreai.abs_(x), [1]), 1e-4)
    small = coreai.broadcasting_divide(x, most)
    return coreai.reduce_mean(coreai.broadcasting_mul(small, small), [1])


def mask_of(element: str) -> Callable[[Value], Value]:
    def body(x: Value) -> Value:
        zero = coreai.constant(0, element)
        both = coreai.broadcasting_and(coreai.broadcasting_greater(x, zero), coreai.broadcasting_equal(x, x))
        return coreai.cast(both, "f32")

    return body


def written(times: int) -> Callable[..., list[Value]]:
    def body(state: Value, x: Value) -> list[Value]:
        token = coreai.create_token()
        for _ in range(times):
            token = coreai.write_handle(state, x, token)
        return [x, token]

    return body


def read(state: Value, x: Value) -> list[Value]:
    value, token = coreai.read_handle(state, coreai.create_token())
    return [value, token]


IMAGE = {"x": "1x4x64x64xf32"}
CONSTRUCTS: list[tuple[str, Callable[[], IRModule], Callable[[], IRModule]]] = [
    ("halves away from zero", of(Y, coreai.round_), of({"x": "2x64xsi32"}, coreai.round_)),
    ("floor division by one", of(Y, lambda x: coreai.broadcasting_floor_divide(x, 1.0)),
     of(Y, lambda x: coreai.broadcasting_floor_divide(x, 2.0))),
    ("floor division by one", of(Y, lambda x: coreai.broadcasting_floor_divide(x, 1.0)),
     of({"x": "8xsi32"}, lambda x: coreai.broadcasting_floor_divide(x, 1))),
    ("masks of 64-bit comparisons", of({"x": "8xsi64"}, mask_of("si64")), of({"x": "8xsi32"}, mask_of("si32"))),
    ("masks of two conditions", of(Y, mask_of("f32")),
     of(Y, lambda x: coreai.cast(coreai.broadcasting_greater(x, 0.0), "f32"))),
    ("argmax", of(Y, lambda x: coreai.argmax(x, 1)), of(Y, lambda x: coreai.reduce_max(x, [1]))),
    ("logarithm of an overflow", of(X, lambda x: coreai.log(coreai.broadcasting_add(coreai.exp(x), 1.0))),
     of(X, lambda x: coreai.log(coreai.broadcasting_add(coreai.exp(coreai.broadcasting_mul(coreai.abs_(x), -1.0)),
                                                         1.0)))),
    ("logarithm of an overflow",
     of(X, lambda x: coreai.log(coreai.reshape(coreai.reduce_sum(coreai.exp(x), [1]), [2]))),
     of(Y, lambda x: coreai.log(coreai.reduce_sum(coreai.exp(x), [1])))),
    ("logarithm of a softmax", of(X, lambda x: coreai.log(coreai.softmax(x, 1))),
     of(Y, lambda x: coreai.log(coreai.softmax(x, 1)))),
    ("softmax of -inf", of(X, masked(-np.inf)), of(X, masked(-40000.0))),
    ("mean of squares", of(X, lambda x: coreai.reduce_mean(coreai.broadcasting_mul(x, x), [1])), of(X, divided)),
    ("mean of squares", of(X, lambda x: coreai.reduce_mean(coreai.broadcasting_mul(x, x), [1])),
     of(X, lambda x: coreai.reduce_mean(coreai.broadcasting_mul(x, 2.0), [1]))),
    ("gathers of the best", of({"x": "2x64xf16", "y": "2x64xf16"}, gathered(lambda x, y: y)),
     of({"x": "2x64xf16", "y": "2x64xf16"}, gathered(lambda x, y: x))),
    ("gathers of the best", of({"x": "2x64xf16", "y": "2x64xf16"}, gathered(lambda x, y: y)),
     of({"x": "2x64xf32", "y": "2x64xf32"}, gathered(lambda x, y: y))),
    ("sorts and top-k", of(Y, lambda x: coreai.sort(x, 1, False, True)), of(Y, coreai.exp)),
    ("sines on old chips", of(Y, coreai.sin), of(Y, coreai.tanh)),
    ("empty outputs", of({"x": "2x0xf32"}, coreai.exp), of(Y, coreai.exp)),
    ("long transposed convolutions", of({"x": "1x4x8x8xf32"}, transposed(8)), of({"x": "1x4x8x8xf32"}, transposed(7))),
    ("long transposed convolutions", of({"x": "1x4x8x8xf32"}, transposed(8)),
     of({"x": "1x4x8x8xf32"}, transposed(8, 1))),
    ("wide kernels", of(IMAGE, convolved(14)), of(IMAGE, convolved(13))),
    ("kernels over 7", of(IMAGE, convolved(8)), of(IMAGE, convolved(7))),
    ("dilated convolutions", of(IMAGE, convolved(3, 2)), of(IMAGE, convolved(3))),
    ("computed kernels",
     of({"x": "2x4x8x8xf32", "w": "4x4x3x3xf32"}, lambda x, w: coreai.conv2d(x, w, [1, 1], [1, 1], 1)),
     of({"x": "1x4x8x8xf32", "w": "4x4x3x3xf32"}, lambda x, w: coreai.conv2d(x, w, [1, 1], [1, 1], 1))),
    ("slices along the width", of(X, lambda x: coreai.slice_(x, [0, 1], [2, 64], [1, 1])),
     of(X, lambda x: coreai.slice_(x, [1, 0], [2, 64], [1, 1]))),
    ("wide windows", of(IMAGE, lambda x: coreai.maxpool2d(x, [14, 14], [2, 2], [1, 1], False)),
     of(IMAGE, lambda x: coreai.maxpool2d(x, [13, 13], [2, 2], [1, 1], False))),
    ("strides of pools", of(IMAGE, lambda x: coreai.maxpool2d(x, [3, 3], [3, 3], [1, 1], False)),
     of(IMAGE, lambda x: coreai.maxpool2d(x, [3, 3], [2, 2], [1, 1], False))),
    ("rows of 8 bits", of(X, stored("si8", (64, 1))), of(X, stored("si8", (64, 2)))),
    ("blocks of 4 bits", of(X, stored("si4", (64, 2))), of(X, stored("si4", (64, 1)))),
    ("8 bits on the engine", of(X, stored("si8", (64, 2))), of(X, stored("si4", (64, 2)))),
    ("blocks on the engine", of(X, stored("si4", (64, 2))), of(X, stored("si4", (64, 1)))),
    ("several writes into a state", of(Y, written(2), states={"s": "2x64xf32"}),
     of(Y, written(1), states={"s": "2x64xf32"})),
    ("long caches on iPhones", of(Y, read, states={"s": "?x64xf32"}), of(Y, read, states={"s": "2x64xf32"})),
    ("states of float32", of(Y, read, states={"s": "2x64xf32"}), of(Y, read, states={"s": "2x64xf16"})),
]  # fmt: skip


def met(module: IRModule) -> set[str]:
    return {each.fact.name for each in occurrences(module, UNITS, all_severities=True)}


@pytest.mark.parametrize(("name", "having", "lacking"), CONSTRUCTS, ids=[name for name, *_ in CONSTRUCTS])
def test_constructs(name: str, having: Callable[[], IRModule], lacking: Callable[[], IRModule]) -> None:
    assert name in met(having())
    assert name not in met(lacking())


def attention(query: str, value: str) -> IRModule:
    model = Function(functional.scaled_dot_product_attention)
    sizes = ([int(size) for size in each.split("x")] for each in (query, query, value))
    return converted(model, *map(torch.zeros, sizes)).module


@pytest.mark.parametrize(
    ("query", "value", "facts"),
    [
        ("1x2x8x16", "1x2x8x16", set()),
        ("1x2x8x16", "1x2x8x8", {"two head sizes"}),
        ("10x2x8x16", "10x2x8x16", {"attention of ten batches"}),
        ("1x2x384x16", "1x2x384x16", {"causal attention of long prompts"}),
    ],
)
def test_attention(query: str, value: str, facts: set[str]) -> None:
    assert met(attention(query, value)) == facts


# ---- warnings ---------------------------------------------------------------------------------------


def converted(model: nn.Module, *args: torch.Tensor, target: str | None = None) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model.eval(), args)).to_coreai(target=target)


def told(found: AIProgram) -> list[str]:
    return [str(each) for each in found.diagnostics if "https://" in str(each)]


def test_one_warning_a_fact_with_its_places_its_address_and_what_to_do() -> None:
    x = torch.randn(2, 64)
    with pytest.warns(
        ConversionWarning, match="iPhone 17 Pro, iOS 27.0; https://github.com/apple/coreai-torch/issues/116"
    ):
        found = converted(Function(lambda x: (torch.round(x), torch.round(x * 2), x.argmax(1))), x)
    assert [re.findall(r"^[\w ]+: .*?`(\w+)`", each)[0] for each in told(found)] == ["round", "argmax"]
    assert "(2 places)" in told(found)[0]
    assert "target='gpu' rewrites it where it can ('halves to even numbers')" in told(found)[0]
    assert "node %round_1, at tests/frontend_torch/models.py:" in told(found)[0]


@pytest.mark.parametrize(("target", "units"), [(None, ["gpu", "neural engine"]), ("gpu", []), ("neural_engine", [])])
def test_a_target_avoids_what_its_rules_replace(target: str | None, units: list[str]) -> None:
    found = converted(Function(lambda x: (torch.round(x), x.argmax(1))), torch.randn(2, 64), target=target)
    assert [each.partition(":")[0] for each in told(found)] == units


def test_a_product_before_hardswish() -> None:
    flat, deep = torch.randn(2, 8).half(), torch.randn(1, 1, 2, 8).half()
    model = nn.Sequential(nn.Linear(8, 8), nn.Hardswish()).half()
    assert "0.2 off" in told(converted(model, flat))[0]
    assert told(converted(model, deep)) == told(converted(model, flat, target="neural_engine")) == []


def test_compression_warns_of_what_it_made() -> None:
    head = converted(nn.Linear(8, 65056, bias=False).half(), torch.randn(2, 8).half(), target="gpu")
    with pytest.warns(ConversionWarning, match="gives 0 from row 65,024 on"):
        small = head.compress("w8")
    assert len(told(small)) == 1
    assert told(head) == told(head.compress("w8_block4")) == []


def test_a_target_is_told_of_its_own_unit_alone() -> None:
    x = torch.randn(2, 64)
    assert [each.partition(":")[0] for each in told(converted(Function(torch.round), x))] == ["gpu"]
    assert told(converted(Function(torch.round), x, target="cpu")) == []


def test_plain_networks_convert_without_a_word() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu")
            self.head = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Softplus(), nn.LogSoftmax(-1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.layer(self.stem(x).flatten(2).transpose(1, 2)).mean(1).floor())

    for model in (Network(), Network().half()):
        x = torch.randn(1, 3, 32, 32).to(next(model.parameters()).dtype)
        for target in (None, *TARGETS):
            assert told(converted(model, x, target=target)) == []


# ---- audits -----------------------------------------------------------------------------------------


def test_findings_name_their_reports_and_what_cuts_most_comes_first() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return (x.tanh().cumsum(-1).tanh().cumsum(-1).tanh().sort(-1)[0]).tanh()

    found = converted(Function(model), torch.randn(2, 64), target="neural_engine").audit("neural_engine")
    by_name = {each.what: each for each in found.findings}
    assert found.findings[0].what == "coreai.scan"
    assert (by_name["coreai.scan"].crossings, by_name["coreai.argsort"].crossings) == (2, 1)
    assert "; cuts the program 2 times, about 1.4 to 2.2 ms" in str(found.findings[0])
    assert "https://github.com/apple/coreai-torch/issues/66" in by_name["coreai.argsort"].sources
    assert by_name["coreai.argsort"].to_dict()["sources"] == by_name["coreai.argsort"].sources
    crossings, sort = found.estimates
    assert (crossings.least, crossings.most) == pytest.approx((3 * 0.72, 3 * 1.125))
    assert (sort.least, sort.most) == (0.60, 1.75)
    assert "measured on iPhone 17 Pro, iOS 27.0 24A5418b" in str(found)


def test_a_fact_without_a_constraint_is_a_finding() -> None:
    module = program({"x": "1x4x8x8xf32"}, transposed(8))
    (wrong,) = (each for each in audit(module, TARGETS["cpu"], default_rules()).findings)
    assert (wrong.count, wrong.is_advice, wrong.facts) == (1, False, (FACTS["long transposed convolutions"],))
    assert audit(module, Target("mine"), default_rules()).findings == ()


def test_weights_are_read_at_the_bandwidth_of_two_chips() -> None:
    class Weights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(256, 256, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(x)

    plain = converted(Weights().half(), torch.randn(2, 256).half())
    (read,) = estimates(plain.module, 0)
    assert (read.least, read.most) == pytest.approx((1e3 * 131072 / 145e9, 1e3 * 131072 / 51e9))
    (small,) = estimates(plain.compress("w8").module, 0)
    assert small.most == pytest.approx(read.most, rel=0.02)  # expanded; its scales are read, too
    assert small.least == pytest.approx(read.least / 2, rel=0.02)
    (palettes,) = estimates(plain.compress("pal4").module, 0)
    assert palettes.most == pytest.approx(read.most / 4, rel=0.02)


# ---- the simulated device ---------------------------------------------------------------------------

HALVES = torch.arange(8.0)[None] / 2
HALF = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)).half()
MASK = torch.zeros(2, 64).half()
MASK[0, 3] = -torch.inf
SIMULATED: list[tuple[str, str, Callable[..., torch.Tensor], tuple[torch.Tensor, ...], torch.Tensor | None]] = [
    ("gpu", "halves away from zero", lambda x: torch.round(x - 2), (HALVES,),
     torch.tensor([[-2.0, -2, -1, -1, 0, 1, 1, 2]])),
    ("neural_engine", "logarithm of an overflow", lambda x: torch.log(1 + torch.exp(x)), (HALF.sign() * 20,),
     torch.where(HALF > 0, 0.0, 0.0).half()),
    ("neural_engine", "softmax of -inf", lambda x, m: torch.softmax(x + m, -1), (HALF, MASK), None),
    ("neural_engine", "slices along the width", lambda x: x[:, 1:], (HALF.sign() * 5000,),
     (HALF.sign() * torch.inf)[:, 1:]),
    ("neural_engine", "mean of squares", lambda x: (x * x).mean(-1), (HALF.sign() * 60,),
     torch.full((2,), torch.inf).half()),
    ("neural_engine", "float32 inside norms", lambda x: functional.rms_norm(x, [64], eps=1e-5), (HALF.sign() * 300,),
     torch.zeros(2, 64).half()),
    ("neural_engine", "sums of products", lambda x, y: x @ y, (HALF, HALF.T.contiguous()), None),
]  # fmt: skip


@pytest.mark.parametrize(("device", "fact", "model", "args", "given"), SIMULATED, ids=[each[1] for each in SIMULATED])
def test_behaviours(
    device: Any, fact: str, model: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...], given: Any
) -> None:
    made = converted(Function(model), *args)
    names = [each.name for each in made.signature().inputs]
    machine = SimulatedDevice(made.module, unit=device)
    (output,) = evaluate(made.module, dict(zip(names, args, strict=True)), machine=machine).values()
    assert fact in [each.fact for each in machine.effects]
    assert given is None or torch.equal(output, given)
    other = SimulatedDevice(made.module, unit="cpu")
    (right,) = evaluate(made.module, dict(zip(names, args, strict=True)), machine=other).values()
    assert other.effects == ()
    assert not torch.equal(right, output)


def test_each_behaviour_has_a_fact() -> None:
    named = {fact for behaviours in BEHAVIOURS.values() for fact, _ in behaviours}
    assert named == {each[1] for each in SIMULATED} <= set(FACTS)


def test_the_effects_name_module_and_report() -> None:
    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rounding = Function(torch.round)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rounding(x) * 2

    model = Quantized()
    found = converted(model, HALVES).verify_against(model, (HALVES,), device="gpu")
    (effect,) = found.effects
    assert not found
    assert (effect.module, effect.changed, effect.elements, effect.largest) == ("rounding", 2, 8, 1.0)
    assert "2 of 8 elements differ, by at most 1 where both are finite" in str(found)
    assert "https://github.com/apple/coreai-torch/issues/10" in str(found)
    assert found.to_dict()["effects"][0]["fact"] == "halves away from zero"
    avoided = converted(model, HALVES, target="gpu").verify_against(model, (HALVES,), device="gpu")
    assert avoided
    assert avoided.effects == ()


def test_what_is_not_simulated_is_no_pass() -> None:
    model, x = Function(lambda x: x.argmax(-1)), torch.rand(3, 8)
    program = TorchConverter().add_exported_program(torch.export.export(model, (x,))).to_coreai()
    found = program.verify_against(model, (x,), device="neural_engine")
    (text,) = found.not_simulated
    assert "argmax" in text
    assert "1 known defect of the device not simulated" in str(found)
    assert "not simulated" not in str(program.verify_against(model, (x,), device="gpu"))


@pytest.mark.parametrize(
    "options", [{"device": "npu"}, {"device": "gpu", "by": "module"}, {"device": "gpu", "backends": ["evaluator"]}]
)
def test_what_no_simulated_device_takes(options: Any) -> None:
    model = Function(torch.round)
    with pytest.raises(ValueError, match="simulated"):
        converted(model, HALVES).verify_against(model, (HALVES,), **options)


def test_verify_as_a_device(patcomp: Command, tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Function(torch.round), (HALVES,)), tmp_path / "model.pt2")
    found = patcomp("verify", str(tmp_path / "model.pt2"), "--as", "gpu")
    assert found.code == 3
    assert "simulated gpu" in found.out
    assert "2 of 8 elements differ" in " ".join(found.out.split())
