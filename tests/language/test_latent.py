"""Latent attention that attends to the latents in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.parametrize import register_parametrization
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from patcomp.language import LanguageModelError, convert_language_model
from patcomp.language.contract import LOGITS, POSITIONS, TOKENS
from patcomp.language.decoder import Decoder
from patcomp.language.dynamic_form import Function, dynamic_program, exported
from patcomp.language.latent import absorbed
from patcomp.language.loading import implementations
from tests.language.checkpoints import PROMPT, checkpoint

KINDS = ("deepseek_v3", "youtu", "minicpm3", "glm4_moe_lite", "kimi_linear", "deepseek_v32", "glm_moe_dsa")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "kimi_linear" else kind for kind in KINDS]
)
def test_the_model_is_the_same_function(kind: str) -> None:
    model: Any = checkpoint(kind)
    decoder = Decoder(model, absorbs=True)
    tokens, states, made, end = torch.tensor([PROMPT]), decoder.states.zeros(64), [], 0
    with implementations(model), torch.no_grad():
        wanted = model(tokens, use_cache=False).logits
        for length in (5, 1, 6):
            end += length
            made.append(decoder(tokens[:, end - length : end], torch.arange(end)[None], *states))
    torch.testing.assert_close(torch.cat(made, 1), wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_programs_make_no_keys_of_heads(kind: str) -> None:
    model: Any = checkpoint(kind)
    tokens = torch.tensor([PROMPT])
    with implementations(model), torch.no_grad():
        function = Function("main", Decoder(model, absorbs=True))
        program = dynamic_program([(function, exported(function, 64))])
        states = dict(zip(function.state_names, function.decoder.states.zeros(64), strict=True))
        made, end = [], 0
        for length in (7, 1, 4):
            end += length
            inputs = {TOKENS: tokens[:, end - length : end], POSITIONS: torch.arange(end)[None]}
            made.append(program.run(inputs, state=states)[LOGITS])
        wanted = model(tokens, use_cache=False).logits
    torch.testing.assert_close(torch.cat(made, 1), wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))
    # the one key that the 4 heads share has the latent of 16 and the rotary part of 8 numbers, and the value the latent
    assert "tensor<1x1x?x24xf32>" in str(program)
    assert "tensor<1x4x?x32xf32>" not in str(program)


def test_only_this_model_is_exchanged() -> None:
    """In calls that end in another order, and for a model that is called beside it."""
    model, other = checkpoint("deepseek_v3"), checkpoint("deepseek_v3")
    own = ALL_ATTENTION_FUNCTIONS["sdpa"]
    tokens = torch.tensor([PROMPT])
    with implementations(model), implementations(other), torch.no_grad():
        wanted = other(tokens).logits
        first, second = absorbed(model), absorbed(checkpoint("youtu"))
        first.__enter__()
        second.__enter__()
        assert torch.equal(other(tokens).logits, wanted)
        assert not torch.equal(model(tokens).logits, wanted)  # rounded otherwise
        first.__exit__(None, None, None)
        assert torch.equal(model(tokens).logits, wanted)
        second.__exit__(None, None, None)
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is own


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
    with implementations(model), pytest.raises(LanguageModelError, match="splits the weights kv_b_proj, which this ch"):
        Decoder(model, absorbs=True)
