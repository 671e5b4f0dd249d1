"""Norms, rotations and transposes of heads that lie side by side: what is done together, and what stays apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from patcomp import AIProgram, TorchConverter
from tests.catalog.recovering import Calling

LENGTH = torch.export.Dim("length", min=2, max=32)


def norm(x: Tensor, last: float = 2.0, eps: float = 1e-6) -> Tensor:
    return functional.rms_norm(x, [x.shape[-1]], torch.linspace(1, last, x.shape[-1]), eps)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    part, rest = x[..., : 2 * cos.shape[-1]], x[..., 2 * cos.shape[-1] :]
    half = cos.shape[-1]
    swapped = torch.cat([-part[..., half:], part[..., :half]], -1)
    part = part * torch.cat([cos, cos], -1) + swapped * torch.cat([sin, sin], -1)
    return torch.cat([part, rest], -1) if rest.shape[-1] else part


def converted(function: Callable[..., Any], inputs: tuple[Tensor, ...], sizes: Any = None) -> AIProgram:
    exported = torch.export.export(Calling(function), inputs, dynamic_shapes=sizes and (sizes,))
    return TorchConverter().add_exported_program(exported).to_coreai(target="gpu")


def count(program: AIProgram, what: str) -> int:
    """The ops of a name, or the calls of a composite, outside composites."""
    return len(re.findall(rf"\.{what} |@{what}_", str(program).split("coreai.graph @main")[1]))


def check(function: Callable[..., Any], inputs: tuple[Tensor, ...], counts: dict[str, int], sizes: Any = None) -> None:
    program = converted(function, inputs, sizes)
    assert {name: count(program, name) for name in counts} == counts
    program.verify_against(Calling(function), inputs, backends=["evaluator"]).check()


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        pytest.param(lambda x: (norm(x[:, :4]), norm(x[:, 4:])), 1, id="together"),
        pytest.param(lambda x: (norm(x[:, :2]), norm(x[:, 2:3], 3.0), norm(x[:, 3:])), 1, id="three"),
        pytest.param(lambda x: (norm(x[:, :4]), x[:, :4] + 1, norm(x[:, 4:])), 1, id="a slice with another user"),
        pytest.param(lambda x: (norm(x[:, :4]), norm(x[:, 4:], eps=1e-5)), 2, id="another eps"),
        pytest.param(lambda x: (norm(x[:, :3]), norm(x[:, 4:])), 2, id="a head between them"),
        pytest.param(lambda x: (norm(x[:, :4]), norm(x[:, 3:])), 2, id="a head twice"),
        pytest.param(lambda x: (norm(x[:, :3]), norm(x[:, 3:, :, :4])), 2, id="another width"),
        pytest.param(lambda x: (norm(x[:, 0:6:2]), norm(x[:, 1:6:2])), 2, id="every second head"),
        pytest.param(lambda x: (norm(x[:, :, :2]), norm(x[:, :, 2:])), 2, id="along another axis"),
    ],
)
def test_norms(function: Callable[..., Any], calls: int) -> None:
    check(function, (torch.randn(2, 6, 5, 8),), {"rms_norm": calls})


@pytest.mark.parametrize(
    ("function", "heads", "calls"),
    [
        pytest.param(lambda x, c, s: (turned(x[:, :4], c, s), turned(x[:, 4:], c, s)), 1, 1, id="together"),
        pytest.param(lambda x, c, s: (turned(x[:, :4], c, s), turned(x[:, 4:], s, c)), 1, 2, id="other tables"),
        pytest.param(lambda x, c, s: (turned(x[:, :3], c, s), turned(x[:, 3:], c, s)), 3, 2, id="a table a head"),
    ],
)
def test_rotations(function: Callable[..., Any], heads: int, calls: int) -> None:
    tables = torch.randn(1, heads, 5, 4), torch.randn(1, heads, 5, 4)
    check(function, (torch.randn(2, 6, 5, 8), *tables), {"rope": calls})


@pytest.mark.parametrize(("queries", "calls"), [(3, 1), (4, 2)])
def test_parts_of_heads_are_turned_together_with_as_many_keys(queries: int, calls: int) -> None:
    def function(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return turned(x[:, :queries], cos, sin), turned(x[:, queries:], cos, sin)

    check(function, (torch.randn(2, 6, 5, 8), torch.randn(5, 2), torch.randn(5, 2)), {"rope": calls})


@pytest.mark.parametrize(
    ("function", "transposes"),
    [
        pytest.param(lambda x: (x[:, :, :4].transpose(1, 2), x[:, :, 4:].transpose(1, 2)), 1, id="together"),
        pytest.param(lambda x: (norm(x[:, :, :4]).transpose(1, 2), x[:, :, 4:].transpose(1, 2)), 1, id="one is normed"),
        pytest.param(lambda x: (x[:, :, :4].transpose(1, 2), x[:, :, 4:].transpose(2, 3)), 2, id="other orders"),
        pytest.param(lambda x: (x[:, :, :4].transpose(1, 2), x[:, :, 4:].transpose(1, 2), x + 1), 2, id="another user"),
        pytest.param(lambda x: (norm(x[:, :, :4]).transpose(2, 3), x[:, :, 4:].transpose(2, 3)), 2, id="normed axis"),
    ],
)
def test_transposes(function: Callable[..., Any], transposes: int) -> None:
    check(function, (torch.randn(2, 5, 6, 8),), {"transpose": transposes})


class Attention(nn.Module):
    """Self-attention with norms of queries and keys, 4 and 2 heads of 8 elements."""

    def __init__(self, *, norm_first: bool):
        super().__init__()
        self.norm_first = norm_first
        self.products = nn.ModuleList(nn.Linear(16, 8 * heads, bias=False) for heads in (4, 2, 2))
        self.norms = nn.ModuleList(nn.RMSNorm(8, eps=1e-6) for _ in range(2))
        for norm in self.norms:
            nn.init.uniform_(norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        parts = [product(x).view(*x.shape[:2], -1, 8) for product in self.products]
        if self.norm_first:
            query, key = (norm(part).transpose(1, 2) for norm, part in zip(self.norms, parts, strict=False))
        else:
            query, key = (norm(part.transpose(1, 2)) for norm, part in zip(self.norms, parts, strict=False))
        positions = torch.arange(x.shape[1])
        angles = positions[:, None] * torch.linspace(1, 0.1, 4)
        query, key = (turned(part, angles.cos(), angles.sin()) for part in (query, key))
        y = functional.scaled_dot_product_attention(
            query, key, parts[2].transpose(1, 2), is_causal=True, enable_gqa=True
        )
        return y.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("sizes", [None, {1: LENGTH}])
def test_attention(norm_first: bool, sizes: Any) -> None:
    torch.manual_seed(0)
    model = Attention(norm_first=norm_first).eval()
    x = torch.randn(1, 5, 16)
    exported = torch.export.export(model, (x,), dynamic_shapes=sizes and (sizes,))
    program = TorchConverter().add_exported_program(exported).to_coreai(target="gpu")
    counts = {"transpose": 2, "rms_norm": 1, "rope": 1, "broadcasting_batch_matmul": 1}
    assert {name: count(program, name) for name in counts} == counts
    for length in (5, 9) if sizes else (5,):
        program.verify_against(model, (torch.randn(1, length, 16),), backends=["evaluator"]).check()
