"""Architectures that keep something else between calls than a bundle holds, and those without SDPA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from patcomp.errors import ConversionWarning
from patcomp.language import LanguageModelError, convert_language_model
from patcomp.language.decoder import Decoder
from patcomp.language.loading import implementations
from tests.language.checkpoints import PROMPT, checkpoint, generated

SMALL: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
HELD = "and a bundle holds keys and values of one shape for each layer"
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "lfm2": (
        {"layer_types": ["full_attention", "conv"]},
        f"layer 1 of the architecture 'lfm2' keeps states of convolutions or of linear attention, {HELD}",
    ),
    "mamba2": (
        {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1},
        f"layer 0 of the architecture 'mamba2' keeps states of convolutions or of linear attention, {HELD}",
    ),
    "gemma4_text": (
        {"num_hidden_layers": 4, "head_dim": 8, "global_head_dim": 16, "num_kv_shared_layers": 2,
         "layer_types": ["sliding_attention", "full_attention"] * 2, "hidden_size_per_layer_input": 8,
         "vocab_size_per_layer_input": 96},
        f"layer 2 of the architecture 'gemma4_text' keeps no keys and values of its own, {HELD}",
    ),
    "youtu": (
        {"num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
         "qk_nope_head_dim": 16},
        f"layer 0 keeps keys or values of 1 x 16 (heads x width), its configuration implies 4 x 8, {HELD}",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:the architecture:patcomp.errors.ConversionWarning")
@pytest.mark.parametrize("kind", OTHERS)
def test_what_a_bundle_does_not_hold(kind: str, tmp_path: Path) -> None:
    settings, message = OTHERS[kind]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SMALL, **settings})).eval()
    with pytest.raises(LanguageModelError) as raised:
        convert_language_model(model, out=tmp_path / "bundle", dtype="float32")
    assert str(raised.value) == message
    assert list(tmp_path.iterdir()) == []


def arguments(heads: int = 2, width: int = 8) -> tuple[torch.Tensor, ...]:
    caches = [torch.zeros(2, 1, heads, 16, width) for _ in range(2)]
    return torch.tensor([[3, 4]]), torch.arange(2)[None], *caches


def test_layers_that_write_nothing() -> None:
    """A model that ignores its cache is right in the first call and wrong in each later one."""
    model = checkpoint("llama")
    decoder = Decoder(model)
    decoder(*arguments())
    model.get_submodule("model.layers.1").forward = lambda hidden, **options: hidden  # type: ignore[method-assign]
    with pytest.raises(LanguageModelError, match="LlamaForCausalLM puts no keys and values of layer 1 into its cache"):
        decoder(*arguments())


def test_one_head_is_not_repeated() -> None:
    """A write of one head into a cache of several would be a broadcast."""
    for heads, width in ((4, 8), (2, 16), (1, 8)):
        with pytest.raises(
            LanguageModelError, match=rf"keys or values of 2 x 8 .* implies {heads} x {width}, and a bun"
        ):
            Decoder(checkpoint("llama"))(*arguments(heads, width))


def test_an_export_that_fails_is_one_message(tmp_path: Path) -> None:
    model = checkpoint("llama")

    def forward(hidden: torch.Tensor, **options: object) -> torch.Tensor:
        return hidden if float(hidden.sum()) > 0 else -hidden

    model.get_submodule("model.layers.1.mlp").forward = forward  # type: ignore[method-assign]
    with pytest.raises(LanguageModelError, match=r"^LlamaForCausalLM cannot be exported: the model dec") as raised:
        convert_language_model(model, out=tmp_path / "bundle", dtype="float32")
    assert "in module model.model.layers.1.mlp, at test_other_caches.py:" in str(raised.value)
    assert "docs/control-flow.md" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


# ---- attention --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["vaultgemma", pytest.param("granite_swa", marks=pytest.mark.slow)])
def test_an_architecture_without_sdpa(kind: str, tmp_path: Path) -> None:
    settings = {**SMALL, "head_dim": 8, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**settings, "eos_token_id": None})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    with pytest.warns(ConversionWarning, match=f"the architecture '{kind}' is not tested"):
        bundle = convert_language_model(model, out=tmp_path / "bundle", dtype="float32", check=False)
    assert bundle.generate(PROMPT, 4) == generated(model, PROMPT, 4)


def test_attention_that_the_caller_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []

    def export(model: Any, *arguments: object) -> None:
        chosen.append(model.config._attn_implementation)
        raise LanguageModelError("as far as this")

    monkeypatch.setattr("patcomp.language.checkpoint_to_bundle._dynamic", export)
    for kind, own in (("llama", "sdpa"), ("llama", "eager"), ("gemma2", "eager")):
        model = checkpoint(kind)
        model.set_attn_implementation(own)  # type: ignore[operator]
        with pytest.raises(LanguageModelError, match="as far as this"):
            convert_language_model(model, out=tmp_path / "bundle", dtype="float32")
        assert model.config._attn_implementation == own
    assert chosen == ["sdpa", "eager", "eager"]


@pytest.mark.parametrize("experts", ["absent", None, "grouped_mm"])
def test_implementations_come_back(experts: str | None) -> None:
    """Exactly those that were there: transformers would replace None by a default."""
    model: Any = checkpoint("mixtral")
    name = "_experts_implementation_internal"
    vars(model.config)[name] = experts
    if experts == "absent":  # as in versions of transformers without experts
        del vars(model.config)[name]
    kept = dict(vars(model.config))
    with implementations(model, "eager", None if experts == "absent" else "batched_mm"):
        assert model.config._attn_implementation == "eager"
        assert vars(model.config).get(name) == (None if experts == "absent" else "batched_mm")
    assert vars(model.config) == kept
