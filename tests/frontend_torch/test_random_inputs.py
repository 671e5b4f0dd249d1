"""Random numbers as inputs: what becomes of the ops that draw them, the signature, runs, and the verification."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from patcomp import AIProgram, EvaluationError, TorchConverter, UnsupportedError
from patcomp.emit.native import Native
from patcomp.ir.evaluate.element_types import to_tensor
from tests.frontend_torch.models import Function
from tests.helpers.joined import run_each

X, SHARES = torch.linspace(-2, 2, 24).reshape(4, 6), torch.linspace(0.05, 0.95, 24).reshape(4, 6)
BATCH = Dim("batch", min=1, max=64)


def program_of(exported: ExportedProgram, **options: Any) -> AIProgram:
    return TorchConverter(random="inputs").add_exported_program(exported, **options).to_coreai()


def converted(model: nn.Module | Callable[..., Any], *args: Any, shapes: Any = None) -> tuple[nn.Module, AIProgram]:
    module = model if isinstance(model, nn.Module) else Function(model)
    shapes = {"args": tuple(shapes)} if shapes and isinstance(module, Function) else shapes
    return module, program_of(torch.export.export(module, args, dynamic_shapes=shapes))


def noise_of(program: AIProgram, entrypoint: str = "main") -> list[str]:
    """The inputs that are random numbers, as the signature shows them."""
    return [str(spec) for spec in program.signature(entrypoint).inputs if spec.distribution]


def refusal(model: nn.Module | Callable[..., Any], *args: Any, shapes: Any = None) -> str:
    with pytest.raises(UnsupportedError) as error:
        converted(model, *args, shapes=shapes)
    return str(error.value)


# ---- ops -----------------------------------------------------------------------------------------------


def in_place(x: Tensor) -> Tensor:
    y = x * 1
    y[1:3].normal_(0.5, 2)
    y[0].uniform_(2, 3)
    return y


def without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x + torch.randn_like(x)


CASES: dict[str, tuple[Callable[..., Any] | nn.Module, tuple[Tensor, ...], list[str]]] = {
    "rand": (lambda x: x + torch.rand(4, 6), (X,), ["rand_noise: 4x6xf32, uniform on [0, 1)"]),
    "randn_like": (lambda x: x * torch.randn_like(x), (X,), ["randn_like_noise: 4x6xf32, standard normal"]),
    "half": (
        lambda x: F.dropout(torch.randn_like(x), 0.5, True),
        (X.half(),),
        ["randn_like_noise: 4x6xf16, standard normal", "dropout_noise: 4x6xf32, uniform on [0, 1)"],
    ),
    "bfloat16": (lambda x: x + torch.rand_like(x), (X.bfloat16(),), ["rand_like_noise: 4x6xbf16, uniform on [0, 1)"]),
    "randint": (lambda x: x[torch.randint(1, 4, (3,))], (X,), ["randint_noise: 3xf32, uniform on [0, 1)"]),
    "normal": (lambda m, s: torch.normal(m, s), (X, SHARES), ["normal_noise: 4x6xf32, standard normal"]),
    "exponential": (
        lambda x: (x.softmax(-1) / torch.empty_like(x).exponential_(1)).argmax(-1),
        (X,),
        ["exponential_noise: 4x6xf32, uniform on [0, 1)"],
    ),
    "geometric": (
        lambda x: x + torch.empty_like(x).geometric_(0.3),
        (X,),
        ["geometric_noise: 4x6xf32, uniform on [0, 1)"],
    ),
    "bernoulli": (lambda p: torch.bernoulli(p), (SHARES,), ["bernoulli_noise: 4x6xf32, uniform on [0, 1)"]),
    "bernoulli_": (
        lambda p: p + torch.empty(4, 6).bernoulli_(0.3),
        (SHARES,),
        ["bernoulli_noise: 4x6xf32, uniform on [0, 1)"],
    ),
    "multinomial": (lambda w: torch.multinomial(w, 1), (SHARES,), ["multinomial_noise: 4x6xf32, standard Gumbel"]),
    "without_replacement": (
        lambda w: torch.multinomial(w, 3),
        (SHARES,),
        ["multinomial_noise: 4x6xf32, standard Gumbel"],
    ),
    "with_replacement": (
        lambda w: torch.multinomial(w, 7, replacement=True),
        (SHARES,),
        ["multinomial_noise: 4x7x6xf32, standard Gumbel"],
    ),
    "randperm": (lambda x: x[torch.randperm(4)], (X,), ["randperm_noise: 4xf32, uniform on [0, 1)"]),
    "rrelu": (lambda x: F.rrelu(x, training=True), (X,), ["rrelu_noise: 4x6xf32, uniform on [0, 1)"]),
    "alpha_dropout": (
        lambda x: F.alpha_dropout(x, 0.4, True),
        (X,),
        ["alpha_dropout_noise: 4x6xf32, uniform on [0, 1)"],
    ),
    "dropout2d": (
        lambda x: F.dropout2d(x, 0.4, True),
        (X.reshape(2, 3, 2, 2),),
        ["feature_dropout_noise: 2x3x1x1xf32, uniform on [0, 1)"],
    ),
    "attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.4),
        (X.reshape(1, 2, 3, 4),),
        ["scaled_dot_product_attention_noise: 1x2x3x3xf32, uniform on [0, 1)"],
    ),
    "distributions": (
        lambda m, s: (
            torch.distributions.Normal(m, s, validate_args=False).rsample()
            + torch.distributions.Categorical(logits=m, validate_args=False).sample()[:, None]
        ),
        (X, SHARES),
        ["normal_noise: 4x6xf32, standard normal", "multinomial_noise: 4x1x6xf32, standard Gumbel"],
    ),
    "gumbel_softmax": (
        lambda x: F.gumbel_softmax(x, hard=True),
        (X,),
        ["exponential_noise: 4x6xf32, uniform on [0, 1)"],
    ),
    "in_place": (
        in_place,
        (X,),
        ["normal_noise: 2x6xf32, standard normal", "uniform_noise: 6xf32, uniform on [0, 1)"],
    ),
    "without_gradients": (without_gradients, (X,), ["randn_like_noise: 4x6xf32, standard normal"]),
    "returned": (lambda x: (torch.randn(3), x), (X,), ["randn_noise: 3xf32, standard normal"]),
    "unused": (
        lambda x: (torch.randn(3), x + torch.rand(2, 1, 6))[1],
        (X,),
        ["randn_noise: 3xf32, standard normal", "rand_noise: 2x1x6xf32, uniform on [0, 1)"],
    ),
    "twice": (
        lambda x: F.dropout(F.dropout(x, 0.4, True), 0.2, True),
        (X,),
        ["dropout_noise: 4x6xf32, uniform on [0, 1)", "dropout_1_noise: 4x6xf32, uniform on [0, 1)"],
    ),
}


def test_ops_compute_what_pytorch_computes_of_the_same_noise(native: Native) -> None:
    """On the evaluator, and on the runtime, with two seeds of which the results differ."""
    programs: dict[str, Any] = {}
    expected: dict[str, dict[str, Tensor]] = {}
    for name, (model, args, noise) in CASES.items():
        module, program = converted(model, *args)
        assert noise_of(program) == noise, name
        assert program.left_to_pytorch == program.diagnostics == (), name
        for seed in (0, 1):
            verification = program.verify_against(module, args, seed=seed, backends=["evaluator"])
            assert verification.passed, f"{name}: {verification}"
        values = {**dict(zip(program.input_names(), args, strict=False))}
        values |= program._drawn(values, "main", 5)
        expected[name] = program.run(values)
        other = program.run({each: value for each, value in values.items() if "noise" not in each}, seed=6)
        same = [torch.equal(value, other[output]) for output, value in expected[name].items()]
        assert not all(same) or name in ("geometric", "multinomial", "exponential"), name
        programs[name] = program.module, values
    for name, outputs in run_each(native, programs).items():
        for output, value in expected[name].items():
            torch.testing.assert_close(to_tensor(outputs[output]), value, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize(
    ("model", "shapes", "noise"),
    [
        (lambda x: x + torch.rand_like(x), {0: BATCH}, ["rand_like_noise: batch x 6 x f32, uniform on [0, 1)"]),
        (
            lambda x: torch.cat([x, torch.randn(x.shape[0], 3)], 1),
            {0: BATCH},
            ["randn_noise: batch x 3 x f32, standard normal"],
        ),
        (
            lambda x: torch.randn(2 * x.shape[0] + 1, 6).sum(0) + x,
            {0: BATCH},
            ["randn_noise: 2*batch + 1 x 6 x f32, standard normal"],
        ),
        (
            lambda x: x + torch.randn(x.shape[0] * x.shape[1]).reshape(x.shape),
            {0: BATCH, 1: Dim("width")},
            ["randn_noise: batch*width x f32, standard normal"],
        ),
        (
            lambda x: x[torch.randint(x.shape[0], (3,))],
            {0: BATCH},
            ["randint_noise: 3xf32, uniform on [0, 1)"],
        ),
        (lambda x: x[torch.randperm(x.shape[0])], {0: BATCH}, ["randperm_noise: batch x f32, uniform on [0, 1)"]),
        (
            lambda x: torch.multinomial(x.softmax(-1), 2, replacement=True),
            {0: BATCH},
            ["multinomial_noise: batch x 2 x 6 x f32, standard Gumbel"],
        ),
        (
            lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.3),
            {0: BATCH},
            ["scaled_dot_product_attention_noise: 1 x batch x batch x f32, uniform on [0, 1)"],
        ),
    ],
)
def test_noise_shares_the_dynamic_dimensions_of_inputs(model: Any, shapes: Any, noise: list[str]) -> None:
    module, program = converted(model, X, shapes=[shapes])
    assert noise_of(program) == noise
    assert (program.signature().guards, program.diagnostics) == ((), ())
    for size in (1, 2, 7):
        verification = program.verify_against(module, (torch.randn(size, 6),), backends=["evaluator"])
        assert verification.passed, verification


def test_a_dynamic_program_runs_on_the_runtime() -> None:
    pytest.importorskip("coreai")
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3)).train()
    _, program = converted(model, X, shapes=[{0: BATCH}])
    assert program.verify_against(model, (torch.randn(5, 6),), backends=["runtime"]).passed


def test_a_dynamic_dimension_is_fixed_in_the_noise_too() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3)).train()
    exported = torch.export.export(model, (X,), dynamic_shapes=[{0: BATCH}])
    converter = TorchConverter(random="inputs").add_exported_program(exported)
    specialized = converter.to_coreai().specialize({"batch": 4})
    for program in (specialized, converter.to_coreai(fixed={"batch": 4})):
        assert noise_of(program) == ["dropout_noise: 4x6xf32, uniform on [0, 1)"]
        assert program.verify_against(model, (X,), backends=["evaluator"]).passed
    program = converter.to_coreai()
    program.set_static_shape_config("main", {"short": {"input": (2, 6)}})
    assert noise_of(program, "main_short") == ["dropout_noise: 2x6xf32, uniform on [0, 1)"]
    assert program.run(X[:2], entrypoint="main_short").shape == (2, 6)


# ---- refusals ------------------------------------------------------------------------------------------


def in_a_branch(x: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x + torch.randn_like(x), lambda x: x * 1, (x,))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (in_a_branch, "aten.randn_like draws random numbers in a branch, a loop or another nested graph"),
        (lambda x: torch.poisson(x.abs()), "until one is accepted"),
        (lambda x: torch.randn(4, 6, dtype=torch.complex64).real + x, "complex random numbers"),
        (lambda x: x.sum() + torch.randn(x.nonzero().shape[0]).sum(), "depends on data"),
        (nn.LSTM(6, 4, num_layers=2, dropout=0.3).train(), "dropout between recurrent layers"),
        (nn.GRU(6, 4, num_layers=2, dropout=0.3).train(), "dropout between recurrent layers"),
    ],
)
def test_what_cannot_be_an_input_is_refused(model: Any, reason: str) -> None:
    text = refusal(model, X)
    assert reason in text
    assert "node %" in text
    assert "draw the numbers outside of the model" in text


def test_all_refusals_are_listed() -> None:
    text = refusal(lambda x: torch.poisson(x.abs()) + in_a_branch(x), X)
    assert "  1. " in text
    assert "  2. " in text


def test_a_size_that_no_dimension_of_an_input_can_be_is_refused() -> None:
    length = Dim("length", min=8, max=64)
    text = refusal(lambda x: x.sum() + torch.randn((x.shape[0] + 1) // 2).sum(), torch.ones(9, 2), shapes=[{0: length}])
    assert "export with a dimension of which the size is a multiple" in text


def test_draws_beside_a_branch_are_inputs() -> None:
    def model(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x + torch.randn_like(x),))

    module, program = converted(model, X)
    assert noise_of(program) == ["randn_like_noise: 4x6xf32, standard normal"]
    assert program.verify_against(module, (X,), backends=["evaluator"]).passed


def test_recurrent_networks_of_one_layer_draw_nothing() -> None:
    model = nn.GRU(6, 4, dropout=0.3).train()
    assert noise_of(converted(model, X)[1]) == []


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_dropout_of_nothing_or_all_draws_nothing(p: float) -> None:
    module, program = converted(lambda x: F.dropout(x, p, training=True), X)
    assert noise_of(program) == []
    assert program.verify_against(module, (X,), backends=["evaluator"]).passed


def test_the_choice_is_checked_and_refusing_is_the_default() -> None:
    with pytest.raises(ValueError, match="random must be 'refuse' or 'inputs', got 'input'"):
        TorchConverter(random="input")  # type: ignore[arg-type]
    exported = torch.export.export(Function(lambda x: x + torch.rand_like(x)), (X,))
    with pytest.raises(UnsupportedError, match='convert with random="inputs"'):
        TorchConverter().add_exported_program(exported)


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
    exported = torch.export.export(Function(lambda x: (F.dropout(x, 0.5, True), x + torch.randn(6))), (X,))
    assert program_of(exported).output_names() == ("dropout", "add")
    assert program_of(exported, output_names=["a", "b"]).output_names() == ("a", "b")


def test_input_names_are_those_of_the_models_inputs() -> None:
    exported = torch.export.export(blocks(), (X,))
    program = program_of(exported, input_names=["dropout_noise"])  # which a draw would have been called
    assert program.input_names() == ("dropout_noise", "dropout_noise_1", "dropout_1_noise")
    with pytest.raises(ValueError, match=r"Graph has 1 live inputs \(\['input'\]\)"):
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


@pytest.mark.parametrize("how", ["PyTorch's table", "core ATen", "saved"])
def test_decomposed_and_saved_programs(how: str, tmp_path: Path) -> None:
    model = blocks()
    exported = torch.export.export(model, (X,))
    if how == "saved":
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
    both = dynamic._drawn(values, "main", 3)
    one = dynamic._drawn({**values, "dropout_noise": X}, "main", 3)
    assert list(one) == ["dropout_1_noise"]
    assert one["dropout_1_noise"].equal(both["dropout_1_noise"])
    assert not both["dropout_noise"].equal(both["dropout_1_noise"])


def test_wrong_calls(dynamic: AIProgram) -> None:
    with pytest.raises(EvaluationError, match="needs input input and has no input x"):
        dynamic.run({"x": X})
    with pytest.raises(EvaluationError, match="'dropout_noise' has size 2 in dimension 0, but batch is 4"):
        dynamic.run(X, dropout_noise=X[:2])
    with pytest.raises(EvaluationError, match="must be of dtype torch.float32"):
        dynamic.run(X, dropout_noise=torch.zeros(4, 6, dtype=torch.int32))
    with pytest.raises(TypeError, match="seed is that of the random numbers, an integer, got str"):
        dynamic.run(X, seed="1")


def test_a_program_without_inputs_of_its_own() -> None:
    module, program = converted(lambda: torch.randn(3) * 2)
    assert program.run().shape == (3,)
    assert program.verify_against(module, (), backends=["evaluator"]).passed


def test_other_questions_draw_too(dynamic: AIProgram) -> None:
    assert dynamic.audit("gpu", (X,)) is not None
    assert "dropout_noise: batch x 6 x f32, uniform on [0, 1)" in str(dynamic.summary())
    inputs = dynamic.signature().to_dict()["inputs"]
    assert [each["distribution"] for each in inputs] == ["", "uniform on [0, 1)", "uniform on [0, 1)"]


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
