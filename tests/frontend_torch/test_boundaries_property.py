"""Random models of common layers, any of their modules externalized, state, branches, open sizes: the same numbers."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from patcomp import AIProgram, ExternalizeSpec, TorchConverter
from patcomp.composite_ops import RMSNorm
from patcomp.emit.native import Native
from patcomp.frontend_torch.externalization.externalize import ModuleChoice
from tests.frontend_torch.externalizing import exporter
from tests.helpers.thorough import drawn

FEATURES = 4


class Convolution(nn.Module):
    """A convolution along the length."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(FEATURES, FEATURES, 3, padding=1, groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.transpose(1, 2)).transpose(1, 2)


class Attention(nn.Module):
    """Causal attention of two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(FEATURES, 3 * FEATURES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.project(x).unflatten(-1, (3, 2, FEATURES // 2)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        return mixed.transpose(1, 2).flatten(2)


class Average(nn.Module):
    """Subtracts a running mean, which is state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(FEATURES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.5).add_(0.5 * x.mean((0, 1)))
        return x - self.mean


class Around(nn.Module):
    """A module around two others; what the same instance does comes twice where they are one."""

    def __init__(self, kind: str, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.kind, self.first, self.second = kind, first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "residual":
            return x + self.second(torch.tanh(self.first(x)))
        if self.kind == "branch":
            x = self.second(x).contiguous()  # PyTorch wants equal strides of both branches
            return torch.cond(x.amax() > 1, lambda x: self.first(x).contiguous() * 0.5, lambda x: x - 1, (x,))
        return self.second(self.first(x))


LAYERS = {
    "linear": lambda: nn.Linear(FEATURES, FEATURES),
    "layer norm": lambda: nn.LayerNorm(FEATURES),
    "rms norm": lambda: RMSNorm(FEATURES),
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "convolution": Convolution,
    "attention": Attention,
    "average": Average,
}


def has_state(module: nn.Module) -> bool:
    return any(isinstance(part, Average) for part in module.modules())


@st.composite
def models(draw: st.DrawFn) -> tuple[nn.Module, list[ModuleChoice], bool]:
    """A model, which of its modules are to be externalized as what, and whether sizes are open."""
    made: list[nn.Module] = []

    def module(depth: int) -> nn.Module:
        reusable = [part for part in made if not has_state(part)]  # PyTorch cannot export one state under two names
        if reusable and draw(st.integers(0, 5)) == 0:
            return draw(st.sampled_from(reusable))  # the same instance again
        if depth == 0 or (depth < 3 and draw(st.booleans())):
            first, second = module(depth + 1), module(depth + 1)
            kinds = ["residual", "sequence", *(["branch"] if not has_state(first) else [])]
            result: nn.Module = Around(draw(st.sampled_from(kinds)), first, second)
        else:
            result = LAYERS[draw(st.sampled_from(sorted(LAYERS)))]()
        made.append(result)
        return result

    model, is_dynamic = module(0), draw(st.booleans())
    targets: list[ModuleChoice] = []
    for path, _ in model.named_modules():
        kind = draw(st.sampled_from(["none", "none", "plain", "composite"])) if path else "none"
        if kind != "none":
            targets.append(path if kind == "plain" else ExternalizeSpec(path, "part"))
    return model, targets, is_dynamic


def converted(model: nn.Module, targets: list[ModuleChoice], is_dynamic: bool) -> AIProgram:
    options = {"dynamic_shapes": ({0: Dim.AUTO, 1: Dim.AUTO},)} if is_dynamic else {}
    example = torch.randn(2, 5, FEATURES)
    return TorchConverter().add_pytorch_module(model, exporter(example, **options), targets).to_coreai()


def run_natively(program: AIProgram, native: Native, x: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
    (given,), (result,) = program.input_names(), program.output_names()
    return torch.from_numpy(native.run(program.module, {given: x}, state)[result])


@drawn(4)
@given(models(), st.integers(0, 4))
def test_outlined_and_inlined_programs_compute_what_the_model_does(
    native: Native, drawn: tuple[nn.Module, list[ModuleChoice], bool], sample: int
) -> None:
    model, targets, is_dynamic = drawn
    model.eval()
    programs = [converted(model, chosen, is_dynamic) for chosen in (targets, [])]
    states = [program.new_state() for program in programs]
    native_state = {name: value.numpy() for name, value in programs[0].new_state().items()}
    open_dims = [not isinstance(dim, int) for dim in programs[0].signature().inputs[0].shape]
    assert open_dims[:2] == [is_dynamic, is_dynamic]
    for sizes in ((2, 5), (3, 2), (4, 7)):
        x = torch.randn(*(sizes if is_dynamic else (2, 5)), FEATURES)
        found = [program.run(x, state=state) for program, state in zip(programs, states, strict=True)]
        if sample == 0:
            found.append(run_natively(programs[0], native, x, native_state))
        with torch.no_grad():
            expected = model(x)
        for result in found:
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    for name, path in programs[0].signature().call.buffers.items():
        for state in states:
            torch.testing.assert_close(state[name], model.get_buffer(path), rtol=1e-4, atol=1e-5)


def test_a_plain_module_of_open_size_with_a_branch_is_for_inlining(native: Native) -> None:
    model = Around("sequence", nn.Linear(FEATURES, FEATURES), Around("branch", *(nn.Linear(FEATURES, FEATURES),) * 2))
    program = converted(model.eval(), ["second"], is_dynamic=True)
    assert "coreai.graph private @second_" in str(program)
    for size in ((2, 5), (3, 4)):
        x = torch.randn(*size, FEATURES)
        torch.testing.assert_close(run_natively(program, native, x, {}), model(x), rtol=1e-4, atol=1e-5)
