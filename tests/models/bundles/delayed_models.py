"""Small models whose codebooks are delayed against each other, with random weights, as folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.models.bundles.speaking_models import small_tokenizer
from tests.models.bundles.speech_models import drawn_model, save

_ENCODEC = {
    "model_type": "encodec", "target_bandwidths": [0.8], "sampling_rate": 400, "upsampling_ratios": [4, 2],
    "num_filters": 4, "hidden_size": 16, "num_lstm_layers": 1, "codebook_size": 16, "kernel_size": 3,
    "last_kernel_size": 3, "num_residual_layers": 1, "use_causal_conv": False,
}  # fmt: skip
_T5 = {"model_type": "t5", "vocab_size": 40, "d_model": 24, "d_kv": 8, "num_heads": 3, "d_ff": 32, "num_layers": 2}


def _scale(*parts: Any) -> None:
    """Weights so large that the codes vary."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for part in parts:
            part.weight.normal_(0, 1, generator=draw)


def dia(folder: Path) -> Path:
    """Dia with four codebooks of 20 codes, and of self-attention with fewer heads than attention to the text."""
    shared = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
    config = transformers.DiaConfig(
        encoder_config={**shared, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64},
        decoder_config={
            **shared, "num_attention_heads": 4, "num_key_value_heads": 2, "cross_num_attention_heads": 4,
            "cross_num_key_value_heads": 4, "cross_head_dim": 8, "cross_hidden_size": 32, "num_channels": 4,
            "vocab_size": 24, "eos_token_id": 20, "pad_token_id": 21, "bos_token_id": 22,
            "max_position_embeddings": 64},
        delay_pattern=[0, 2, 3, 5],
    )  # fmt: skip
    torch.manual_seed(0)
    model = drawn_model(transformers.DiaForConditionalGeneration(config))
    _scale(model.logits_dense, model.model.decoder.embeddings.embed)
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=20, pad_token_id=21, bos_token_id=22, decoder_start_token_id=22, max_length=24)  # fmt: skip
    return save(folder, model, transformers.DiaTokenizer())


def _of_music(folder: Path, kind: str, told: dict[str, Any], **more: Any) -> Path:
    """MusicGen with four codebooks of 16 codes."""
    decoder = {
        "vocab_size": 16, "max_position_embeddings": 64, "num_hidden_layers": 2, "ffn_dim": 48, "hidden_size": 32,
        "num_attention_heads": 4, "num_codebooks": 4, "pad_token_id": 16, "bos_token_id": 16, **told}  # fmt: skip
    config = getattr(transformers, f"{kind}Config")(
        text_encoder=dict(_T5), audio_encoder=dict(_ENCODEC), decoder=decoder, **more
    )
    torch.manual_seed(0)
    model = drawn_model(getattr(transformers, f"{kind}ForConditionalGeneration")(config))
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("embed"):
                buffer.normal_(generator=torch.Generator().manual_seed(2))
    _scale(*model.decoder.lm_heads, *model.decoder.model.decoder.embed_tokens)
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=16, pad_token_id=16, bos_token_id=16, max_length=24, guidance_scale=3.0)  # fmt: skip
    return save(folder, model, small_tokenizer())


def musicgen(folder: Path) -> Path:
    return _of_music(folder, "Musicgen", {"audio_channels": 1})


def musicgen_stereo(folder: Path) -> Path:
    return _of_music(folder, "Musicgen", {"audio_channels": 2})


def musicgen_melody(folder: Path) -> Path:
    return _of_music(folder, "MusicgenMelody", {}, num_chroma=12, chroma_length=7)


def higgs(folder: Path) -> Path:
    """Higgs Audio with four codebooks of 20 codes."""
    config = transformers.HiggsAudioV2Config(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=64, num_codebooks=4, codebook_size=22,
        audio_stream_bos_id=20, audio_stream_eos_id=21, audio_token_id=36, audio_bos_token_id=37,
        audio_delay_token_id=38, eos_token_id=39, pad_token_id=0, bos_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    model = drawn_model(transformers.HiggsAudioV2ForConditionalGeneration(config))
    _scale(model.audio_lm_head, model.model.embed_audio_tokens.embed_audio_tokens, model.model.embed_tokens)
    return save(folder, model, small_tokenizer())
