"""Which language models hear, and what is particular to each."""

from __future__ import annotations

from collections.abc import Mapping

from patcomp_models.bundles.hearing.block_attention import GraniteEncoder
from patcomp_models.bundles.hearing.encoders import NoisyEncoder, PlacedEncoder
from patcomp_models.bundles.hearing.realtime import CodecEncoder, RealtimeEncoder, with_plain_table, without_sound
from patcomp_models.language.hearing import SAMPLES
from patcomp_models.language.sound_encoders import ChunkEncoder, HearingRow, MergedEncoder

_GRANITE = HearingRow(
    "", frames=None, axis=1, bins=lambda config: config.encoder_config.input_dim, encoder=GraniteEncoder
)
_TWO_FRAMES = 720
"""Samples of OmniASR."""
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
    "KyutaiSpeechToTextForConditionalGeneration": HearingRow(
        "", frames=None, bins=lambda config: config.codec_config.audio_channels, read=SAMPLES, encoder=CodecEncoder,
        step=lambda config: config.frame_size, example=5, is_added=True, language=with_plain_table,
        is_window_of_cache=True,
    ),
    "MossTranscribeDiarizeForConditionalGeneration": HearingRow("", encoder=MergedEncoder),
    "MusicFlamingoForConditionalGeneration": HearingRow(encoder=PlacedEncoder),
    "OmniASRForConditionalGeneration": HearingRow(
        "", frames=None, bins=lambda config: 1, read=SAMPLES, fewest_steps=_TWO_FRAMES, example=6452
    ),
    "Qwen2AudioForConditionalGeneration": HearingRow("feature_attention_mask"),
    "Qwen3ASRForConditionalGeneration": HearingRow(
        frames=lambda config: config.audio_config.n_window_infer, encoder=ChunkEncoder
    ),
    "VibeVoiceAsrForConditionalGeneration": HearingRow(
        "", frames=None, bins=lambda config: 1, read=SAMPLES, encoder=NoisyEncoder, example=3,
        step=lambda config: config.acoustic_tokenizer_encoder_config.hop_length,
    ),
    "VoxtralForConditionalGeneration": HearingRow(""),
    "VoxtralRealtimeForConditionalGeneration": HearingRow(
        "", frames=None, encoder=RealtimeEncoder, example=57, is_added=True, language=without_sound,
        step=lambda config: config.audio_length_per_tok,
    ),
}  # fmt: skip
"""By the class of transformers."""
