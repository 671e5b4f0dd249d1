"""Latent attention that attends to latents, for who asks for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from patcomp_lab.proof.examination import examine
from patcomp_models.checkpoints.quantized.weight import Unpacking, from_integers
from patterns_catalog import default_rules
from patterns_catalog.optional import latent_attention
from tests.helpers.latent_layers import HEADS, KEY, LATENT, ROTARY, VALUE, LatentAttention, inputs

RULE = latent_attention.attention_to_latents
DRAW = torch.Generator().manual_seed(1)


def converted(model: nn.Module, given: tuple[Tensor, ...], native: Native | None = None, **options: Any) -> AIProgram:
    """The program of a model with the rule, which gives eager's numbers."""
    exported = torch.export.export(model.eval(), given, **options)
    program = TorchConverter(catalog=[latent_attention]).add_exported_program(exported).to_coreai()
    with torch.no_grad():
        expected = model(*given)
    named = dict(zip(program.input_names(), given, strict=True))
    results = [next(iter(program.run(named).values()))]
    if native is not None:
        results.append(torch.from_numpy(next(iter(native.run(program.module, named).values()))))
    for result in results:
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    return program


def rewrites(program: AIProgram) -> int:
    """How many layers attend to latents."""
    return sum(report.statistics.fired.get(RULE.name, 0) for report in program.reports)


def test_the_rule() -> None:
    assert RULE.name not in default_rules()
    for check in examine(RULE, default_rules().preceded_by([RULE]), programs=2):
        assert check.failure is None, check.failure
        assert check.runs


@pytest.mark.parametrize(
    ("options", "mask"),
    [
        ({}, None),
        ({"scale": 0.2}, torch.randn(3, 7, generator=DRAW)),
        ({"is_causal": True}, None),
        ({}, torch.randn(2, HEADS, 3, 7, generator=DRAW) > 0),
        ({}, torch.zeros(2, 1, 3, 7, dtype=torch.bool)),
    ],
    ids=["plain", "numbers and a scale", "causal", "booleans of each head", "rows without keys"],
)
def test_options(options: dict[str, Any], mask: Tensor | None, native: Native) -> None:
    torch.manual_seed(0)
    program = converted(LatentAttention(**options), inputs() if mask is None else (*inputs(), mask), native)
    assert rewrites(program) == 1
    assert program.composites == {"scaled_dot_product_attention": 1}
    assert f"tensor<2x{HEADS}x7x{KEY + VALUE}xf32>" not in str(program)


def test_open_sizes(native: Native) -> None:
    torch.manual_seed(0)
    queries, length = Dim("queries"), Dim("length")
    shapes = {2: queries}, {2: length}, {2: length}
    program = converted(LatentAttention(), inputs(), native, dynamic_shapes=shapes)
    assert rewrites(program) == 1


class KeysAreRead(LatentAttention):
    """Its keys are read by more than attention."""

    def forward(self, query: Tensor, latents: Tensor, rotated: Tensor, mask: Tensor | None = None) -> Tensor:
        key, value = self.expand_kv(latents, rotated)
        return nn.functional.scaled_dot_product_attention(query, key, value) + key.sum()


class OfOneToken(LatentAttention):
    """The rotated part of one token is that of all."""

    def forward(self, query: Tensor, latents: Tensor, rotated: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(query, latents, rotated[:, :, :1])


class WithBias(LatentAttention):
    """Keys and values have a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.kv_b_proj = nn.Linear(LATENT, HEADS * (KEY + VALUE))


class ValuesFirst(LatentAttention):
    """The parts of keys and values are the other way round."""

    def expand_kv(self, latents: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
        batch, _, length, _ = latents.shape
        made = self.kv_b_proj(latents).view(batch, length, HEADS, KEY + VALUE).transpose(1, 2)
        values, keys = made.split([VALUE, KEY], dim=-1)
        return torch.cat([keys, rotated.expand(batch, HEADS, length, ROTARY)], -1), values


class HeadsInside(LatentAttention):
    """The heads are the inner axis of what the weight makes."""

    def expand_kv(self, latents: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
        batch, _, length, _ = latents.shape
        made = self.kv_b_proj(latents).view(batch, length, KEY + VALUE, HEADS).permute(0, 3, 1, 2)
        keys, values = made.split([KEY, VALUE], dim=-1)
        return torch.cat([keys, rotated.expand(batch, HEADS, length, ROTARY)], -1), values


class FewBits(LatentAttention):
    """The weight is stored in few bits."""

    def __init__(self) -> None:
        super().__init__()
        data = torch.randint(-8, 8, (HEADS * (KEY + VALUE), LATENT), generator=DRAW, dtype=torch.int8)
        stored = from_integers(data, 4, torch.full((len(data), 1), 0.1))
        nn.utils.parametrize.register_parametrization(self.kv_b_proj, "weight", _Stored(stored), unsafe=True)


class _Stored(nn.Module):
    def __init__(self, stored: Any) -> None:
        super().__init__()
        self.unpacking = Unpacking(stored, torch.float32, "weight")

    def forward(self, weight: Tensor) -> Tensor:
        return self.unpacking()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [KeysAreRead, OfOneToken, WithBias, ValuesFirst, HeadsInside, FewBits])
def test_what_stays(kind: type[LatentAttention]) -> None:
    torch.manual_seed(0)
    program = converted(kind(), inputs())
    assert rewrites(program) == 0
    assert program.composites == {"scaled_dot_product_attention": 1}


def test_several_layers_share_a_latent() -> None:
    """Each absorbs its own weight, and the model's weights stay."""
    torch.manual_seed(0)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = LatentAttention(), LatentAttention()

        def forward(self, query: Tensor, latents: Tensor, rotated: Tensor) -> Tensor:
            out: Tensor = self.first(query, latents, rotated)
            return self.second(query + out, latents, rotated)  # type: ignore[no-any-return]

    model = Two()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert rewrites(converted(model, inputs())) == 2
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
