"""Which language models hear, and what is particular to each."""

from __future__ import annotations

from collections.abc import Mapping

from patcomp_models.bundles.hearing.block_attention import GraniteEncoder
from patcomp_models.language.sound_encoders import ChunkEncoder, HearingRow, MergedEncoder

_GRANITE = HearingRow(
    "", frames=None, axis=1, bins=lambda config: config.encoder_config.input_dim, encoder=GraniteEncoder
)
_STACKED_FRAMES = 500
"""The most frames of Fun-ASR-Nano, of 60 ms each: 30 seconds."""

HEARING_MODELS: Mapping[str, HearingRow] = {
    "AudioFlamingo3ForConditionalGeneration": HearingRow(),
    "FunAsrNanoForConditionalGeneration": HearingRow(
        frames=lambda config: _STACKED_FRAMES, axis=1, is_cut=False,
        bins=lambda config: config.audio_config.num_mel_bins * config.audio_config.num_stacked_frames,
    ),
    "GlmAsrForConditionalGeneration": HearingRow(frames=lambda config: 2 * config.audio_config.max_position_embeddings),
    "GraniteSpeechForConditionalGeneration": _GRANITE,
    "GraniteSpeechPlusForConditionalGeneration": _GRANITE,
    "MossTranscribeDiarizeForConditionalGeneration": HearingRow("", encoder=MergedEncoder),
    "Qwen2AudioForConditionalGeneration": HearingRow("feature_attention_mask"),
    "Qwen3ASRForConditionalGeneration": HearingRow(
        frames=lambda config: config.audio_config.n_window_infer, encoder=ChunkEncoder
    ),
    "VoxtralForConditionalGeneration": HearingRow(""),
}  # fmt: skip
"""By the class of transformers."""
