"""Weights are stored in the form in which they are read, unless an op reads them as they are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from patcomp import TorchConverter


class Tied(nn.Module):
    """A table that is the head, too, another product, and a transpose of what is no weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(600, 512))
        self.inner = nn.Parameter(torch.randn(520, 512))

    def forward(self, tokens: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inner = nn.functional.linear(self.table[tokens], self.inner)
        return inner, nn.functional.linear(self.table[tokens] * 2.0, self.table), x.t() @ x


def test_the_order_of_a_transpose_is_no_weight() -> None:
    """Another op reads an equal order, which does not keep a large weight from being stored transposed."""
    inputs = torch.tensor([1, 2]), torch.randn(3, 4)
    program = TorchConverter().add_exported_program(torch.export.export(Tied().eval(), inputs)).to_coreai(target="gpu")
    text = str(program)
    assert "tensor<512x520xf32>" in text
    assert "transpose %p_inner" not in text
    assert "transpose %p_table" in text


class ReadTwice(nn.Module):
    """A transposed weight that one product reads as it is, and another one scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(24, 16))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        turned = self.weight.t()
        return x @ turned, x @ (turned * 2.0)


def test_both_forms_of_a_weight_are_stored() -> None:
    inputs, model = (torch.randn(3, 16),), ReadTwice().eval()
    program = TorchConverter().add_exported_program(torch.export.export(model, inputs)).to_coreai(target="cpu")
    assert "transpose" not in str(program)
    assert str(program).count("batch_matmul") == 2
    assert "broadcasting_mul" not in str(program)
    assert program.verify_against(model, inputs, backends=["evaluator"]).passed
