"""Encoder and decoder models: one function that reads the input, and one that writes the output with a cache.

    crossKeys, crossValues = encode(input_features)
    logits = decode(input_ids, position_ids, crossKeys, crossValues), with the states keyCache and valueCache

`decode` takes new tokens and the positions of all tokens, as language models do (`patcomp_models.language`). `encode`
computes the keys and values of the attention to the input, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.trocr.modeling_trocr import TrOCRSinusoidalPositionalEmbedding

from patcomp_models.language.contract import KEY_CACHE, LOGITS, POSITIONS, TOKENS, VALUE_CACHE
from patcomp_models.language.layers import StackedCacheLayer
from patcomp_models.tasks.entries import Entry, image

_CROSS = ("crossKeys", "crossValues")
_BEAMS, _NEW, _TOTAL = 2, 4, 8
"""The texts, new tokens and all tokens of the example."""
_MOST_BEAMS = 64
"""The texts that one call continues."""


@dataclass
class Encoded(BaseModelOutput):
    """What an encoder gives; the decoders of Canary and Moonshine Streaming also look for a mask, which is not needed
    without padding."""

    attention_mask: Tensor | None = None


class EncodeInput(nn.Module):
    """The keys and values of the input for each layer of the decoder, (layers, 1, heads, length, width)."""

    def __init__(self, model: Any, is_masked: bool = False):
        super().__init__()
        self.model, self.is_masked = model, is_masked

    def forward(self, read: Tensor) -> tuple[Tensor, Tensor]:
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        first = torch.zeros(1, 1, dtype=torch.int64)  # the export drops the ops that depend on the token
        mask = {"attention_mask": torch.ones(read.shape[:2], dtype=torch.int64)} if self.is_masked else {}
        self.model(read, **mask, decoder_input_ids=first, past_key_values=cache, use_cache=True)
        layers: Any = cache.cross_attention_cache.layers
        return torch.stack([layer.keys for layer in layers]), torch.stack([layer.values for layer in layers])


class DecodeTokens(nn.Module):
    """The logits of new tokens: the model after its encoder."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model
        self.width = model.get_encoder().config.hidden_size

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, cross_keys: Tensor, cross_values: Tensor, key_cache: Tensor,
        value_cache: Tensor,
    ) -> Tensor:  # fmt: skip
        (texts, new), total = input_ids.shape, position_ids.shape[1]
        offset = total - new
        torch._check(offset >= 0)
        torch._check(total <= key_cache.shape[3])
        count = key_cache.shape[0]
        own = Cache(layers=[StackedCacheLayer(key_cache, value_cache, each, offset, total) for each in range(count)])
        cross: Any = Cache(layers=[DynamicLayer() for _ in range(count)])
        for each, layer in enumerate(cross.layers):  # all texts have the one input
            layer.update(*(kept[each].expand(texts, -1, -1, -1) for kept in (cross_keys, cross_values)))
        cache = EncoderDecoderCache(own, cross)
        cache.is_updated = dict.fromkeys(range(count), True)
        encoded = key_cache.new_zeros(texts, cross_keys.shape[3], self.width)  # only its presence is looked at
        positions = (
            {"decoder_position_ids": position_ids.narrow(1, offset, new)}
            if self.model.config.model_type == "whisper"
            else {}
        )
        logits: Tensor = self.model(
            encoder_outputs=Encoded(encoded), decoder_input_ids=input_ids, past_key_values=cache,
            use_cache=True, **positions,
        ).logits  # fmt: skip
        return logits


def reading_and_writing(
    model: Any, name: str, read: Tensor, open_read: dict[int, Any], longest: int, *, most_texts: int = _MOST_BEAMS,
    is_masked: bool = False,
) -> list[Entry]:  # fmt: skip
    """The two functions of a model.

    Args:
        model: has an encoder and a decoder.
        name: of what the encoder reads.
        read: an example of it, without padding.
        open_read: its open size, by its axis.
        longest: the most tokens that the model writes.
        most_texts: how many texts a call of `decode` continues.
        is_masked: whether the encoder must be told that nothing is padding, because it has no windows without a mask.
    """
    encode, decode = EncodeInput(model, is_masked), DecodeTokens(model)
    with torch.no_grad():
        keys, values = encode(read)
    texts = min(_BEAMS, most_texts)
    new, total = (Dim(name, min=1, max=longest) for name in ("new", "total"))
    count = Dim("beams", min=1, max=most_texts) if most_texts > 1 else None
    beams: list[dict[int, Any]] = [{axis: count} if count else {} for axis in (0, 1)]
    capacity = [{**beams[1], 3: Dim(f"{name}_capacity", min=1, max=2 * longest)} for name in ("key", "value")]
    # the encoder of text keeps its length; what an encoder of sound makes of its own is another size
    is_text = not read.is_floating_point()
    length = {3: next(iter(open_read.values())) if is_text else Dim("frames", min=2, max=2**20)} if open_read else {}
    layers, _, heads, _, width = keys.shape
    empty = [torch.zeros(layers, texts, heads, 2 * _TOTAL, width, dtype=model.dtype) for _ in (KEY_CACHE, VALUE_CACHE)]
    names = (TOKENS, POSITIONS, *_CROSS, KEY_CACHE, VALUE_CACHE)
    inputs = (torch.arange(texts * _NEW).reshape(texts, _NEW), torch.arange(_TOTAL)[None], keys, values, *empty)
    dynamic = ({**beams[0], 1: new}, {1: total}, length, length, *capacity)
    written, open_sizes = dict(zip(names, inputs, strict=True)), dict(zip(names, dynamic, strict=True))
    return [
        Entry("encode", encode, {name: read}, _CROSS, {name: open_read}),
        Entry("decode", decode, written, (LOGITS,), open_sizes, (KEY_CACHE, VALUE_CACHE), keeps_sizes=True),
    ]


def speech(model: Any, folder: Path) -> list[Entry]:
    """Whisper: `encode` takes the log-mel spectrum of 30 seconds."""
    config = model.config
    read = torch.linspace(-1, 1, config.num_mel_bins * 2 * config.max_source_positions, dtype=model.dtype)
    read = read.reshape(1, config.num_mel_bins, -1)
    return reading_and_writing(model, "input_features", read, {}, config.max_target_positions)


def text_to_text(model: Any, folder: Path) -> list[Entry]:
    """T5, BART, Marian, NLLB and others: `encode` takes a text of any length, without padding."""
    read = torch.arange(3, 3 + 16)[None] % model.config.vocab_size
    longest = getattr(model.get_decoder().config, "max_position_embeddings", None)
    length = Dim("length", min=2, max=longest or 2**20)
    return reading_and_writing(model, TOKENS, read, {1: length}, longest or 2**16)


def image_to_text(model: Any, folder: Path) -> list[Entry]:
    """TrOCR, Donut and other pairs of an encoder of images and a decoder of texts: `encode` takes one image."""
    decoder = model.config.decoder
    for part in model.modules():
        if isinstance(part, TrOCRSinusoidalPositionalEmbedding) and part.weights.is_meta:
            # transformers computes this table while models have no numbers, and it is not in checkpoints
            part.weights = part.get_embedding(len(part.weights), part.embedding_dim, part.padding_idx)
    longest = next(
        found for name in ("max_position_embeddings", "n_positions") if (found := getattr(decoder, name, None))
    )
    return reading_and_writing(model, "pixel_values", image(model.encoder, folder), {}, longest)
