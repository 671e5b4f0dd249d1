"""Small language models that hear, with random weights, as folders with their processors.

The configurations have the fields of the published ones, with smaller sizes.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import torch
import transformers

from patcomp_models.checkpoints.own_extractors import GraniteSpeechFeatureExtractor
from tests.models.bundles.speech_models import CONVOLUTIONS, save
from tests.models.bundles.streaming_models import MIMI, drawn_codec

PLACE = "<|audio|>"
_WORDS = ["<s>", "</s>", "<pad>", "<unk>", *string.ascii_lowercase, *(f"<|{index}|>" for index in range(28)), PLACE,
          "<|bos|>", "<|eos|>"]  # fmt: skip
_AUDIO = _WORDS.index(PLACE)
_SOUND = {"num_mel_bins": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
          "hidden_size": 32}  # fmt: skip
_OLDER = {"num_mel_bins": 128, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 48, "d_model": 32}
_TEXT = {"vocab_size": len(_WORDS), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 2048, "head_dim": 16,
         "eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 2}  # fmt: skip
_BLOCKS = {"num_layers": 2, "hidden_dim": 32, "num_heads": 2, "output_dim": 12, "context_size": 40, "max_pos_emb": 64}
_GRANITE: dict[str, Any] = {
    "encoder_config": _BLOCKS,
    "projector_config": {
        "model_type": "blip_2_qformer", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 48, "encoder_hidden_size": 32,
    },
    "text_config": {**_TEXT, "model_type": "granite", "embedding_multiplier": 3.0, "logits_scaling": 0.5,
                    "residual_multiplier": 0.9, "attention_multiplier": 0.8},
    "audio_token_index": _AUDIO, "has_lora_adapter": False,
}  # fmt: skip
_CODEC = {"model_type": "vibevoice_acoustic_tokenizer_encoder", "num_filters": 2, "depths": (1,) * 7,
          "layer_scale_init_value": 0.5}  # fmt: skip
HEARING: dict[str, dict[str, Any]] = {
    "AudioFlamingo3": {"audio_config": _SOUND, "text_config": {**_TEXT, "model_type": "qwen2"}},
    "FunAsrNano": {
        "audio_config": {**_SOUND, "num_mel_bins": 80, "num_hidden_layers": 3, "num_timestamp_prediction_layers": 1},
        "adaptor_config": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1,
                           "projector_hidden_size": 48},
        "text_config": {**_TEXT, "model_type": "qwen3"},
    },
    "GlmAsr": {"audio_config": {**_SOUND, "intermediate_size": 128}, "text_config": {**_TEXT, "model_type": "llama"}},
    "GraniteSpeech": _GRANITE,
    "GraniteSpeechPlus": {
        **_GRANITE, "encoder_config": {**_BLOCKS, "cat_hidden_layers": [1]},
        "projector_config": {**_GRANITE["projector_config"], "encoder_hidden_size": 64},
    },
    "KyutaiSpeechToText": {
        "vocab_size": len(_WORDS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16,
        "ffn_dim": 48, "num_codebooks": 4, "codebook_vocab_size": 33, "audio_bos_token_id": 32, "sliding_window": 20,
        "audio_pad_token_id": len(_WORDS) + 4 * 33, "bos_token_id": 0, "pad_token_id": 2,
        "codec_config": {"model_type": "mimi", **MIMI},
    },
    "MossTranscribeDiarize": {
        "audio_config": {**_SOUND, "num_mel_bins": 80}, "text_config": {**_TEXT, "model_type": "qwen3"},
    },
    "MusicFlamingo": {"audio_config": {**_SOUND, "model_type": "audioflamingo3_encoder"},
                      "text_config": {**_TEXT, "model_type": "qwen2"}},
    "OmniASR": {
        "audio_config": {
            "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
            **CONVOLUTIONS, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
        },
        "text_config": {**_TEXT, "model_type": "llama"}, "bos_token_id": 0, "pad_token_id": 2, "eos_token_id": 1,
    },
    "Qwen2Audio": {"audio_config": _OLDER, "text_config": {**_TEXT, "model_type": "qwen2"},
                   "audio_token_index": _AUDIO},
    "Qwen3ASR": {
        "audio_config": {**_OLDER, "output_dim": 32, "downsample_hidden_size": 16},
        "text_config": {**_TEXT, "model_type": "qwen3"},
    },
    "VibeVoiceAsr": {
        "acoustic_tokenizer_encoder_config": {**_CODEC, "hidden_size": 8},
        "semantic_tokenizer_encoder_config": {**_CODEC, "hidden_size": 12},
        "text_config": {**_TEXT, "model_type": "qwen2"},
    },
    "VoxtralRealtime": {
        "audio_config": {**_SOUND, "head_dim": 16, "sliding_window": 30},
        "text_config": {**_TEXT, "model_type": "voxtral_realtime_text", "sliding_window": 64},
    },
    "Voxtral": {"audio_config": {**_SOUND, "intermediate_size": 128}, "text_config": {**_TEXT, "model_type": "llama"}},
}  # fmt: skip


BESIDE = {
    "KyutaiSpeechToText": lambda: transformers.KyutaiSpeechToTextFeatureExtractor(
        sampling_rate=400, audio_delay_seconds=0.5, audio_silence_prefix_seconds=0.2
    ),
    "VoxtralRealtime": lambda: transformers.VoxtralRealtimeFeatureExtractor(),
}
"""The extractors of models that hear beside each token."""


def _processor(name: str) -> Any:
    from tokenizers import Tokenizer, decoders, models

    pieces = Tokenizer(models.BPE({word: number for number, word in enumerate(_WORDS)}, [], unk_token="<unk>"))
    pieces.decoder = decoders.Fuse()
    tokens = {"audio_token": PLACE, "audio_bos_token": "<|bos|>", "audio_eos_token": "<|eos|>"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=pieces, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        extra_special_tokens=tokens,
    )  # fmt: skip
    kind = getattr(transformers, f"{name.removesuffix('Plus')}Processor")
    extractor = (
        GraniteSpeechFeatureExtractor() if "Granite" in name
        else transformers.VibeVoiceAcousticTokenizerFeatureExtractor() if name == "VibeVoiceAsr"
        else transformers.OmniASRFeatureExtractor() if name == "OmniASR"
        else transformers.FunAsrNanoFeatureExtractor() if name == "FunAsrNano"
        else transformers.Qwen3ASRFeatureExtractor() if name == "Qwen3ASR"
        else transformers.WhisperFeatureExtractor(feature_size=128)
    )  # fmt: skip
    template = (
        "{% for message in messages %}{% for part in message['content'] %}{% if part['type'] == 'audio' %}" + PLACE
        + "{% else %}{{ part['text'] | lower }}{% endif %}{% endfor %}{% endfor %}"
    )  # fmt: skip
    own: dict[str, Any] = {} if name in ("Qwen2Audio", "Qwen3ASR", "Voxtral") else {"audio_token": PLACE}
    told = {} if name == "Voxtral" else {"chat_template": template}
    if name == "OmniASR":
        own |= {"conv_kernel": [*CONVOLUTIONS["conv_kernel"]], "conv_stride": [*CONVOLUTIONS["conv_stride"]]}
    return kind(extractor, tokenizer, **told, **own)


def hearing(folder: Path, name: str) -> Path:
    """A model whose next token depends on what it hears.

    Args:
        folder: of the model.
        name: the beginning of its class.
    """
    kind = getattr(transformers, f"{name}ForConditionalGeneration")
    torch.manual_seed({"AudioFlamingo3": 1, "MusicFlamingo": 1, "OmniASR": 4}.get(name, 0))
    has_none = "audio_token_index" in HEARING[name] or name in BESIDE
    token = {} if has_none else {"audio_token_id": 24 if name == "Voxtral" else _AUDIO}
    model = drawn_codec(kind(kind.config_class(**{**HEARING[name], **token, "tie_word_embeddings": False})))
    with torch.no_grad():  # else each token is followed by itself
        table = model.get_input_embeddings()
        getattr(table, "embed_tokens", table).weight.normal_(0, 0.5)
        model.get_output_embeddings().weight.normal_(0, 1)
        projectors = [getattr(model.model, each, None) for each in ("projector", "multi_modal_projector")]
        for weight in (each for projector in projectors if projector for each in projector.parameters()):
            weight.mul_(4)
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=1, pad_token_id=2, bos_token_id=0, max_new_tokens=12
    )
    if name == "KyutaiSpeechToText":  # as it is published
        model.generation_config.audio_window_size = 1
        model.codec_model.generation_config.cache_implementation = "sliding_window"
    if name not in BESIDE:
        return save(folder, model, _processor(name))
    return save(folder, model, BESIDE[name](), _processor("Voxtral").tokenizer)
