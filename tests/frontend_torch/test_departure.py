"""`verify_against(by="module")`: each of several wrong rules is found, with its stage, its module and its line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import AIProgram, MismatchError, TorchConverter, Verification
from patcomp.authoring import Aten, AtenSource, Coreai, CoreaiSource, CoreaiTarget
from patcomp.emit.native import Native
from patcomp.evaluate.registry import implementations
from patcomp.ir import coreai
from patcomp.ir.module import IRModule, with_outputs
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.value import Value
from patcomp.ir.xdsl import ops_inside, replace_uses
from patcomp.patterns import (
    Capture,
    OpView,
    Rewrite,
    Rule,
    RuleSet,
    decomposition,
    lowering,
    normalization,
    op_rule,
    optimization,
    rule,
)
from patcomp.patterns.statistics import Statistics
from patcomp.program import running, verifying
from patcomp.rewrites import pipeline
from patcomp.rewrites.pipeline import StageReport
from patterns_catalog.recover.normalization import native_layer_norm


class Called(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.added = Called(lambda x: torch.addcmul(x, x, x))
        self.subtracted = Called(lambda x: x - x.flip(0))
        self.turned = Called(lambda x: x.transpose(0, 1) + 1.0)
        self.rectified = Called(lambda x: torch.relu(x - 1.0) + x * 0.5)
        self.waves = Called(lambda x: torch.cos(torch.sin(x)))
        self.norm = nn.LayerNorm(8)
        self.recovered = Called(lambda x: torch.tanh(torch.exp(x)))
        self.gate = nn.Sigmoid()
        self.gelu = nn.GELU(approximate="tanh")
        self.soft = nn.Softmax(dim=-1)
        self.root = Called(lambda x: torch.sqrt(x + 1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.children():
            x = layer(x)
        return x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.block = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self.first(x)) * 3


@decomposition("aten.addcmul")
def wrong_addcmul(self: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Any:
    return self + value * tensor1 * tensor2 * 1.25


@normalization("aten.sub.Tensor", name="normalize wrong sub")
def wrong_sub(op: OpView, aten: Aten) -> Value:
    op.ignore("alpha", because="this rule is wrong")
    return aten.add.Tensor(op.result, op["self"], op["other"])


@normalization("aten.transpose.int", name="normalize wrong transpose")
def wrong_transpose(op: OpView, aten: Aten) -> Value:
    op.ignore("dim0", "dim1", because="this rule is wrong")
    return op["self"]


@op_rule("recover", "aten.native_layer_norm", name="wrong layer_norm")
def wrong_layer_norm(op: OpView, c: Coreai) -> list[Value]:
    assert native_layer_norm.function is not None
    result, *statistics = native_layer_norm.function(op, c)
    return [c.broadcasting_mul(result, 1.25), *statistics]


@rule(stage="recover", into=coreai_namespace, example={"x": "2x3xf32"})
def wrong_tanh_of_exp(a: AtenSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "tanh(exp(x)) -> tanh(x), which is wrong"
    return Rewrite(a.tanh(a.exp(x)), to=c.tanh(x))


@lowering("aten.sigmoid", name="wrong sigmoid")
def wrong_sigmoid(op: OpView, c: Coreai) -> Value:
    return c.tanh(op["self"])


@lowering("aten.gelu", name="wrong gelu")
def wrong_gelu(op: OpView, c: Coreai) -> Value:
    op.ignore("approximate", because="this rule is wrong")
    return c.relu(op["self"])


@lowering("aten._softmax", name="wrong softmax")
def wrong_softmax(op: OpView, c: Coreai) -> Value:
    op.ignore("dim", "half_to_float", because="this rule is wrong")
    return c.softmax(op["self"], 0)


@rule(stage="lower", into=coreai_namespace, example={"x": "2x3xf32"})
def wrong_waves(a: AtenSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "cos(sin(x)) -> cos(x), which is wrong"
    return Rewrite(a.cos(a.sin(x)), to=c.cos(x))


@rule(stage="optimize", source=coreai_namespace, into=coreai_namespace, example={"x": "2x3xf32"})
def wrong_relu(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "relu(x) -> abs(x), which is wrong"
    return Rewrite(a.relu(x), to=c.abs(x))


@optimization("coreai.sqrt", name="wrong sqrt")
def wrong_sqrt(op: OpView, c: Coreai) -> Value:
    return c.rsqrt(op.x)


WRONG = {
    wrong_addcmul: ("import", "block.added"),
    wrong_sub: ("normalize", "block.subtracted"),
    wrong_transpose: ("normalize", "block.turned"),
    wrong_layer_norm: ("recover", "block.norm"),
    wrong_tanh_of_exp: ("recover", "block.recovered"),
    wrong_sigmoid: ("lower", "block.gate"),
    wrong_gelu: ("lower", "block.gelu"),
    wrong_softmax: ("lower", "block.soft"),
    wrong_waves: ("lower", "block.waves"),
    wrong_relu: ("optimize", "block.rectified"),
    wrong_sqrt: ("optimize", "block.root"),
}
X = torch.randn(8, 8, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def exported(net: Net) -> torch.export.ExportedProgram:
    return torch.export.export(net, (X,))


def by_module(program: AIProgram, model: Any, inputs: Any = (X,), **options: Any) -> Verification:
    return program.verify_against(model, inputs, backends=["evaluator"], by="module", **options)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_a_wrong_rule_is_found(wrong: Rule, net: Net, exported: torch.export.ExportedProgram) -> None:
    stage, module = WRONG[wrong]
    program = TorchConverter(catalog=[RuleSet([wrong])]).add_exported_program(exported).to_coreai()
    verification = by_module(program, net)
    found = verification.departure
    assert not verification
    assert found is not None
    assert (found.stage, found.rule, found.module) == (stage, wrong.name, module)
    assert (found.rule_source, found.rule_doc) == (wrong.source, wrong.doc)
    assert found.source.partition(":")[0].endswith(("test_departure.py", "activation.py", "normalization.py"))
    first = verification.first_wrong_module
    assert first is not None
    assert first.module == module


def test_two_wrong_rules_are_found_one_after_the_other(net: Net, exported: torch.export.ExportedProgram) -> None:
    both = [RuleSet([wrong_gelu, wrong_sub])]
    first = by_module(TorchConverter(catalog=both).add_exported_program(exported).to_coreai(), net).departure
    assert first is not None
    assert first.rule == wrong_sub.name
    repaired = TorchConverter(catalog=both, without=[wrong_sub.name]).add_exported_program(exported).to_coreai()
    second = by_module(repaired, net).departure
    assert second is not None
    assert second.rule == wrong_gelu.name


def test_the_check_and_the_text_name_the_place(net: Net, exported: torch.export.ExportedProgram) -> None:
    program = TorchConverter(catalog=[RuleSet([wrong_gelu])]).add_exported_program(exported).to_coreai()
    verification = by_module(program, net)
    place = (
        f"the numbers first depart in stage lower, rule 'wrong gelu' ({wrong_gelu.source}), module block.gelu, "
        "node %gelu, at "
    )
    assert place in str(verification)
    with pytest.raises(MismatchError) as error:
        verification.check()
    assert place in str(error.value)
    data = json.loads(json.dumps(verification.to_dict(), allow_nan=False))
    assert data["departure"]["rule"] == "wrong gelu"
    failed = [each["module"] for each in data["modules"] if not each["error"]["passed"]]
    assert failed[0] == "block.gelu"
    assert "block.norm" not in failed


def test_a_right_program_has_no_departure(net: Net, exported: torch.export.ExportedProgram) -> None:
    program = TorchConverter().add_exported_program(exported).to_coreai()
    verification = by_module(program, net).check()
    assert verification.departure is None
    modules = [each.module for each in verification.modules]
    assert modules[0] == "first"
    assert {"block", "block.norm", "block.root"} <= set(modules)
    assert all(each.error.passed for each in verification.modules)
    assert not program.verify_against(net, (X,), backends=["evaluator"]).modules


def test_another_model_departs_in_the_export(net: Net, exported: torch.export.ExportedProgram) -> None:
    program = TorchConverter().add_exported_program(exported).to_coreai()
    other = Net().eval()
    departure = by_module(program, other).departure
    assert departure is not None
    assert (departure.stage, departure.rule) == ("export", "")
    assert "the given model has other weights than the exported one: 'first.weight', 'first.bias'" in str(departure)
    departure = by_module(program, lambda x: net(x) + 1).departure
    assert "the given function is another one than the exported model" in str(departure)
    dropping = nn.Sequential(nn.Dropout(0.9))
    program = TorchConverter().add_exported_program(torch.export.export(dropping.eval(), (X,))).to_coreai()
    assert "the given model is in training mode" in str(by_module(program, dropping.train()).departure)


def test_a_wrong_registered_lowering_is_found() -> None:
    library = torch.library.Library("departures", "DEF")
    library.define("shifted(Tensor x, float by) -> Tensor")
    library.impl("shifted", lambda x, by: x + by, "CompositeExplicitAutograd")

    class Shifts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.departures.shifted(x * 2, 1.0).relu()

    converter = TorchConverter()

    @converter.register_torch_lowering("departures::shifted")
    def lower_shifted(values_map: Any, node: Any, loc: Any) -> Any:
        return coreai.broadcasting_add(values_map[node.args[0].name], 0.5, loc=loc)

    program = converter.add_exported_program(torch.export.export(Shifts(), (X,))).to_coreai()
    departure = by_module(program, Shifts()).departure
    assert departure is not None
    assert (departure.stage, departure.rule, departure.node) == ("lower", "departures.shifted", "shifted")


class Counts(nn.Module):
    """A model with a state, branches, indices of 64 bits and a dynamic dimension."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.table = nn.Embedding(16, 8)
        self.gate = nn.Sigmoid()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.gate(self.table(tokens))
        self.total.add_(x.sum())
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.cos(), (x,)).reshape(tokens.shape[0], -1)


def test_state_branches_and_dynamic_sizes() -> None:
    model, tokens = Counts().eval(), torch.arange(12).reshape(4, 3) % 16
    rows = torch.export.Dim("rows", min=2, max=8)
    exported = torch.export.export(model, (tokens,), dynamic_shapes=({0: rows},))
    right = TorchConverter().add_exported_program(exported).to_coreai()
    checked = by_module(right, model, (tokens[:3],)).check()
    assert by_module(right.specialize({"rows": 3}), model, (tokens[:3],)).check().modules
    right.set_static_shape_config("main", {"four": {"tokens": (4, 3)}})
    with pytest.raises(LookupError, match=r"needs an entry point that was converted \(main\); 'main_four' was made of"):
        by_module(right, model, (tokens,), entrypoint="main_four")
    assert {"table", "gate"} <= {each.module for each in checked.modules}
    wrong = TorchConverter(catalog=[RuleSet([wrong_sigmoid])]).add_exported_program(exported).to_coreai()
    departure = by_module(wrong, model, (tokens[:3],)).departure
    assert departure is not None
    assert (departure.stage, departure.rule, departure.module) == ("lower", "wrong sigmoid", "gate")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_inside_the_model(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    layers = [nn.Linear(8, 8), Called(lambda x: x - x.flip(0)), nn.LayerNorm(8), nn.Linear(8, 8), nn.Sigmoid()]
    model, x = nn.Sequential(*layers).eval().to(dtype), X.to(dtype)
    exported = torch.export.export(model, (x,))
    right = by_module(TorchConverter().add_exported_program(exported).to_coreai(), model, (x,)).check()
    assert {each.error.reference for each in right.modules} == {"float32 twin"}
    assert all(each.error.passed for each in right.modules)
    wrong = TorchConverter(catalog=[RuleSet([wrong_sub])]).add_exported_program(exported).to_coreai()
    departure = by_module(wrong, model, (x,)).departure
    assert departure is not None
    assert (departure.rule, departure.module) == (wrong_sub.name, "1")


def test_the_first_module_that_makes_nan_is_named(net: Net, exported: torch.export.ExportedProgram) -> None:
    """Both sides have the NaN, so that the program is right."""
    model = nn.Sequential(nn.Linear(8, 8), Called(lambda x: torch.log(x - 100.0)), nn.ReLU()).eval()
    program = TorchConverter().add_exported_program(torch.export.export(model, (X,))).to_coreai()
    verification = by_module(program, model).check()
    first = verification.first_not_finite
    assert first is not None
    assert (first.module, first.error.nan, first.error.expected_nan) == ("1", 64, 64)


def test_what_follows_the_conversion_departs(net: Net, exported: torch.export.ExportedProgram) -> None:
    """In a stage that is named, or in a change that no stage made."""
    program = TorchConverter().add_exported_program(exported).to_coreai()
    wrong = TorchConverter(catalog=[RuleSet([wrong_gelu])]).add_exported_program(exported).to_coreai().module
    assert program.history is not None
    later = program.history.followed_by(StageReport("later", 0, 0, 0.0), wrong)
    departure = by_module(replace(program, module=wrong, history=later), net).departure
    assert departure is not None
    assert (departure.stage, departure.rule, departure.module) == ("later", "", "")
    assert "the program before this stage, which followed the conversion, is right" in str(departure)
    departure = by_module(replace(program, module=wrong), net).departure
    assert departure is not None
    assert (departure.stage, departure.rule) == ("", "")
    assert "the conversion is right, and the program was changed after it" in str(departure)


def test_a_stage_that_is_wrong_without_its_rules(
    net: Net, exported: torch.export.ExportedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = pipeline.outline

    def drop(module: IRModule) -> Statistics:
        for op in ops_inside(module.op):
            if op.name in ("coreai.relu", "coreai.sin"):
                replace_uses(op.results[0], op.operands[0])
        return right(module)

    monkeypatch.setattr(pipeline, "outline", drop)
    plain = Called(torch.sin)
    for model, one in ((net, exported), (plain, torch.export.export(plain, (X,)))):
        departure = by_module(TorchConverter().add_exported_program(one).to_coreai(), model).departure
        assert departure is not None
        assert (departure.stage, departure.rule) == ("outline", "")
        assert "without any rewrite of a rule the outputs are wrong, too" in str(departure)


def test_programs_without_a_conversion_and_wrong_options(net: Net, exported: torch.export.ExportedProgram) -> None:
    program = TorchConverter().add_exported_program(exported).to_coreai()
    with pytest.raises(ValueError, match="by must be 'output' or 'module', got 'layer'"):
        program.verify_against(net, (X,), by="layer")  # type: ignore[arg-type]
    plain = AIProgram(program.module)
    with pytest.raises(LookupError, match="this program was not made by a converter"):
        plain.verify_against(net, (X,), backends=["evaluator"], by="module")


def test_the_module_where_the_runtime_departs(
    net: Net, exported: torch.export.ExportedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime is played by an evaluator with a wrong `tanh`."""
    plain, run = implementations()["coreai.tanh"], running.run_entry_point

    def run_on(
        program: AIProgram, values: Any, entrypoint: str, state: Any, backend: str, **options: Any
    ) -> dict[str, Any]:
        with monkeypatch.context() as patch:
            if backend == "runtime":
                patch.setitem(implementations(), "coreai.tanh", lambda op, x: plain(op, x) * 0.5)
            return run(program, values, entrypoint, state, "evaluator")

    program = TorchConverter().add_exported_program(exported).to_coreai()
    monkeypatch.setattr(verifying, "run_entry_point", run_on)
    verification = program.verify_against(net, (X,), backends=["evaluator", "runtime"], by="module")
    assert [error.passed for error in verification.errors] == [True, False]
    departure = verification.departure
    assert departure is not None
    assert (departure.stage, departure.rule, departure.module) == ("runtime", "", "block.recovered")
    assert "%tanh differs by" in departure.detail


def test_the_runtime_departs_in_a_model_with_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens, plain, run = (
        Counts().eval(),
        torch.arange(12).reshape(4, 3),
        implementations()["coreai.sigmoid"],
        running.run_entry_point,
    )

    def run_on(program: AIProgram, values: Any, entrypoint: str, state: Any, backend: str, **options: Any) -> Any:
        with monkeypatch.context() as patch:
            if backend == "runtime":
                patch.setitem(implementations(), "coreai.sigmoid", lambda op, x: plain(op, x) * 0.5)
            return run(program, values, entrypoint, state, "evaluator")

    program = TorchConverter().add_exported_program(torch.export.export(model, (tokens,))).to_coreai()
    monkeypatch.setattr(verifying, "run_entry_point", run_on)
    departure = program.verify_against(model, (tokens,), backends=["evaluator", "runtime"], by="module").departure
    assert departure is not None
    assert (departure.stage, departure.rule, departure.module) == ("runtime", "", "gate")


def test_inner_values_can_be_outputs_on_the_runtime(
    net: Net, exported: torch.export.ExportedProgram, native: Native
) -> None:
    program = TorchConverter().add_exported_program(exported).to_coreai()
    module, added = with_outputs(program.module, "main", {"tanh", "sigmoid", "no_such_value"})
    assert added == {"inner.tanh": "tanh", "inner.sigmoid": "sigmoid"}
    outputs = native.run(module, {"x": X})
    tanh, sigmoid = (torch.from_numpy(outputs[name]) for name in added)
    torch.testing.assert_close(sigmoid, tanh.sigmoid())
    assert list(program.output_names()) == ["mul_1"]


def test_a_model_that_branches_while_it_is_exported() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * (2.0 if torch.compiler.is_exporting() else 3.0)

    model = Branches().eval()
    program = TorchConverter().add_exported_program(torch.export.export(model, (X,))).to_coreai()
    departure = by_module(program, model).departure
    assert departure is not None
    assert departure.stage == "export"
    assert (
        "the given model has the weights of the exported one and is in evaluation mode, so it took another path while "
        "it was exported"
    ) in departure.detail
    assert "another one than" not in departure.detail
