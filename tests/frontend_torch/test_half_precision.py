"""Programs of half precision beside the model in float32: what overflows is named, and can stay in float32."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from patcomp import AIProgram, EvaluationError, MismatchError, TorchConverter
from patcomp.errors import ConversionWarning, UnknownNameError
from patcomp.ir.types import element_name
from patcomp.ir.xdsl import TensorType, ops_inside

X = torch.linspace(-2, 2, 64).reshape(1, 64)


class Block(nn.Module):
    """The square of 400 * h is beyond float16, and the result is not."""

    def __init__(self, big: bool):
        super().__init__()
        self.norm, self.big = nn.LayerNorm(64), big

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        if self.big:
            y = h * 400.0
            h = y * y / 60000.0 + y * y * 0.0
        return x + h


def net() -> nn.Sequential:
    return nn.Sequential(*(Block(index == 1) for index in range(3))).eval()


class Writes(nn.Module):
    """A buffer gets what overflows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(64))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.mul_(x[0] * 200.0 * 200.0 * 200.0 / 1e4)
        return self.seen + 1


class Chooses(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.topk((x * 1e-4 + 1.0), 8).indices


class Cancels(nn.Module):
    """Exact in float32, and not in float16."""

    def __init__(self) -> None:
        super().__init__()
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * 0.01) + 0


class Head(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + 8.0) - 8.0


class Scaled(nn.Module):
    """A composite whose result is beyond float16, and is scaled after it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.norm.weight.data.fill_(6e4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) * 1e-4


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.LayerNorm(64), nn.LayerNorm(64)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + self.b(x * 2)


def converter(model: nn.Module, *inputs: Tensor) -> TorchConverter:
    return TorchConverter().add_exported_program(torch.export.export(model, inputs))


def halved(model: nn.Module, dtype: torch.dtype = torch.float16) -> nn.Module:
    return copy.deepcopy(model).to(dtype)


def on_evaluator(program: AIProgram, model: nn.Module, *inputs: Tensor, **options: Any) -> Any:
    return program.verify_against(model, inputs, backends=["evaluator"], **options)


def element_types(program: AIProgram) -> set[str]:
    values = (value for op in ops_inside(program.module.op) for value in op.results)
    return {element_name(value.type.element_type) for value in values if isinstance(value.type, TensorType)}


def test_nan_of_half_precision_fails_and_names_the_op() -> None:
    model = halved(net())
    program = converter(model, X.half()).to_coreai()
    assert bool(program.run(X.half()).isnan().all())
    result = on_evaluator(program, model, X.half())
    assert not result.passed
    assert result.errors[0].overflows == 64
    overflow = result.overflow
    assert (overflow.op, overflow.module, overflow.node) == ("coreai.decomposable.broadcasting_mul", "1", "mul_1")
    assert overflow.source.startswith("tests/frontend_torch/test_half_precision.py:")
    with torch.no_grad():
        h = net()[1].norm(net()[0](X)) * 400.0
    assert overflow.value == pytest.approx(float((h * h).max()), rel=0.02)
    text = str(result)
    assert "output 'add_3' on the evaluator has 64 elements that are NaN or infinite" in text
    assert "--keep-float32 1 (keep=['1']) leaves it in float32" in text
    with pytest.raises(MismatchError, match=r"where the model in float32 is finite; half precision first overflows"):
        result.check()


def test_the_model_in_float32_judges_also_what_its_weights_lose() -> None:
    """A buffer beyond float16 is infinite in the model in half precision, and in the twin of this model, too."""

    class Far(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("far", torch.tensor(1e6))

        def forward(self, x: Tensor) -> Tensor:
            return (x + self.far) - self.far

    model = halved(Far())
    program = converter(model, X.half()).to_coreai()
    assert on_evaluator(program, model, X.half()).passed  # nothing knows what the weight was
    assert not on_evaluator(program, model, X.half(), float32_model=Far()).passed


@pytest.mark.parametrize("keep", [["1"], ["mul_1", "%div", "mul_2", "mul_3"], ["[1]"]])
def test_ops_stay_in_float32(keep: list[str]) -> None:
    model = halved(net())
    program = converter(model, X.half()).to_coreai(keep=keep)
    assert element_types(program) >= {"f16", "f32"}
    result = program.verify_against(model, (X.half(),), float32_model=net())
    assert result.check().errors[0].reference == "float32 twin"
    with torch.no_grad():
        assert torch.allclose(program.run(X.half()).float(), net()(X), rtol=2e-2, atol=2e-2)


def test_the_fewest_ops_are_found() -> None:
    model = halved(net())
    own = converter(model, X.half())
    kept = own.to_coreai().needs_float32((X.half(),))
    assert own.to_coreai(keep=kept).needs_float32((X.half(),)) == ()
    for name in kept:  # none can be left out
        assert own.to_coreai(keep=[each for each in kept if each != name]).needs_float32((X.half(),))
    assert converter(net(), X).to_coreai().needs_float32((X,)) == ()


def types_of_composites(program: AIProgram) -> list[str]:
    """The element type of the first argument of each composite's graph."""
    graphs = [graph for graph in program.module.graphs if graph not in program.module.entry_graphs]
    return sorted(element_name(graph.regions[0].block.args[0].type.element_type) for graph in graphs)


def test_a_composite_is_kept_whole() -> None:
    model, x = halved(Scaled().eval()), X.half()
    own = converter(model, x)
    program = own.to_coreai()
    assert (program.composites, types_of_composites(program)) == ({"batch_norm": 1}, ["f16"])
    kept = program.needs_float32((x,))
    assert len(kept) == 2
    fixed = own.to_coreai(keep=kept)
    assert (fixed.composites, types_of_composites(fixed)) == ({"batch_norm": 1}, ["f32"])
    assert fixed.verify_against(model, (x,), float32_model=Scaled().eval()).passed


def test_one_of_equal_composites_is_kept() -> None:
    model, x = halved(Norms()), X.half()
    own = converter(model, x)
    assert types_of_composites(own.to_coreai()) == ["f16"]
    program = own.to_coreai(keep=["b"])
    assert types_of_composites(program) == ["f16", "f32"]
    assert program.verify_against(model, (x,), float32_model=Norms()).passed
    wide = TorchConverter().add_exported_program(torch.export.export(Norms(), (X,)))
    for_target = wide.to_coreai(target="neural_engine", keep=["b"])
    assert for_target.verify_against(Norms(), (X,)).passed


def test_a_target_keeps_ops_in_float32() -> None:
    own = converter(net(), X)
    program = own.to_coreai(target="neural_engine")
    result = on_evaluator(program, net(), X)
    assert not result.passed
    assert result.overflow.module == "1"
    fixed = own.to_coreai(target="neural_engine", keep=["1"])
    assert fixed.verify_against(net(), (X,)).passed
    assert element_types(fixed) >= {"f16", "f32"}
    assert on_evaluator(own.to_coreai(target="neural_engine", keep=program.needs_float32((X,))), net(), X).passed


class Beyond(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x.exp() + 1.0) / 160000.0


def test_a_constant_beyond_float16_is_told_and_can_be_kept() -> None:
    own = converter(Beyond(), X)
    with pytest.warns(ConversionWarning, match=r"one op leaves the whole program in wider floats: it holds 160000"):
        program = own.to_coreai(target="neural_engine")
    assert "f16" not in element_types(program)
    assert program.diagnostics[0].node == "div"
    kept = program.needs_float32((X,))
    assert kept == ("div",)
    fixed = own.to_coreai(target="neural_engine", keep=kept)
    assert fixed.diagnostics == ()
    assert element_types(fixed) >= {"f16", "f32"}
    assert fixed.verify_against(Beyond(), (X,)).passed


def test_a_program_in_bfloat16_for_a_target_of_float16_is_told() -> None:
    model = halved(nn.Sequential(nn.Linear(64, 32)), torch.bfloat16)
    with pytest.warns(ConversionWarning, match="no longer in bfloat16: numbers beyond 65504 overflow"):
        converter(model, X.bfloat16()).to_coreai(target="neural_engine")


def test_states_are_finite_too() -> None:
    model, x = halved(Writes()), X.half()
    own = converter(model, x)
    program = own.to_coreai()
    result = on_evaluator(program, model, x)
    assert {error.name: error.overflows > 0 for error in result.errors} == {"add": True, "b_seen": True}
    kept = program.needs_float32((x,))
    assert on_evaluator(own.to_coreai(keep=kept), model, x, float32_model=Writes()).passed


def test_an_output_that_float16_cannot_hold_is_refused() -> None:
    class Large(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * 300.0) * (x * 300.0)

    program = converter(halved(Large()), X.half()).to_coreai()
    with pytest.raises(EvaluationError, match=r"an output or a state of half precision cannot hold its own numbers"):
        program.needs_float32((X.half(),))


def test_unknown_modules_are_refused() -> None:
    own = converter(halved(net()), X.half())
    with pytest.raises(UnknownNameError, match=r"no op of the program comes from 'layers.9', which is to stay"):
        own.to_coreai(keep=["1", "layers.9"])
    with pytest.raises(TypeError, match=r"keep takes a list of modules and FX nodes, such as \['1'\]"):
        own.to_coreai(keep="1")


def test_half_precision_far_from_float32_is_told_with_its_op() -> None:
    model, x = halved(Cancels()), X.half()
    program = converter(model, x).to_coreai()
    result = on_evaluator(program, model, x)
    assert result.passed  # the program computes what the model does
    loss = result.half_loss
    assert (loss.module, loss.node) == ("head", "sub")
    assert loss.after > 0.05 > loss.before
    first, second = result.of_half_precision
    assert first.startswith("note: output 'add_1': half precision moves it by")
    assert second.startswith("most of it arises in %sub in head at tests/frontend_torch/test_half_precision.py:")


def test_integers_that_half_precision_changes_are_told() -> None:
    model, x = halved(Chooses()), X.half()
    program = converter(model, x).to_coreai()
    result = on_evaluator(program, model, x)
    share = float((model(x) != Chooses()(x.float())).double().mean())
    assert result.errors[0].half_loss == pytest.approx(share)
    assert f"{share:.0%} of its elements differ from the model in float32" in str(result)
    exact = converter(Chooses(), X).to_coreai()
    assert on_evaluator(exact, Chooses(), X).errors[0].half_loss == 0.0


def test_masks_that_become_infinite_pass() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x > 0, x, torch.full_like(x, -math.inf)) * 2

    model = halved(Masked())
    assert on_evaluator(converter(model, X.half()).to_coreai(), model, X.half()).passed
