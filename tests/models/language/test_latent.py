"""Latent attention that attends to the latents in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from patcomp import TorchConverter
from patcomp_models.checkpoints.loading import export_implementations
from patcomp_models.language import LanguageModelError, convert_language_model
from patcomp_models.language.contract import LOGITS, POSITIONS, TOKENS
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.dynamic_form import BundleFunction, dynamic_program, exported_function
from patcomp_models.language.entry_points import EntryPoints
from patcomp_models.language.latent import check_absorbed, check_can_absorb
from patterns_catalog.optional import latent_attention
from tests.helpers.latent_layers import LatentAttention, inputs
from tests.models.language.checkpoints import PROMPT, checkpoint, generated

KINDS = ("deepseek_v3", "youtu", "minicpm3", "glm4_moe_lite", "kimi_linear", "deepseek_v32", "glm_moe_dsa")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind != "minicpm3" else kind for kind in KINDS]
)
def test_programs_make_no_keys_of_heads(kind: str) -> None:
    model: Any = checkpoint(kind)
    tokens = torch.tensor([PROMPT])
    with export_implementations(model), torch.no_grad():
        function = BundleFunction("main", Decoder(model))
        program = dynamic_program([(function, exported_function(function, 64))], [latent_attention])
        check_absorbed(program, function.decoder, ["main"])
        states = dict(zip(function.state_names, function.decoder.states.zeros(64), strict=True))
        made, end = [], 0
        for length in (7, 1, 4):
            end += length
            given = {TOKENS: tokens[:, end - length : end], POSITIONS: torch.arange(end)[None]}
            made.append(program.run(given, state=states)[LOGITS])
        wanted = model(tokens, use_cache=False).logits
    torch.testing.assert_close(torch.cat(made, 1), wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))
    # the one key that the 4 heads share has the latent of 16 and the rotary part of 8 numbers, and the value the latent
    assert "tensor<1x1x?x24xf32>" in str(program)
    assert "tensor<1x4x?x32xf32>" not in str(program)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind != "deepseek_v3" else kind for kind in KINDS]
)
def test_bundles_give_the_tokens_of_the_model(kind: str, tmp_path: Path) -> None:
    model: Any = checkpoint(kind)
    points: dict[str, Any] = {"prefill": 4} if kind == "youtu" else {}
    bundle = convert_language_model(
        model, out=tmp_path / "bundle", dtype="float32", max_context=64, absorb_latents=True, **points
    )
    assert bundle.generate(PROMPT, 8) == generated(model, PROMPT, 8)


class OfTwoLayers(nn.Module):
    """The second layer reads its keys more than once."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = LatentAttention(), LatentAttention()

    def forward(self, query: Tensor, latents: Tensor, rotated: Tensor) -> Tensor:
        key, value = self.second.expand_kv(latents, rotated)
        out = nn.functional.scaled_dot_product_attention(self.first(query, latents, rotated), key, value)
        return out + key.mean()


def test_layers_that_the_rule_does_not_know_are_named() -> None:
    model = OfTwoLayers().eval()
    program = (
        TorchConverter(catalog=[latent_attention])
        .add_exported_program(torch.export.export(model, inputs()))
        .to_coreai()
    )
    message = "the rule 'attention to latents' does not know the attention of second in the function 'main'; leave"
    with pytest.raises(LanguageModelError, match=message):
        check_absorbed(program, model, EntryPoints().sizes)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("llama", "LlamaForCausalLM has no latent attention of which transformers makes keys and values"),
        ("deepseek_v3", "absorb_latents= needs a model with attn_implementation='sdpa'"),
    ],
)
def test_what_cannot_be_absorbed(kind: str, message: str, tmp_path: Path) -> None:
    model: Any = checkpoint(kind)
    model.set_attn_implementation("eager")
    with pytest.raises(LanguageModelError, match=message):
        convert_language_model(model, out=tmp_path / "bundle", dtype="float32", absorb_latents=True)
    assert list(tmp_path.iterdir()) == []


def test_weights_in_few_bits_are_not_split() -> None:
    model = checkpoint("deepseek_v3")
    layer: Any = model.get_submodule("model.layers.0.self_attn")
    register_parametrization(layer.kv_b_proj, "weight", torch.nn.Identity())  # as a stored weight is unpacked
    with (
        export_implementations(model),
        pytest.raises(LanguageModelError, match="splits the weights kv_b_proj, which this ch"),
    ):
        check_can_absorb(model)
