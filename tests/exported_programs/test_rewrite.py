"""Rules on exported programs: the numbers, gradients, states and interface of the program stay."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from patcomp import RuleError, UnsupportedError, rewrite, why_not_rewritten
from patcomp.authoring import AtenSource, AtenTarget
from patcomp.ir import aten, coreai
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.value import Value
from patcomp.patterns import Capture, Rewrite, build, rule
from tests.helpers.command import Command
from tests.networks import zoo


@rule(stage="normalize", into=aten_namespace, example={"x": "2x3xf32"})
def silu(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "x * sigmoid(x) -> silu(x)"
    return Rewrite(x * a.sigmoid(x), to=c.silu(x))


class Net(nn.Module):
    """Two states, a size that is computed, a copy of a state before it is written, and a gradient that ends."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(8, 16), nn.Linear(8, 16)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> dict[str, Any]:
        before = self.count.clone().view(1, 2)  # type: ignore[operator]
        self.count += 1  # type: ignore[operator]
        cache.mul_(2)
        gate = self.gate(x)
        y = (torch.sigmoid(gate) * gate * self.up(x)).view(x.shape[0] * 2, 8)
        turned = y.t().contiguous().view(-1)
        return {
            "y": y * 0.5 + cache.sum(), "turned": turned, "before": before, "detached": y.detach() * 3,
            "size": x.shape[0],
        }  # fmt: skip


def export(model: nn.Module, *args: torch.Tensor, **options: Any) -> ExportedProgram:
    return torch.export.export(model, args, **options)


@pytest.fixture(scope="module")
def exported() -> ExportedProgram:
    torch.manual_seed(0)
    batch = {0: Dim("batch", min=2, max=64)}
    return export(Net(), torch.randn(4, 8), torch.ones(3), dynamic_shapes={"x": batch, "cache": None})


@pytest.fixture(scope="module")
def rewritten(exported: ExportedProgram) -> ExportedProgram:
    return rewrite(exported, silu)


def targets(program: ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def test_the_rule_applied_and_the_given_program_is_unchanged(
    exported: ExportedProgram, rewritten: ExportedProgram
) -> None:
    assert "aten.silu.default" in targets(rewritten)
    assert "aten.sigmoid.default" not in targets(rewritten)
    assert "aten.sigmoid.default" in targets(exported)
    assert exported.state_dict["gate.weight"] is rewritten.state_dict["gate.weight"]


@pytest.mark.parametrize("batch", [4, 7])
def test_numbers_states_and_gradients(exported: ExportedProgram, rewritten: ExportedProgram, batch: int) -> None:
    x, modules = torch.randn(batch, 8), [copy.deepcopy(each).module() for each in (exported, rewritten)]
    for _ in range(2):
        caches = [torch.ones(3), torch.ones(3)]
        first, second = (module(x, cache) for module, cache in zip(modules, caches, strict=True))
        assert first.pop("size") == second.pop("size") == batch
        assert all(torch.allclose(first[name], second[name], atol=1e-5) for name in first)
        assert torch.equal(*caches)
    (first["y"].sum() + first["detached"].sum()).backward()
    (second["y"].sum() + second["detached"].sum()).backward()
    for (name, parameter), (_, other) in zip(modules[0].named_parameters(), modules[1].named_parameters(), strict=True):
        assert parameter.grad is not None, name
        assert torch.allclose(parameter.grad, other.grad, atol=1e-4), name


def test_interface_and_metadata(exported: ExportedProgram, rewritten: ExportedProgram) -> None:
    assert rewritten.call_spec == exported.call_spec
    assert rewritten.range_constraints == exported.range_constraints
    assert {*rewritten.graph_signature.buffers_to_mutate.values()} == {"count"}
    assert {*rewritten.graph_signature.user_inputs_to_mutate.values()} == {"cache"}
    (made,) = [node for node in rewritten.graph.nodes if str(node.target) == "aten.silu.default"]
    assert "test_rewrite.py" in made.meta["stack_trace"]
    (linear, _) = [node for node in rewritten.graph.nodes if str(node.target) == "aten.linear.default"]
    assert [path for path, _ in linear.meta["nn_module_stack"].values()][-1].endswith("gate")
    assert linear.name == "linear"


def test_it_exports_compiles_and_is_saved(rewritten: ExportedProgram, tmp_path: Any) -> None:
    x, cache = torch.randn(5, 8), torch.ones(3)
    batch = {0: Dim("batch", min=2, max=64)}
    again = export(copy.deepcopy(rewritten).module(), x, cache, dynamic_shapes={"x": batch, "cache": None})
    assert again.range_constraints == rewritten.range_constraints
    expected = copy.deepcopy(rewritten).module()(x, cache.clone())["y"]
    compiled = torch.compile(copy.deepcopy(rewritten).module(), backend="aot_eager")
    assert torch.allclose(compiled(x, cache.clone())["y"], expected, atol=1e-5)
    torch.export.save(rewritten, tmp_path / "net.pt2")
    loaded = torch.export.load(tmp_path / "net.pt2").module()
    assert torch.allclose(loaded(x, cache.clone())["y"], expected, atol=1e-5)


def _plus_four_numbers(x: Value) -> Value:
    numbers = coreai.constant([1.0, 2.0, 3.0, 4.0], x.element_type)
    return aten.build("aten.add.Tensor", x.type, self=x, other=numbers)  # type: ignore[no-any-return]


def test_a_constant_of_a_rule_becomes_a_constant_of_the_program() -> None:
    @rule(stage="normalize", into=aten_namespace, example={"x": "2x4xf32"})
    def counted(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
        "cos(x) -> x + [1, 2, 3, 4]"
        return Rewrite(a.cos(x), to=build(_plus_four_numbers, x))

    class Cosine(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cos(x)

    x = torch.randn(2, 4)
    made = rewrite(export(Cosine(), x), counted)
    assert [tuple(tensor.shape) for tensor in made.constants.values()] == [(4,)]
    assert torch.allclose(made.module()(x), x + torch.arange(1.0, 5.0))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "espcn" else pytest.mark.slow) for name in zoo.MODELS]
)
def test_networks(name: str) -> None:
    example = zoo.build(name)
    program = rewrite(export(example.model, *example.args, strict=False), silu)
    expected = example.model(*example.args)
    assert torch.allclose(program.module()(*example.args), expected, atol=1e-5 * float(expected.abs().max()))


def test_as_many_elements_as_the_data_say() -> None:
    class Chosen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            chosen = x[x > 0]
            return chosen * torch.sigmoid(chosen) + torch.zeros(chosen.shape[0])

    made = rewrite(export(Chosen(), torch.tensor([1.0, -1.0, 2.0])), silu)
    for x in (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, 2.0, -3.0])):
        assert torch.allclose(made.module()(x), Chosen()(x))


def test_why_not(exported: ExportedProgram) -> None:
    assert "matches at" in why_not_rewritten(exported, silu)


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


class Item(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.sum().int().item()
        torch._check(length >= 1)
        torch._check(length <= 4)
        return x.narrow(0, 0, length)  # type: ignore[arg-type]


class Checked(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all(), "positive")
        return x + 1


class WithoutGradients(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = self.linear(x)
        return self.linear(x) * scale


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Branch(), "coreai.if is no op of PyTorch's"),
        (Item(), "takes a size that is computed from data"),
        (Checked(), "a check of values would be lost"),
        (WithoutGradients(), "gradients of parameters would pass"),
    ],
    ids=lambda case: type(case).__name__,
)
def test_refusals(model: nn.Module, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        rewrite(export(model, torch.ones(4)), silu)
    assert all(problem.node for problem in caught.value.problems)


def test_a_rule_for_core_ai_is_refused() -> None:
    @rule(example={"x": "2x3xf32"})
    def recovered(a: AtenSource, c: Any, x: Capture) -> Rewrite:
        "relu(x) -> x"
        return Rewrite(a.relu(x), to=x)

    with pytest.raises(RuleError, match='declare it with stage="normalize"'):
        rewrite(export(nn.ReLU(), torch.randn(3)), recovered)


def test_an_op_of_another_library_stays_one() -> None:
    @torch.library.custom_op("patcomp_test::silu", mutates_args=())
    def own(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(x)

    own.register_fake(torch.empty_like)
    aten.define("patcomp_test::silu(Tensor x) -> Tensor")

    @rule(stage="normalize", into=aten_namespace, example={"x": "2x3xf32"})
    def delegated(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
        "silu(x) -> the library's"
        return Rewrite(a.silu(x), to=c.op("patcomp_test.silu", x))

    x = torch.randn(2, 3)
    made = rewrite(export(nn.SiLU(), x), delegated)
    assert targets(made) == ["patcomp_test.silu.default"]
    assert torch.allclose(made.module()(x), nn.functional.silu(x))


RULE = """
from patcomp.authoring import AtenSource, AtenTarget
from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns import Capture, Rewrite, rule
from patcomp.patterns.conditions import is_floating


@rule(stage="normalize", into=aten_namespace, example={"x": "2x3xf32"})
def silu(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "x * sigmoid(x) -> silu(x)"
    return Rewrite(x * a.sigmoid(x), to=c.silu(x)WHERE)
"""


def test_rules_for_programs_of_pytorch_are_tested_without_core_ai(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RULE.replace("WHERE", ", where=is_floating(x).says('silu takes floats')"))
    done = patcomp("rule", "test", "right.py", "--for-rewrite")
    assert (done.code, "proof: silu: equal over the reals" in done.out) == (0, True), done.out
    (tmp_path / "wrong.py").write_text(RULE.replace("WHERE", ""))
    done = patcomp("rule", "test", "wrong.py", "--for-rewrite")
    assert (done.code, "(tensor<1x1xi1>) -> tensor<1x1xf32>" in done.out) == (3, True), done.out
