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
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling
from transformers.models.trocr.modeling_trocr import TrOCRSinusoidalPositionalEmbedding

from patcomp.frontend_torch.exporting.kept import kept
from patcomp_models.language.contract import HIDDEN, KEY_CACHE, LOGITS, POSITIONS, TOKENS, VALUE_CACHE
from patcomp_models.language.conventions import CACHE
from patcomp_models.language.layers import StackedCacheLayer
from patcomp_models.tasks.entries import Entry, image

CROSS = ("crossKeys", "crossValues")
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
    """The keys and values of the input for each layer of the decoder, (layers, 1, heads, length, width).

    Args:
        model: has an encoder and a decoder.
        is_masked: whether its encoder has its windows only with a mask.
        rows: how many rows of tokens a text has: the codebooks of models that write sound.
    """

    def __init__(self, model: Any, is_masked: bool = False, rows: int = 1):
        super().__init__()
        self.model, self.is_masked, self.rows = model, is_masked, rows

    def forward(self, read: Tensor) -> tuple[Tensor, Tensor]:
        mask = {"attention_mask": torch.ones(read.shape[:2], dtype=torch.int64)} if self.is_masked else {}
        return self.crossed(self.model.get_encoder()(read, **mask), mask)

    def crossed(self, encoded: Any, mask: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The keys and values of what the encoder gives."""
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        first = torch.zeros(self.rows, 1, dtype=torch.int64)  # the export drops the ops that depend on the token
        self.model(encoder_outputs=encoded, **mask, decoder_input_ids=first, use_cache=True, **{CACHE: cache})
        layers: Any = cache.cross_attention_cache.layers
        return torch.stack([layer.keys for layer in layers]), torch.stack([layer.values for layer in layers])


class EncodeImageAndText(EncodeInput):
    """The same of a text, (1, length), with an image whose features take the places of its image tokens."""

    def forward(self, input_ids: Tensor, pixel_values: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        model = self.model
        features = model.get_image_features(pixel_values).pooler_output.flatten(0, 1)
        is_image = input_ids == model.config.image_token_id
        places = (is_image.cumsum(1) - 1).clamp(0, len(features) - 1)
        embeddings = model.get_input_embeddings()(input_ids)
        embeddings = torch.where(is_image[..., None], features[places], embeddings)
        return self.crossed(model.get_encoder()(inputs_embeds=embeddings), {})


class DecodeTokens(nn.Module):
    """The logits of new tokens: the model after its encoder."""

    takes = TOKENS
    """The name of the first input."""
    gives: tuple[str, ...] = (LOGITS,)
    """The names of the outputs."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model
        config = getattr(model.get_encoder(), "config", model.config)
        self.width = getattr(config, "text_config", config).hidden_size

    def example(self, texts: int, new: int) -> Tensor:
        """A first input for some new tokens, whose axes 0 and 1 are texts and tokens."""
        return torch.arange(texts * new).reshape(texts, new)

    def form(self, cross_keys: Tensor, cross_values: Tensor) -> tuple[int, int]:
        """The heads and the width of the keys of tokens, which a first call leaves in a cache."""
        own: Any = DynamicCache()
        self.called(self.example(1, 1), own, cross_keys, cross_values)
        _, heads, _, width = own.layers[0].keys.shape
        return heads, width

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, cross_keys: Tensor, cross_values: Tensor, key_cache: Tensor,
        value_cache: Tensor,
    ) -> Any:  # fmt: skip
        new, total = input_ids.shape[1], position_ids.shape[1]
        offset = total - new
        torch._check(offset >= 0)
        torch._check(total <= key_cache.shape[3])
        rows = range(key_cache.shape[0])
        own = Cache(layers=[StackedCacheLayer(key_cache, value_cache, each, offset, total) for each in rows])
        positions = (
            {"decoder_position_ids": position_ids.narrow(1, offset, new)}
            if self.model.config.model_type == "whisper"
            else {}
        )
        return self.called(input_ids, own, cross_keys, cross_values, **positions)

    def called(
        self, new: Tensor, own: Cache, cross_keys: Tensor, cross_values: Tensor, **positions: Tensor
    ) -> Any:  # fmt: skip
        """The model's own logits, or what else it gives.

        Args:
            new: the first input.
            own: the cache of tokens.
            cross_keys, cross_values: (layers, 1, heads, length, width).
            positions: further arguments of the model.
        """
        texts, count = new.shape[0], cross_keys.shape[0]
        cross: Any = Cache(layers=[DynamicLayer() for _ in range(count)])
        for each, layer in enumerate(cross.layers):  # all texts have the one input
            layer.update(*(kept[each].expand(texts, -1, -1, -1) for kept in (cross_keys, cross_values)))
        cache = EncoderDecoderCache(own, cross)
        cache.is_updated = dict.fromkeys(range(count), True)
        encoded = cross_keys.new_zeros(texts, cross_keys.shape[3], self.width)  # only its presence is looked at
        # the decoder of PP-FormulaNet looks at what the encoder pools
        is_pooled = self.model.config.model_type == "pp_formulanet"
        outputs = BaseModelOutputWithPooling(encoded, encoded) if is_pooled else Encoded(encoded)
        logits: Tensor = self.model(
            encoder_outputs=outputs, decoder_input_ids=self.tokens(new), use_cache=True,
            **{CACHE: cache}, **positions,
        ).logits  # fmt: skip
        return logits

    def tokens(self, new: Tensor) -> Tensor:
        """The first input as the model takes it."""
        return new


def reading_and_writing(
    model: Any, encode: EncodeInput, read: dict[str, Tensor], open_read: dict[str, dict[int, Any]], longest: int, *,
    most_texts: int = _MOST_BEAMS, decode: DecodeTokens | None = None,
) -> list[Entry]:  # fmt: skip
    """The two functions of a model.

    Args:
        model: has an encoder and a decoder.
        encode: an `EncodeInput` of it.
        read: an example of what the encoder reads, without padding, by name; tokens come first.
        open_read: the open size of the first of them, by its name and axis.
        longest: the most tokens that the model writes.
        most_texts: how many texts a call of `decode` continues.
        decode: the second function; by default `DecodeTokens` of the model.
    """
    decode = decode or DecodeTokens(model)
    with torch.no_grad(), kept(model):
        keys, values = encode(*read.values())
        heads, width = decode.form(keys, values)
    texts = min(_BEAMS, most_texts)
    new, total = (Dim(name, min=1, max=longest) for name in ("new", "total"))
    count = Dim("beams", min=1, max=most_texts) if most_texts > 1 else None
    beams: list[dict[int, Any]] = [{axis: count} if count else {} for axis in (0, 1)]
    capacity = [{**beams[1], 3: Dim(f"{name}_capacity", min=1, max=2 * longest)} for name in ("key", "value")]
    # the encoder of text keeps its length; what an encoder of sound makes of its own is another size
    is_text = TOKENS in read or HIDDEN in read
    opened = [size for sizes in open_read.values() for size in sizes.values()]
    length = {3: opened[0] if is_text else Dim("frames", min=2, max=2**20)} if opened else {}
    shape = len(keys), texts, heads, 2 * _TOTAL, width
    empty = [torch.zeros(shape, dtype=model.dtype) for _ in (KEY_CACHE, VALUE_CACHE)]
    names = (decode.takes, POSITIONS, *CROSS, KEY_CACHE, VALUE_CACHE)
    inputs = (decode.example(texts, _NEW), torch.arange(_TOTAL)[None], keys, values, *empty)
    dynamic = ({**beams[0], 1: new}, {1: total}, length, length, *capacity)
    written, open_sizes = dict(zip(names, inputs, strict=True)), dict(zip(names, dynamic, strict=True))
    return [
        Entry("encode", encode, read, CROSS, open_read),
        Entry("decode", decode, written, decode.gives, open_sizes, (KEY_CACHE, VALUE_CACHE), keeps_sizes=True),
    ]


def speech(model: Any, folder: Path) -> list[Entry]:
    """Whisper: `encode` takes the log-mel spectrum of 30 seconds."""
    config = model.config
    read = torch.linspace(-1, 1, config.num_mel_bins * 2 * config.max_source_positions, dtype=model.dtype)
    read = read.reshape(1, config.num_mel_bins, -1)
    return reading_and_writing(model, EncodeInput(model), {"input_features": read}, {}, config.max_target_positions)


def text_to_text(model: Any, folder: Path) -> list[Entry]:
    """T5, BART, Marian, NLLB and others: `encode` takes a text of any length, without padding."""
    read = torch.arange(3, 3 + 16)[None] % model.get_input_embeddings().num_embeddings
    longest = getattr(getattr(model.get_decoder(), "config", model.config), "max_position_embeddings", None)
    length = Dim("length", min=2, max=longest or 2**20)
    return reading_and_writing(model, EncodeInput(model), {TOKENS: read}, {TOKENS: {1: length}}, longest or 2**16)


class BlipPair(nn.Module):
    """BLIP, called as other models of an encoder and a decoder are."""

    def __init__(self, model: Any):
        super().__init__()
        self.model, self.config, self.dtype = model, model.config, model.dtype

    def get_encoder(self) -> Any:
        return self.model.vision_model

    def forward(self, encoder_outputs: Any, decoder_input_ids: Tensor, **given: Any) -> Any:
        return self.model.text_decoder(decoder_input_ids, encoder_hidden_states=encoder_outputs[0], **given)


def image_to_text(model: Any, folder: Path) -> list[Entry]:
    """TrOCR, Donut, BLIP and other pairs of an encoder of images and a decoder of texts: `encode` takes one image; of
    Pix2Struct, any number of patches without padding, each behind its row and column."""
    if model.main_input_name == "flattened_patches":
        vision = model.config.vision_config
        rows = torch.arange(16)
        pixels = torch.linspace(-1, 1, 16 * vision.patch_embed_hidden_size).reshape(16, -1)
        read = torch.cat([torch.stack([rows // 4 + 1, rows % 4 + 1], 1), pixels], 1)[None].to(model.dtype)
        count = Dim("patches", min=2, max=vision.seq_len)
        return reading_and_writing(
            model, EncodeInput(model, is_masked=True), {"flattened_patches": read},
            {"flattened_patches": {1: count}}, 2**16,
        )  # fmt: skip
    if model.config.model_type == "blip":
        model = BlipPair(model)
    decoder = model.config.get_text_config(decoder=True)
    for part in model.modules():
        if isinstance(part, TrOCRSinusoidalPositionalEmbedding) and part.weights.is_meta:
            # transformers computes this table while models have no numbers, and it is not in checkpoints
            part.weights = part.get_embedding(len(part.weights), part.embedding_dim, part.padding_idx)
    longest = next(
        found for name in ("max_position_embeddings", "n_positions") if (found := getattr(decoder, name, None))
    )
    return reading_and_writing(
        model, EncodeInput(model), {"pixel_values": image(model.get_encoder(), folder)}, {}, longest
    )  # fmt: skip


def image_and_text_to_text(model: Any, folder: Path) -> list[Entry]:
    """Florence-2: `encode` takes a text with image tokens, and one image."""
    pixels = image(model, folder)
    count = model.get_image_features(pixels).pooler_output.shape[1]
    tokens = torch.tensor([[model.config.image_token_id] * count + [*range(3, 3 + 8)]])
    longest = model.config.get_text_config().max_position_embeddings
    sizes = {TOKENS: {1: Dim("length", min=count + 1, max=longest)}}
    read = {TOKENS: tokens, "pixel_values": pixels}
    return reading_and_writing(model, EncodeImageAndText(model), read, sizes, longest)
