"""Calls of externalized modules that compute with open sizes, one after another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from patcomp import AIProgram, ExternalizeSpec, TorchConverter, get_decomp_table
from patcomp.composite_ops import SDPA
from patcomp.emit.native import Native
from tests.frontend_torch.externalizing import check

ATTENTION = ExternalizeSpec(SDPA, "scaled_dot_product_attention", ["scale", "is_causal", "window_size"])


def convert(model: nn.Module, spec: ExternalizeSpec, shapes: dict[str, Any], *args: torch.Tensor) -> AIProgram:
    def export(module: nn.Module) -> torch.export.ExportedProgram:
        return torch.export.export(module, args, dynamic_shapes=shapes).run_decompositions(get_decomp_table())

    converter = TorchConverter().add_pytorch_module(model.eval(), export, externalize_modules=[spec])
    return converter.to_coreai()


class Attentions(nn.Module):
    """Layers of attention with projections and residuals between them."""

    def __init__(self, count: int):
        super().__init__()
        self.attentions = nn.ModuleList(SDPA(is_causal=True) for _ in range(count))
        self.projections = nn.ModuleList(nn.Linear(8, 8) for _ in range(count))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        for attention, projection in zip(self.attentions, self.projections, strict=True):
            batch, length, width = q.shape
            heads = projection(q).view(batch, length, 2, 4).transpose(1, 2)
            q = q + attention(heads, k, v).transpose(1, 2).reshape(batch, length, width)
        return q


@pytest.mark.parametrize("open_keys", [True, False])
def test_attentions_of_open_sizes(open_keys: bool, native: Native) -> None:
    model = Attentions(3)
    n, s = Dim("n", min=2, max=9), Dim("s", min=5, max=16)
    keys = {2: s} if open_keys else {}
    q, k, v = torch.randn(1, 5, 8), torch.randn(1, 1, 9, 4), torch.randn(1, 1, 9, 4)
    program = convert(model, ATTENTION, {"q": {1: n}, "k": keys, "v": keys}, q, k, v)
    assert program.composites["scaled_dot_product_attention"] == 3
    assert len(list(program.module.graphs)) == 2
    for length in (5, 2, 9):
        check(program, model, native, torch.randn(1, length, 8), k, v)
    if open_keys:
        check(program, model, native, q, torch.randn(1, 1, 16, 4), torch.randn(1, 1, 16, 4))


class Positions(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return q + (torch.arange(q.shape[0]) + (k.shape[0] - q.shape[0])).float()[:, None]


class Plain(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return q * 2 + k.sum()


class Twice(nn.Module):
    def __init__(self, kind: type[nn.Module]):
        super().__init__()
        self.first, self.second = kind(), kind()

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(q, k), k)


def test_equal_bodies_share_a_graph_wherever_their_constants_stand(native: Native) -> None:
    q, k, model = torch.randn(5, 3), torch.randn(9, 3), Twice(Positions)
    shapes = {"q": {0: Dim("n", min=1, max=64)}, "k": {0: Dim("s", min=1, max=64)}}
    program = convert(model, ExternalizeSpec(Positions, "positions", []), shapes, q, k)
    assert len(list(program.module.graphs)) == 2
    check(program, model, native, q, k)
    check(program, model, native, torch.randn(64, 3), torch.randn(1, 3))


def test_nothing_is_added_where_sizes_are_no_data() -> None:
    q, k = torch.randn(5, 3), torch.randn(9, 3)
    shapes = {"q": {0: Dim("n", min=1, max=64)}, "k": {0: Dim("s", min=1, max=64)}}
    assert "range" not in convert(Twice(Plain), ExternalizeSpec(Plain, "plain", []), shapes, q, k).text()
    fixed = convert(Twice(Positions), ExternalizeSpec(Positions, "positions", []), {"q": {}, "k": {}}, q, k)
    assert "range" not in fixed.text()
