"""Random numbers as inputs: what becomes of the ops that draw them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from patcomp import TorchConverter, UnsupportedError, get_operand
from patcomp.emit.native import Native
from patcomp.evaluate.element_types import to_tensor
from patcomp.program.running import drawn_inputs
from tests.frontend_torch.models import Function, without_devices
from tests.frontend_torch.random_programs import BATCH, SHARES, X, converted, noise_of, refusal
from tests.helpers.joined import run_each

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
        lambda x: functional.dropout(torch.randn_like(x), 0.5, True),
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
    "rrelu": (lambda x: functional.rrelu(x, training=True), (X,), ["rrelu_noise: 4x6xf32, uniform on [0, 1)"]),
    "alpha_dropout": (
        lambda x: functional.alpha_dropout(x, 0.4, True),
        (X,),
        ["alpha_dropout_noise: 4x6xf32, uniform on [0, 1)"],
    ),
    "dropout2d": (
        lambda x: functional.dropout2d(x, 0.4, True),
        (X.reshape(2, 3, 2, 2),),
        ["feature_dropout_noise: 2x3x1x1xf32, uniform on [0, 1)"],
    ),
    "attention": (
        lambda q: functional.scaled_dot_product_attention(q, q, q, dropout_p=0.4),
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
        lambda x: functional.gumbel_softmax(x, hard=True),
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
        lambda x: functional.dropout(functional.dropout(x, 0.4, True), 0.2, True),
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
        assert (program.left_to_pytorch, without_devices(program)) == ((), []), name
        for seed in (0, 1):
            verification = program.verify_against(module, args, seed=seed, backends=["evaluator"])
            assert verification.passed, f"{name}: {verification}"
        values = {**dict(zip(program.input_names(), args, strict=False))}
        values |= drawn_inputs(program, values, "main", 5)
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
        (lambda x: x + torch.rand_like(x), {0: BATCH}, ["rand_like_noise: [batch]x6xf32, uniform on [0, 1)"]),
        (
            lambda x: torch.cat([x, torch.randn(x.shape[0], 3)], 1),
            {0: BATCH},
            ["randn_noise: [batch]x3xf32, standard normal"],
        ),
        (
            lambda x: torch.randn(2 * x.shape[0] + 1, 6).sum(0) + x,
            {0: BATCH},
            ["randn_noise: [2*batch + 1]x6xf32, standard normal"],
        ),
        (
            lambda x: x + torch.randn(x.shape[0] * x.shape[1]).reshape(x.shape),
            {0: BATCH, 1: Dim("width")},
            ["randn_noise: [batch*width]xf32, standard normal"],
        ),
        (
            lambda x: x[torch.randint(x.shape[0], (3,))],
            {0: BATCH},
            ["randint_noise: 3xf32, uniform on [0, 1)"],
        ),
        (lambda x: x[torch.randperm(x.shape[0])], {0: BATCH}, ["randperm_noise: [batch]xf32, uniform on [0, 1)"]),
        (
            lambda x: torch.multinomial(x.softmax(-1), 2, replacement=True),
            {0: BATCH},
            ["multinomial_noise: [batch]x2x6xf32, standard Gumbel"],
        ),
        (
            lambda x: functional.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.3),
            {0: BATCH},
            ["scaled_dot_product_attention_noise: 1x[batch]x[batch]xf32, uniform on [0, 1)"],
        ),
    ],
)
def test_noise_shares_the_dynamic_dimensions_of_inputs(model: Any, shapes: Any, noise: list[str]) -> None:
    module, program = converted(model, X, shapes=[shapes])
    assert noise_of(program) == noise
    assert (program.signature().guards, without_devices(program)) == ((), [])
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
        (lambda x: x + torch.zeros(6).normal_(generator=torch.Generator()), "a generator that it makes itself"),
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
    assert "export with a dimension whose size is a multiple" in text


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
    module, program = converted(lambda x: functional.dropout(x, p, training=True), X)
    assert noise_of(program) == []
    assert program.verify_against(module, (X,), backends=["evaluator"]).passed


def test_a_registered_lowering_of_a_drawing_op_is_used() -> None:
    converter = TorchConverter(random="inputs")

    @converter.register_torch_lowering("aten::randn_like")
    def lower(values_map: Any, node: Any, loc: Any) -> Any:
        return get_operand(values_map, node, 0, loc)

    converter.add_exported_program(torch.export.export(Function(lambda x: x + torch.randn_like(x)), (X,)))
    program = converter.to_coreai()
    assert noise_of(program) == []
    assert program.run(X).equal(2 * X)


def test_the_choice_is_checked_and_refusing_is_the_default() -> None:
    with pytest.raises(ValueError, match="random must be 'refuse' or 'inputs', got 'input'"):
        TorchConverter(random="input")  # type: ignore[arg-type]
    exported = torch.export.export(Function(lambda x: x + torch.rand_like(x)), (X,))
    with pytest.raises(UnsupportedError, match='convert with random="inputs"'):
        TorchConverter().add_exported_program(exported)
