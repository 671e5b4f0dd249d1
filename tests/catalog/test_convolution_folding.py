"""Batch normalisation folded into convolutions, for who asks for it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import patcomp
from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from patterns_catalog import default_rules
from patterns_catalog.optional import convolution
from tests.helpers.thorough import examples
from tests.networks import zoo


def folded(model: nn.Module, x: torch.Tensor, native: Native | None = None) -> AIProgram:
    """The program of a model with folding, which gives eager's numbers."""
    exported = torch.export.export(model, (x,)).run_decompositions(patcomp.get_decomp_table())
    program = TorchConverter(catalog=[convolution]).add_exported_program(exported).to_coreai()
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(x))
    inputs = {program.input_names()[0]: x}
    results = [program.run(inputs)]
    if native is not None:
        given = native.run(program.module, inputs)
        results.append({name: torch.from_numpy(value) for name, value in given.items()})
    for result in results:
        for name, reference in zip(program.output_names(), expected, strict=True):
            torch.testing.assert_close(result[name], reference, rtol=1e-4, atol=1e-4)
    return program


def batch_norms(program: AIProgram) -> int:
    return program.composites.get("batch_norm", 0)


class Pair(nn.Module):
    """A convolution and a batch normalisation with statistics of their own."""

    def __init__(self, layer: nn.Module, norm: nn.Module):
        super().__init__()
        self.layer, self.norm = layer, norm
        norm.running_mean.normal_(0, 0.3)  # type: ignore[operator, union-attr]
        norm.running_var.uniform_(0.5, 1.5)  # type: ignore[operator, union-attr]
        for parameter in norm.parameters():
            parameter.data.uniform_(0.5, 1.5)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x))


def test_it_is_not_in_the_default_catalog() -> None:
    assert convolution.fold_batch_norm.name not in default_rules()


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_rank(rank: int, native: Native) -> None:
    torch.manual_seed(0)
    layer = getattr(nn, f"Conv{rank}d")(4, 6, 3, padding=1, groups=2)
    norm = getattr(nn, f"BatchNorm{rank}d")(6)
    program = folded(Pair(layer, norm), torch.randn(2, 4, *[5] * rank), native)
    assert batch_norms(program) == 0


def test_weights_outside_of_the_text(native: Native) -> None:
    torch.manual_seed(0)
    assert batch_norms(folded(Pair(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32)), torch.randn(1, 16, 6, 6), native)) == 0


@settings(max_examples=examples(4), deadline=None, derandomize=True)
@given(bias=st.booleans(), affine=st.booleans(), stride=st.integers(1, 2), eps=st.sampled_from([1e-5, 0.5]))
def test_options(bias: bool, affine: bool, stride: int, eps: float) -> None:
    torch.manual_seed(0)
    pair = Pair(nn.Conv2d(2, 3, 2, stride=stride, bias=bias), nn.BatchNorm2d(3, eps=eps, affine=affine))
    assert batch_norms(folded(pair, torch.randn(1, 2, 5, 5))) == 0


def test_resnet() -> None:
    torch.manual_seed(0)
    model = zoo.resnet18().model
    assert batch_norms(folded(model, torch.randn(1, 3, 32, 32))) == 0


def test_weights_of_the_model_stay() -> None:
    pair = Pair(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3))
    before = {name: value.clone() for name, value in pair.state_dict().items()}
    folded(pair, torch.randn(1, 2, 5, 5))
    assert all(torch.equal(value, before[name]) for name, value in pair.state_dict().items())


class UsedTwice(Pair):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        y = self.layer(x)
        return self.norm(y), y


class ReluBetween(Pair):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.relu(self.layer(x)))


class ComputedWeight(Pair):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(nn.functional.conv2d(x, x.mean() * self.layer.weight))  # type: ignore[operator]


@pytest.mark.parametrize("kind", [UsedTwice, ReluBetween, ComputedWeight])
def test_what_is_not_folded(kind: type[Pair]) -> None:
    torch.manual_seed(0)
    assert batch_norms(folded(kind(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)), torch.randn(1, 2, 5, 5))) == 1


def test_transposed_convolutions_are_not_folded() -> None:
    torch.manual_seed(0)
    pair = Pair(nn.ConvTranspose2d(3, 3, 2), nn.BatchNorm2d(3))
    assert batch_norms(folded(pair, torch.randn(1, 3, 5, 5))) == 1
