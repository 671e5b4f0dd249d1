"""Architectures that keep something else between calls than a bundle holds, and those without SDPA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from patcomp.language import LanguageModelError, convert_language_model
from patcomp.language.decoder import Decoder
from patcomp.language.loading import implementations
from tests.language.checkpoints import checkpoint

SMALL: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "rwkv": (
        {"attention_hidden_size": 32},
        "the architecture 'rwkv' takes no cache of transformers (it has no argument past_key_values or cache_params), "
        "so its states cannot be the states of a bundle",
    ),
    "minimax": (
        {"layer_types": ["linear_attention", "full_attention"], "num_local_experts": 2, "head_dim": 8},
        "the architecture 'minimax' keeps a cache of its own (MiniMaxCache), and a bundle holds what is in a cache of "
        "transformers: keys and values, windows of convolutions and recurrences",
    ),
    "deepseek_v32": (
        {"num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
         "qk_nope_head_dim": 16, "index_topk": 4, "index_head_dim": 16, "index_n_heads": 2, "n_routed_experts": 4,
         "moe_intermediate_size": 16, "mlp_layer_types": ["dense", "sparse"], "n_group": 1, "topk_group": 1,
         "num_experts_per_tok": 2},
        "layer 0 of the architecture 'deepseek_v32' keeps an index beside keys and values, and a bundle holds keys and "
        "values, windows of convolutions and recurrences",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:the architecture:patcomp.errors.ConversionWarning")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_bundle_does_not_hold(kind: str, tmp_path: Path) -> None:
    settings, message = REFUSED[kind]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SMALL, **settings})).eval()
    with pytest.raises(LanguageModelError) as raised:
        convert_language_model(model, out=tmp_path / "bundle", dtype="float32", max_context=64)
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
    decoder = Decoder(checkpoint("llama"))
    for heads, width in ((4, 8), (1, 8)):
        with pytest.raises(LanguageModelError, match=rf"of 2 x 8 .* in a first call it kept {heads} x {width}; a bun"):
            decoder(*arguments(heads, width))


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


def test_attention_that_the_caller_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []

    def export(decoders: Any, *arguments: object) -> None:
        chosen.append(decoders[0].model.config._attn_implementation)
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
    vars(model.config)["_attn_implementation_internal"] = "flash_attention_2"
    kept = dict(vars(model.config))
    with implementations(model):
        assert model.config._attn_implementation == "sdpa"
        assert vars(model.config).get(name) == (None if experts == "absent" else "batched_mm")
    assert vars(model.config) == kept
