"""Small codecs and recognisers that read chunks, with random weights, as folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.models.bundles.speech_models import WORDS, drawn_model, letters_tokenizer, save

MIMI: dict[str, Any] = {
    "hidden_size": 32, "num_filters": 8, "upsampling_ratios": [4, 2], "num_hidden_layers": 2, "intermediate_size": 48,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 6, "codebook_size": 32,
    "codebook_dim": 16, "num_quantizers": 4, "vector_quantization_hidden_dimension": 16, "upsample_groups": 32,
    "sampling_rate": 400, "frame_rate": 25, "layer_scale_initial_scale": 0.5,
}  # fmt: skip


ENCODEC: dict[str, Any] = {
    "hidden_size": 16, "num_filters": 4, "upsampling_ratios": [4, 2], "codebook_size": 32, "sampling_rate": 400,
    "target_bandwidths": [0.5, 1.0], "kernel_size": 5, "last_kernel_size": 5,
}  # fmt: skip
"""Of 24 kHz: causal, with reflected elements in front of a recording."""


def drawn_codec(model: Any) -> Any:
    """A codec whose codes vary."""
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith(("embed_sum", "codebook.embed")):
                buffer.normal_(generator=draw)
    return drawn_model(model)


def mimi(folder: Path, **options: Any) -> Path:
    """Mimi with frames of 16 samples."""
    torch.manual_seed(0)
    return save(folder, drawn_codec(transformers.MimiModel(transformers.MimiConfig(**MIMI, **options))))


def moshi(folder: Path) -> Path:
    """Moshi, whose codec is Mimi."""
    torch.manual_seed(0)
    config = transformers.MoshiConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, ffn_dim=32, vocab_size=20,
        num_codebooks=2, audio_vocab_size=32, audio_encoder_config=transformers.MimiConfig(**MIMI),
        depth_decoder_config={
            "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
            "ffn_dim": 32, "vocab_size": 20, "num_codebooks": 2, "audio_vocab_size": 32, "input_size": 16},
    )  # fmt: skip
    return save(folder, drawn_codec(transformers.MoshiForConditionalGeneration(config)))


def encodec(folder: Path, **options: Any) -> Path:
    """EnCodec with frames of 8 samples."""
    torch.manual_seed(0)
    model = drawn_codec(transformers.EncodecModel(transformers.EncodecConfig(**ENCODEC, **options)))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("original0"):  # the norms of weights
                weight.abs_().add_(1)
    return save(folder, model)


def pocket(folder: Path) -> Path:
    """The codec of Pocket TTS with frames of 16 samples."""
    torch.manual_seed(0)
    config = transformers.PocketTTSAudioTokenizerConfig(
        hidden_size=32, num_filters=8, upsampling_ratios=[4, 2], num_hidden_layers=2, intermediate_size=48,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=6, upsample_groups=32,
        sampling_rate=400, latent_stride=2, latent_dim=6, layer_scale_initial_scale=0.5,
    )  # fmt: skip
    return save(folder, drawn_model(transformers.PocketTTSAudioTokenizerModel(config)))


def vibe_voice(folder: Path) -> Path:
    """The codec of VibeVoice with frames of 8 samples."""
    torch.manual_seed(0)
    config = transformers.VibeVoiceAcousticTokenizerConfig(
        channels=1, hidden_size=6, kernel_size=5, num_filters=4, downsampling_ratios=[2, 4], depths=[1, 1, 1],
        layer_scale_init_value=0.5,
    )  # fmt: skip
    extractor = transformers.VibeVoiceAcousticTokenizerFeatureExtractor()
    return save(folder, drawn_model(transformers.VibeVoiceAcousticTokenizerModel(config)), extractor)


def kyutai(folder: Path) -> Path:
    """Kyutai's recogniser, whose codec is Mimi."""
    torch.manual_seed(0)
    config = transformers.KyutaiSpeechToTextConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8, ffn_dim=32,
        vocab_size=20, codebook_vocab_size=32, num_codebooks=2, pad_token_id=1, audio_pad_token_id=31,
        codec_config=transformers.MimiConfig(**MIMI),
    )  # fmt: skip
    return save(folder, drawn_codec(transformers.KyutaiSpeechToTextForConditionalGeneration(config)))


def nemotron(folder: Path, name: str = "NemotronAsrStreaming", **options: Any) -> Path:
    """A streaming recogniser with chunks of 2 frames, which see 4 frames before them; the blank is the last token."""
    torch.manual_seed(0)
    words = len(WORDS)
    encoder = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
        "subsampling_conv_channels": 8, "num_mel_bins": 80, "subsampling_factor": 4, "sliding_window": 5,
        "default_num_lookahead_tokens": 1, "conv_kernel_size": 5,
    }  # fmt: skip
    config = getattr(transformers, f"{name}Config")(
        vocab_size=words, encoder_config=encoder, decoder_hidden_size=24, num_decoder_layers=2,
        blank_token_id=words - 1, pad_token_id=1, max_symbols_per_step=3, **options,
    )  # fmt: skip
    model = drawn_model(getattr(transformers, f"{name}ForRNNT")(config))
    model.generation_config.decoder_start_token_id = words - 1
    with torch.no_grad():  # tokens depend on frames
        model.encoder_projector.weight.mul_(8)
        model.joint.head.bias[-1] += 3
        model.joint.head.bias[1] -= 50  # `generate` fills its result with this one
    extractor = transformers.NemotronAsrStreamingFeatureExtractor(feature_size=80)
    return save(folder, model, extractor, letters_tokenizer("<pad>"))


def sortformer(folder: Path) -> Path:
    """Nemotron's Sortformer for 3 speakers, with 12 kept frames and a queue of 6."""
    torch.manual_seed(0)
    config = transformers.Nemotron3DiarizationConfig(
        audio_config={
            "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_mel_bins": 8, "subsampling_factor": 2, "max_position_embeddings": 200},
        head_config={"hidden_size": 8, "num_speakers": 3, "audio_hidden_size": 16, "subsampling_factor": 2},
        streaming_config={
            "fifo_length": 6, "speaker_cache_update_period": 4, "speaker_cache_length": 12, "num_speakers": 3,
            "subsampling_factor": 2},
        chunk_length=3, chunk_right_context=2,
    )  # fmt: skip
    model = drawn_model(transformers.Nemotron3DiarizationForAudioFrameClassification(config))
    with torch.no_grad():  # the speakers are heard and not heard
        model.silence_embeds.normal_(generator=torch.Generator().manual_seed(3))
        model.classifier.out_proj.weight.mul_(6)
    return save(folder, model, transformers.NemotronAsrStreamingFeatureExtractor(feature_size=8))
