"""Small models of speech with an encoder and a decoder, with random weights, as folders with their processors.

The configurations have the fields of the published ones, with smaller sizes.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.models.bundles.speech_models import drawn_model, save

WORDS = ["<s>", "<pad>", "</s>", "<unk>", "<|en|>", "<|de|>", *string.ascii_lowercase]
_TOKENS = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 0}
_PARAKEET = {
    "model_type": "parakeet_encoder", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 48, "subsampling_conv_channels": 8, "num_mel_bins": 128,
}  # fmt: skip
_TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
         "intermediate_size": 48, "max_position_embeddings": 64, "head_dim": 16}  # fmt: skip
_SEAMLESS = {
    "hidden_size": 32, "encoder_layers": 1, "encoder_ffn_dim": 48, "encoder_attention_heads": 2, "decoder_layers": 2,
    "decoder_ffn_dim": 48, "decoder_attention_heads": 2, "speech_encoder_layers": 2,
    "speech_encoder_attention_heads": 2, "speech_encoder_intermediate_size": 48, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "t2u_vocab_size": 20, "t2u_encoder_layers": 1, "t2u_decoder_layers": 1,
    "conv_depthwise_kernel_size": 7, "max_position_embeddings": 64, "max_source_positions": 256,
}  # fmt: skip
_CONVOLUTIONS = {
    "conv_dim": (16,) * 3, "conv_kernel": (10, 3, 2), "conv_stride": (5, 4, 4), "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
SEQ2SEQ: dict[str, dict[str, Any]] = {
    "CanaryForConditionalGeneration": {
        "encoder_config": _PARAKEET, "decoder_config": {**_TEXT, "vocab_size": len(WORDS), **_TOKENS},
    },
    "CohereAsrForConditionalGeneration": {**_TEXT, "encoder_config": _PARAKEET},
    "MoonshineStreamingForConditionalGeneration": {
        **_TEXT, "max_position_embeddings": 512, "encoder_config": {
            **_TEXT, "model_type": "moonshine_streaming_encoder", "sliding_windows": [[16, 4], [16, 0]],
        },
    },
    "SeamlessM4TForSpeechToText": _SEAMLESS,
    "SeamlessM4Tv2ForSpeechToText": _SEAMLESS,
    "Speech2TextForConditionalGeneration": {
        "d_model": 32, "encoder_layers": 2, "encoder_ffn_dim": 48, "encoder_attention_heads": 2, "decoder_layers": 2,
        "decoder_ffn_dim": 48, "decoder_attention_heads": 2, "conv_channels": 24, "max_target_positions": 64,
    },
    "SpeechT5ForSpeechToText": {
        "hidden_size": 32, "encoder_layers": 2, "encoder_ffn_dim": 48, "encoder_attention_heads": 2,
        "decoder_layers": 2, "decoder_ffn_dim": 48, "decoder_attention_heads": 2, "max_text_positions": 64,
        **_CONVOLUTIONS,
    },
}  # fmt: skip


def _extractor(name: str) -> Any:
    if name.startswith("Canary"):
        return transformers.ParakeetFeatureExtractor(feature_size=128)
    if name.startswith("Cohere"):
        return transformers.CohereAsrFeatureExtractor(feature_size=128)
    if name.startswith("Seamless"):
        return transformers.SeamlessM4TFeatureExtractor()
    if name.startswith("Speech2Text"):
        return transformers.Speech2TextFeatureExtractor()
    if name.startswith("SpeechT5"):
        return transformers.SpeechT5FeatureExtractor()
    return transformers.Wav2Vec2FeatureExtractor(do_normalize=not name.startswith("Moonshine"))


def _tokenizer() -> Any:
    """The tokenizer of `WORDS`."""
    from tokenizers import Tokenizer, decoders, models

    pieces = Tokenizer(models.BPE({word: number for number, word in enumerate(WORDS)}, [], unk_token="<unk>"))
    pieces.decoder = decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=pieces, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        additional_special_tokens=["<|en|>", "<|de|>"],
    )  # fmt: skip


def seq2seq(folder: Path, name: str) -> Path:
    """A model that writes at most 12 tokens.

    Args:
        folder: of the model.
        name: of its class.
    """
    kind, is_pair = getattr(transformers, name), name == "SpeechEncoderDecoderModel"
    torch.manual_seed(2 if is_pair else 0)
    if is_pair:
        encoder = transformers.Wav2Vec2Config(
            vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
            **_CONVOLUTIONS,
        )  # fmt: skip
        decoder = transformers.BartConfig(
            vocab_size=len(WORDS), d_model=24, decoder_layers=2, decoder_ffn_dim=48, decoder_attention_heads=2,
            max_position_embeddings=64, is_decoder=True, add_cross_attention=True, **_TOKENS,
        )  # fmt: skip
        config = transformers.SpeechEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
        config.decoder_start_token_id, config.pad_token_id = 0, 1
    else:
        told = {**SEQ2SEQ[name], "vocab_size": len(WORDS), **_TOKENS, "tie_word_embeddings": False}
        config = kind.config_class(**told)
    model = drawn_model(kind(config))
    with torch.no_grad():  # the next token depends on those before, so that it is not always the same
        model.get_decoder().get_input_embeddings().weight.normal_(0, 1.5)
        (model.get_output_embeddings() or model.decoder.get_output_embeddings()).weight.normal_(0, 1)
        louder = 1 if name.startswith(("Canary", "Cohere")) else 6 if is_pair else 3
        for key, weight in model.get_decoder().named_parameters():  # and on the sound
            if any(word in key for word in ("encoder_attn", "cross_attention")) and weight.ndim > 1:
                weight.mul_(louder)
    model.generation_config = transformers.GenerationConfig(**_TOKENS, max_length=13)
    return save(folder, model, _extractor(name), _tokenizer())
