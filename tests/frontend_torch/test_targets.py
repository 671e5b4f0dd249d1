"""Conversion for a target: options, states, names and refusals."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.emit.native import Native
from patcomp.errors import RuleError
from patcomp.patterns import Rule, op_rule
from patcomp.targets import NEURAL_ENGINE, TARGETS, Target
from tests.helpers.as_users_run import AS_USERS_RUN

pytestmark = AS_USERS_RUN


class Counting(nn.Module):
    """A buffer that the model adds to, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("total", torch.full((1, 8), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.total.add_(y)
        return y * self.total


def converter(model: nn.Module, *args: torch.Tensor, **options: object) -> TorchConverter:
    return TorchConverter().add_exported_program(torch.export.export(model.eval(), args, **options))


@pytest.mark.parametrize("name", TARGETS)
def test_states(name: str, native: Native) -> None:
    torch.manual_seed(0)
    model, x = Counting(), torch.randn(1, 8)
    program = converter(model, x).to_coreai(target=name)
    half = name == "neural_engine"
    assert program.new_state()["b_total"].dtype == (torch.float16 if half else torch.float32)
    program.verify_against(model, (x,), backends=["evaluator"]).check()
    states = program.new_state()
    given = native.run(program.module, {"x": x.half() if half else x}, states)
    wanted = model(x)
    torch.testing.assert_close(torch.from_numpy(given["mul"]).float(), wanted, rtol=1e-2, atol=1e-2)


def test_a_target_is_chosen_by_name_or_made() -> None:
    staged = converter(nn.Linear(4, 4), torch.randn(1, 4))
    assert "coreai.conv2d" in str(staged.to_coreai(target="neural_engine"))
    assert "coreai.conv2d" in str(staged.to_coreai(target=Target("mine", rules=("linear as convolution",))))
    assert "coreai.conv2d" not in str(staged.to_coreai(target=NEURAL_ENGINE.without("linear as convolution")))
    assert "coreai.conv2d" not in str(staged.to_coreai())


def test_a_rule_that_the_converter_leaves_out_is_left_out() -> None:
    exported = torch.export.export(nn.Linear(4, 4), (torch.randn(1, 4),))
    staged = TorchConverter(without=["linear as convolution"]).add_exported_program(exported)
    assert "coreai.conv2d" not in str(staged.to_coreai(target="neural_engine"))


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("neural", ValueError, "there is no target 'neural'; there are 'cpu', 'gpu', 'neural_engine'"),
        (3, TypeError, "target must be a name or a Target, got 3"),
        (
            Target("mine", rules=("linear as",)),
            ValueError,
            "names the rule 'linear as', which does not exist; there are",
        ),
        (Target("mine", steps=("half",)), ValueError, "names the step 'half', which does not exist; there are"),
    ],
)
def test_what_is_no_target(target: object, error: type[Exception], message: str) -> None:
    staged = converter(nn.Linear(4, 4), torch.randn(1, 4))
    with pytest.raises(error, match=message):
        staged.to_coreai(target=target)  # type: ignore[arg-type]


def test_a_rule_that_a_target_lacks_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match=r"no rule or step 'linear' to leave out; it has .*'linear as convolution'"):
        converter(nn.Linear(4, 4), torch.randn(1, 4)).to_coreai(target=NEURAL_ENGINE.without("linear"))


def with_catalog(*values: object, **options: Any) -> TorchConverter:
    """A converter of a linear layer, with the catalog of a user that has the given rules and targets."""
    catalog = ModuleType("a_catalog")
    vars(catalog).update({f"value_{number}": value for number, value in enumerate(values)})
    exported = torch.export.export(nn.Linear(4, 4), (torch.randn(1, 4),))
    return TorchConverter(catalog=[catalog], **options).add_exported_program(exported)


def seen_products(seen: list[Any], **options: Any) -> Rule:
    """A rule that refuses each product of matrices, and lists it."""

    @op_rule("target", "coreai.decomposable.broadcasting_batch_matmul", **options)
    def refusing(op: Any, c: Any) -> None:
        seen.append(op)

    return refusing


def test_a_rule_says_to_which_targets_it_belongs() -> None:
    """A target of a catalog is chosen by its name; the rule names the target, and nothing else names the rule."""
    mine, calls = Target("mine"), list[Any]()
    spy = seen_products(calls, name="own linear", targets=("mine",))
    with_catalog(mine, spy).to_coreai(target="mine")
    assert calls
    calls.clear()
    with_catalog(mine, spy).to_coreai(target="gpu")
    with_catalog(spy).to_coreai(target=Target("mine").without("own linear"))
    assert not calls


def test_two_targets_of_one_name_are_refused() -> None:
    with pytest.raises(RuleError, match="a_catalog declares a second target 'mine'; give it another name"):
        with_catalog(Target("mine"), Target("mine", steps=("half precision",)))
    variant = NEURAL_ENGINE.without("half precision")
    assert with_catalog(variant).to_coreai(target="neural_engine").summary()  # patcomp's own


def test_a_rule_that_replaces_another_belongs_to_its_targets() -> None:
    calls: list[Any] = []
    spy = seen_products(calls, name="linear as convolution")
    assert "coreai.conv2d" not in str(with_catalog(spy).to_coreai(target="neural_engine"))
    assert calls


def test_only_rules_of_the_target_stage_belong_to_targets() -> None:
    with pytest.raises(RuleError, match="only rules of the stage target belong to targets; this one is of the stage l"):
        op_rule("lower", "aten.relu", targets=("gpu",))(lambda op, c: None)
    with pytest.raises(RuleError, match=r'targets takes a list of names, such as \("neural_engine",\), got .gpu.'):
        op_rule("target", "coreai.relu", targets="gpu")(lambda op, c: None)


def test_weights_stay_shared_and_the_model_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32), nn.LayerNorm(32)).eval()
    model[1].weight = model[0].weight
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(1, 5, 32)
    program = converter(model, x).to_coreai(target="neural_engine")
    used = {attribute for attribute in str(program).split() if attribute.startswith("dense_resource<")}
    assert len(used) == 1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_conversions_are_equal() -> None:
    model, x = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32)).eval(), torch.randn(1, 5, 32)
    first, second = (str(converter(model, x).to_coreai(target="neural_engine")) for _ in range(2))
    assert first == second


def test_numbers_that_float16_cannot_hold_stay(native: Native) -> None:
    class Large(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + torch.tensor([1e5, 2.0])) * 1e-5

    model, x = Large(), torch.randn(3, 2)
    program = converter(model, x).to_coreai(target="neural_engine")
    assert "f16" not in str(program)
    program.verify_against(model, (x,), backends=["evaluator"]).check()


@pytest.mark.parametrize("rows", [2, 7])
def test_dynamic_sizes_stay_right(rows: int) -> None:
    """Of a target with the same rules that takes them."""
    target = replace(NEURAL_ENGINE, wants=replace(NEURAL_ENGINE.wants, static_shapes=False))
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16)).eval()
    staged = converter(model, torch.randn(3, 8), dynamic_shapes={"input": {0: torch.export.Dim("rows", max=64)}})
    program = staged.to_coreai(target=target)
    program.verify_against(model, (torch.randn(rows, 8),), backends=["evaluator"]).check()


class ResizesAndAdds(nn.Module):
    """The scales of the resize, which stay in float32, are equal to what is added."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        resized = nn.functional.interpolate(x, scale_factor=(2.0, 2.0), mode="bilinear")
        return resized + torch.tensor([1.0, 1.0, 2.0, 2.0])


def test_a_constant_that_stays_wide_for_one_reader_is_narrow_for_others() -> None:
    model, x = ResizesAndAdds(), torch.rand(1, 3, 2, 2)
    program = TorchConverter().add_exported_program(torch.export.export(model, (x,))).to_coreai(
        target=NEURAL_ENGINE.without("carry transposes", "store prepared weights once")
    )  # fmt: skip
    assert "xf16>" in str(program)
    assert program.verify_against(model, (x,)).passed
