"""Architectures that keep something else between calls than a bundle holds, and those without SDPA."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache, LlamaConfig
from transformers.cache_utils import LinearAttentionLayer

from patcomp_models.checkpoints.loading import export_implementations
from patcomp_models.language import LanguageModelError, convert_language_model
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.states import states_of
from tests.models.language.checkpoints import checkpoint


class Keeper(nn.Module):
    """A model that keeps something of its own in its cache."""

    def __init__(self, kept: object):
        super().__init__()
        self.kept = kept
        self.config = LlamaConfig(model_type="keeper", vocab_size=96)
        self.config.model_type = "keeper"

    def forward(self, input_ids: torch.Tensor, past_key_values: object = None, use_cache: bool = False) -> Any:
        return SimpleNamespace(past_key_values=self.kept)


class Stateless(Keeper):
    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> Any:  # type: ignore[override]
        return SimpleNamespace()


def integers() -> DynamicCache:
    """A cache with a layer that keeps the last tokens (n-grams of Qwen4)."""
    layer = LinearAttentionLayer()
    layer.update_conv_state(torch.ones(1, 4, dtype=torch.int64))
    cache = DynamicCache()
    cache.layers.append(layer)
    return cache


def crossed(*, filled: bool) -> EncoderDecoderCache:
    """The two caches of a decoder that could attend to an encoder's output."""
    own, cross = DynamicCache(), DynamicCache()
    for cache in (own, cross) if filled else (own,):
        cache.update(torch.ones(1, 2, 4, 8), torch.ones(1, 2, 4, 8), 0)
    return EncoderDecoderCache(own, cross)


REFUSED: dict[str, tuple[Keeper, str]] = {
    "no argument": (
        Stateless(None),
        "the architecture 'keeper' takes no cache of transformers "
        "(it has no argument cache, past_key_values or cache_params), "
        "so its states cannot be the states of a bundle",
    ),
    "another class": (
        Keeper(SimpleNamespace()),
        "the architecture 'keeper' keeps a cache of its own (SimpleNamespace), and a bundle holds what is in a cache "
        "of transformers: keys and values, windows of convolutions and recurrences",
    ),
    "an encoder's output": (
        Keeper(crossed(filled=True)),
        "the architecture 'keeper' keeps a cache of its own (EncoderDecoderCache), and a bundle holds what is in a "
        "cache of transformers: keys and values, windows of convolutions and recurrences",
    ),
    "nothing": (
        Keeper(None),
        "the architecture 'keeper' keeps no cache, and a bundle holds what is in a cache of transformers: keys and "
        "values, windows of convolutions and recurrences",
    ),
    "integers": (
        Keeper(integers()),
        "layer 0 of the architecture 'keeper' keeps integers (the last tokens, for embeddings of several tokens), and "
        "a bundle holds floats: keys and values, convolutions and recurrences",
    ),
}


def test_a_cache_for_an_encoder_that_is_not_there() -> None:
    """MegatronBERT alone has one."""
    states = states_of(Keeper(crossed(filled=False)))
    assert [(state.name, state.rows, state.shape) for state in states.states] == [
        ("keyCache", 1, (2, 8)), ("valueCache", 1, (2, 8)),
    ]  # fmt: skip


@pytest.mark.parametrize("kept", REFUSED)
def test_what_a_bundle_does_not_hold(kept: str) -> None:
    model, message = REFUSED[kept]
    with pytest.raises(LanguageModelError) as raised:
        states_of(model)
    assert str(raised.value) == message


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

    def export(begun: object, decoders: Any, *further: object) -> None:
        chosen.append(decoders[0].model.config._attn_implementation)
        raise LanguageModelError("as far as this")

    monkeypatch.setattr("patcomp_models.language.dynamic_bundle._converted", export)
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
    with export_implementations(model):
        assert model.config._attn_implementation == "sdpa"
        assert vars(model.config).get(name) == (None if experts == "absent" else "batched_mm")
    assert vars(model.config) == kept
