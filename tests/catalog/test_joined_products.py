"""Queries, keys and values in one product: open sizes, and the products that stay apart."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from patcomp import AIProgram, TorchConverter

LENGTH, BATCH = torch.export.Dim("length", min=2, max=32), torch.export.Dim("batch", min=2, max=8)


class Attention(nn.Module):
    """Self-attention with heads of 8 elements, of which `turned` are turned by their position."""

    def __init__(self, heads: int = 4, keys: int = 2, *, biases: str = "", turned: int = 0, gate: bool = False):
        super().__init__()
        sizes = zip("qkv", (heads, keys, keys), strict=True)
        self.query, self.key, self.value = (nn.Linear(16, 8 * count, bias=name in biases) for name, count in sizes)
        self.gate = nn.Linear(16, 8 * heads) if gate else None
        self.turned, self.grouped = turned, heads != keys

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(x).view(*x.shape[:2], -1, 8).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        if self.turned:
            query, key = self._rotated(query), self._rotated(key)
        y = functional.scaled_dot_product_attention(query, key, value, enable_gqa=self.grouped)
        y = y.transpose(1, 2).flatten(2)
        return y if self.gate is None else y * functional.silu(self.gate(x))

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        half = self.turned // 2
        angles = torch.arange(5.0)[:, None] * torch.linspace(1, 0.1, half)
        cos, sin = (torch.cat([table, table], -1) for table in (angles.cos(), angles.sin()))
        part, rest = x[..., : self.turned], x[..., self.turned :]
        part = part * cos + torch.cat([-part[..., half:], part[..., :half]], -1) * sin
        return torch.cat([part, rest], -1)


def converted(model: nn.Module, x: torch.Tensor, sizes: Any = None) -> AIProgram:
    exported = torch.export.export(model.eval(), (x,), dynamic_shapes=sizes)
    return TorchConverter().add_exported_program(exported).to_coreai(target="gpu")


def products(program: AIProgram) -> int:
    """The products outside composites."""
    return str(program).split("coreai.graph @main")[1].count("broadcasting_batch_matmul")


@pytest.mark.parametrize(
    ("model", "sizes", "count"),
    [
        pytest.param(Attention(), {1: LENGTH}, 1, id="open length"),
        pytest.param(Attention(biases="qkv"), {1: LENGTH}, 1, id="open length, biases"),
        pytest.param(Attention(biases="qkv"), {0: BATCH, 1: LENGTH}, 1, id="open length and batch"),
        pytest.param(Attention(4, 4, biases="qv"), None, 1, id="some biases"),
        pytest.param(Attention(turned=8), None, 1, id="whole heads turned"),
        pytest.param(Attention(4, 4, turned=4), None, 1, id="parts of heads turned, as many keys"),
        pytest.param(Attention(turned=4), None, 3, id="parts of heads turned, fewer keys"),
        pytest.param(Attention(gate=True), None, 2, id="a gate of the same input"),
    ],
)
def test_products(model: Attention, sizes: Any, count: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 16)
    program = converted(model, x, sizes and (sizes,))
    assert products(program) == count
    program.verify_against(model, (x,), backends=["evaluator"]).check()
    if sizes:
        program.verify_against(model, (torch.randn(2, 9, 16),), backends=["evaluator"]).check()


def test_shared_weights_stay_shared() -> None:
    layer = Attention()
    model = nn.Sequential(layer, nn.Linear(32, 16), layer)
    program = converted(model, torch.randn(1, 5, 16))
    assert products(program) == 3
    weights = re.findall(r"dense_resource<([^>]+)>", str(program))
    assert len(set(weights)) == 2
