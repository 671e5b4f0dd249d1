"""Programs with random numbers as inputs: their names and entry points, runs and assets, and their verification."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import patcomp
from patcomp import AIProgram, EvaluationError, TorchConverter
from patcomp.program.running import drawn_inputs
from tests.frontend_torch.models import Function
from tests.frontend_torch.random_programs import BATCH, X, converted, noise_of, program_of

# ---- programs, names and entry points ------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(6, 6), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.linear(x))


def blocks() -> nn.Module:
    return nn.Sequential(Block(), Block()).train()


NOISE = ["dropout_noise: 4x6xf32, uniform on [0, 1)", "dropout_1_noise: 4x6xf32, uniform on [0, 1)"]


def test_the_users_program_stays_as_it_is() -> None:
    exported = torch.export.export(blocks(), (X,))
    code, signature = str(exported.graph), str(exported.graph_signature)
    program = program_of(exported)
    assert (str(exported.graph), str(exported.graph_signature)) == (code, signature)
    assert str(program_of(exported)) == str(program)


def test_names_of_outputs_stay() -> None:
    exported = torch.export.export(Function(lambda x: (functional.dropout(x, 0.5, True), x + torch.randn(6))), (X,))
    assert program_of(exported).output_names() == ("dropout", "add")
    assert program_of(exported, output_names=["a", "b"]).output_names() == ("a", "b")


def test_input_names_are_those_of_the_models_inputs() -> None:
    exported = torch.export.export(blocks(), (X,))
    program = program_of(exported, input_names=["dropout_noise"])  # which a draw would have been called
    assert program.input_names() == ("dropout_noise", "dropout_noise_1", "dropout_1_noise")
    with pytest.raises(ValueError, match="the model has 1 input, input, and"):
        program_of(exported, input_names=["a", "b"])


def test_release_mode_names_no_module() -> None:
    converter = TorchConverter(random="inputs", mode=TorchConverter.Mode.RELEASE)
    program = converter.add_exported_program(torch.export.export(blocks(), (X,))).to_coreai()
    assert noise_of(program) == NOISE
    assert program.run(X).shape == X.shape


def test_externalized_modules_take_their_noise() -> None:
    model = blocks()
    converter = TorchConverter(random="inputs").add_pytorch_module(
        model, lambda module: torch.export.export(module, (X,)), externalize_modules=[Block]
    )
    program = converter.to_coreai()
    assert noise_of(program) == NOISE
    assert len(list(program.module.graphs)) == 3
    assert program.verify_against(model, (X,), backends=["evaluator"]).passed


def test_each_entry_point_has_its_own_draws() -> None:
    model = blocks()
    converter = TorchConverter(random="inputs").add_exported_program(torch.export.export(model, (X,)))
    converter.add_exported_program(torch.export.export(model.eval(), (X,)), entrypoint_name="quiet")
    program = converter.to_coreai()
    assert (noise_of(program), noise_of(program, "quiet")) == (NOISE, [])
    assert program.verify_against(model, (X,), entrypoint="quiet", backends=["evaluator"]).passed
    assert program.verify_against(model.train(), (X,), backends=["evaluator"]).passed


@pytest.mark.parametrize("how", ["PyTorch's table", "core ATen", "saved", "patcomp.export"])
def test_decomposed_and_saved_programs(how: str, tmp_path: Path) -> None:
    model = blocks()
    exported = torch.export.export(model, (X,))
    if how == "patcomp.export":
        exported = patcomp.export(model, (X,))
    elif how == "saved":
        torch.export.save(exported, tmp_path / "model.pt2")
        exported = torch.export.load(tmp_path / "model.pt2")
    else:
        exported = exported.run_decompositions(None if how == "core ATen" else {})
    program = program_of(exported)
    assert len(noise_of(program)) == 2
    assert program.verify_against(model, (X,), backends=["evaluator"]).passed


def test_state_and_mutated_inputs_can_be_random() -> None:
    class Drawn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.last.normal_()
            x.uniform_()
            return x + self.last

    exported = torch.export.export(Drawn(), (torch.zeros(3),))
    program = program_of(exported)
    assert noise_of(program) == ["normal_noise: 3xf32, standard normal", "uniform_noise: 3xf32, uniform on [0, 1)"]
    assert [state.name for state in program.signature().states] == ["b_last", "x"]
    assert program.verify_against(Drawn(), (torch.zeros(3),), backends=["evaluator"]).passed
    plain = program_of(exported, mutated_inputs="output")
    assert plain.output_names() == ("add", "x_updated")
    assert plain.verify_against(Drawn(), (torch.zeros(3),), backends=["evaluator"]).passed


def test_a_state_that_is_given_determines_the_size_of_noise() -> None:
    class Written(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.mul_(2)
            return x + torch.randn_like(x)

    _, program = converted(Written(), torch.zeros(4, 6), shapes=[{0: BATCH}])
    state = {"x": torch.ones(3, 6)}
    assert program.run({}, state=state)["add"].shape == (3, 6)
    assert state["x"].equal(torch.full((3, 6), 2.0))


def test_a_target_in_float16_takes_noise_in_float16() -> None:
    model = blocks()
    converter = TorchConverter(random="inputs").add_exported_program(torch.export.export(model, (X,)))
    program = converter.to_coreai(target="neural_engine")
    assert noise_of(program) == [text.replace("f32", "f16") for text in NOISE]
    assert program.verify_against(model, (X,), backends=["evaluator"]).passed


def test_float64_is_narrowed() -> None:
    _, program = converted(lambda x: x + torch.randn_like(x), X.double())
    assert noise_of(program) == ["randn_like_noise: 4x6xf32, standard normal"]


def test_integers_from_noise_need_no_warning() -> None:
    _, program = converted(lambda x: x[torch.randint(4, (3,))] + torch.randint(-9, 9, (6,)), X)
    assert program.diagnostics == ()


# ---- runs ----------------------------------------------------------------------------------------------


@pytest.fixture
def dynamic() -> AIProgram:
    return converted(blocks(), X, shapes=[{0: BATCH}])[1]


def test_runs_draw_with_a_seed(dynamic: AIProgram) -> None:
    first = dynamic.run(X)
    assert first.equal(dynamic.run(X, seed=0))
    assert not first.equal(dynamic.run(X, seed=1))
    assert dynamic.run(X[:1]).shape == (1, 6)


def test_noise_can_be_given_by_name(dynamic: AIProgram) -> None:
    nothing, everything = torch.full((4, 6), 0.999), torch.zeros(4, 6)
    given = {"dropout_noise": nothing, "dropout_1_noise": nothing}
    assert dynamic.run(X, **given).equal(X)
    assert dynamic.run({"input": X, **given})["add_1"].equal(X)
    assert dynamic.run(input=X, **given).equal(X)
    assert dynamic.run({"input": X.numpy(), "dropout_noise": nothing.numpy()})["add_1"].equal(
        dynamic.run(X, dropout_noise=nothing)
    )
    assert not dynamic.run(X, dropout_noise=everything, dropout_1_noise=nothing).equal(X)


def test_other_draws_stay_the_same_where_one_is_given(dynamic: AIProgram) -> None:
    values = {"input": X}
    both = drawn_inputs(dynamic, values, "main", 3)
    one = drawn_inputs(dynamic, {**values, "dropout_noise": X}, "main", 3)
    assert list(one) == ["dropout_1_noise"]
    assert one["dropout_1_noise"].equal(both["dropout_1_noise"])
    assert not both["dropout_noise"].equal(both["dropout_1_noise"])


def test_wrong_calls(dynamic: AIProgram) -> None:
    with pytest.raises(EvaluationError, match="needs input input and has no input x"):
        dynamic.run({"x": X})
    with pytest.raises(EvaluationError, match="'dropout_noise' has size 2 in dimension 0, but batch is 4"):
        dynamic.run(X, dropout_noise=X[:2])
    with pytest.raises(EvaluationError, match=r"must be of dtype float32"):
        dynamic.run(X, dropout_noise=torch.zeros(4, 6, dtype=torch.int32))
    with pytest.raises(TypeError, match="seed must be an integer, got str"):
        dynamic.run(X, seed="1")


@pytest.mark.parametrize("draws", [False, True])
def test_a_model_may_have_an_argument_called_seed(draws: bool) -> None:
    class Seeded(nn.Module):
        def forward(self, x: Tensor, *, seed: Tensor) -> Tensor:
            return x + seed + (torch.randn(6) if draws else 0)

    seed = torch.tensor(2.0)
    program = program_of(torch.export.export(Seeded(), (X,), {"seed": seed}))
    expected = program.run({"x": X, "seed": seed})["add_1"]
    assert program.run(X, seed=seed).equal(expected)
    with pytest.raises(EvaluationError, match="the model was exported with"):
        program.run(X)


def test_a_program_without_inputs_of_its_own() -> None:
    module, program = converted(lambda: torch.randn(3) * 2)
    assert program.run().shape == (3,)
    assert program.verify_against(module, (), backends=["evaluator"]).passed


def test_other_questions_draw_too(dynamic: AIProgram) -> None:
    assert dynamic.audit("gpu", (X,)) is not None
    assert "dropout_noise: [batch]x6xf32, uniform on [0, 1)" in str(dynamic.summary())
    inputs = dynamic.signature().to_dict()["inputs"]
    assert [each.get("distribution") for each in inputs] == [None, "uniform on [0, 1)", "uniform on [0, 1)"]


def test_assets_say_what_their_inputs_are(dynamic: AIProgram, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    from patcomp.emit.inspection import inspect_asset

    asset = dynamic.save_asset(tmp_path / "model.aimodel")
    noise = {f"dropout{number}_noise": torch.full((4, 6), 0.999) for number in ("", "_1")}
    assert torch.as_tensor(asset.run({"input": X, **noise})["add_1"]).equal(X)
    assert [str(each) for each in inspect_asset(asset.path).functions["main"].inputs] == [
        "input: ?x6xf32",
        "dropout_noise: ?x6xf32, uniform on [0, 1)",
        "dropout_1_noise: ?x6xf32, uniform on [0, 1)",
    ]


# ---- verification ----------------------------------------------------------------------------------------


def test_a_wrong_program_is_noticed() -> None:
    """The model and the program have the same noise, so a difference is one of the program."""
    _, program = converted(lambda x: x + torch.randn_like(x), X)
    assert not program.verify_against(Function(lambda x: x + 1.01 * torch.randn_like(x)), (X,), backends=["evaluator"])


def test_a_model_may_write_to_what_it_draws() -> None:
    class Doubled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.rand(4, 6)
            y.mul_(2)
            return x + y

    module, program = converted(Doubled(), X)
    noise = torch.full((4, 6), 0.25)
    assert program.verify_against(module, {"x": X, "rand_noise": noise}, backends=["evaluator"]).passed
    assert noise.equal(torch.full((4, 6), 0.25))


def test_noise_of_a_verification_can_be_given(dynamic: AIProgram) -> None:
    model, nothing = nn.Identity(), torch.full((4, 6), 0.999)
    with pytest.raises(EvaluationError, match="draws nothing for the input 'dropout_noise'"):
        dynamic.verify_against(model, {"input": X, "dropout_noise": nothing})
    same = blocks()
    with torch.no_grad():
        for parameter in same.parameters():
            parameter.zero_()
    given = {"input": X, "dropout_noise": nothing, "dropout_1_noise": nothing}
    assert dynamic.verify_against(same, given, backends=["evaluator"]).passed


def test_a_model_with_other_draws_is_an_error(dynamic: AIProgram) -> None:
    model = blocks()
    with pytest.raises(EvaluationError, match=r"the mode in which it was exported \(train or eval\)"):
        dynamic.verify_against(model.eval(), (X,))
    more = Function(lambda x: model.train()(x) + torch.rand(6))
    with pytest.raises(EvaluationError, match=r"it draws more, uniform on \[0, 1\) of shape \(6,\)"):
        dynamic.verify_against(more, (X,))
    normal = Function(lambda x: x + torch.randn(4, 6))
    with pytest.raises(
        EvaluationError, match=r"draws standard normal of shape \(4, 6\), where the input 'dropout_noise'"
    ):
        dynamic.verify_against(normal, (X,))
    other = Function(lambda x: x + torch.rand(6))
    with pytest.raises(EvaluationError, match=r"of shape \(6,\), where .* \(4, 6\)"):
        dynamic.verify_against(other, (X,))


def test_the_exported_program_can_be_compared_with(dynamic: AIProgram) -> None:
    model = blocks()
    exported = torch.export.export(model, (X,))
    assert program_of(exported).verify_against(exported.module(), (X,), backends=["evaluator"]).passed


def test_modules_are_compared_with_the_same_noise() -> None:
    model = blocks()
    verification = program_of(torch.export.export(model, (X,))).verify_against(
        model, (X,), by="module", backends=["evaluator"]
    )
    assert verification.passed
    assert {each.module for each in verification.modules} >= {"0.dropout", "1.dropout"}
    assert all(each.error.passed for each in verification.modules)


def test_half_precision_is_compared_with_a_twin_of_the_same_noise() -> None:
    model = blocks().half()
    program = program_of(torch.export.export(model, (X.half(),)))
    verification = program.verify_against(model, (X.half(),), backends=["evaluator"])
    assert verification.passed
    assert [each.reference for each in verification.errors] == ["float32 twin"]
