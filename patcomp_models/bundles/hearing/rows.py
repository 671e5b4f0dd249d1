"""Which language models hear, and what is particular to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from patcomp_models.bundles.hearing.block_attention import GraniteEncoder
from patcomp_models.bundles.hearing.encoders import ChunkEncoder, Encoder, MergedEncoder, NoisyEncoder, PlacedEncoder
from patcomp_models.bundles.hearing.realtime import CodecEncoder, RealtimeEncoder, with_plain_table, without_sound
from patcomp_models.language.hearing import READ, SAMPLES


@dataclass(frozen=True)
class HearingRow:
    """What is particular to a type.

    Attributes:
        mask: the argument for the mask of frames; empty for a model without.
        frames: how many frames a window has, from the configuration; None if a recording is one window of any length.
        axis: of the frames in what the encoder reads.
        bins: of the features of a frame, from the configuration.
        is_cut: whether a longer recording is several windows.
        projector: the module whose output are the features.
        encoder: its class.
        read: what the encoder reads, by the name that it has in the processor's result.
        step: the number of frames is a multiple of it, of which each is a token; 1 for any number.
        fewest, example: how many steps a recording of any length has at least, and in an example.
        is_added: whether the features are added to the embeddings of all tokens, instead of taking the place of some.
        language: the model without its encoder.
        is_window_of_cache: whether the cache of transformers alone keeps the sliding window, and its mask does not.
    """

    mask: str = "input_features_mask"
    frames: Callable[[Any], int] | None = lambda config: 2 * config.audio_config.max_source_positions
    axis: int = 2
    bins: Callable[[Any], int] = lambda config: config.audio_config.num_mel_bins
    is_cut: bool = True
    projector: str = "multi_modal_projector"
    encoder: type[Encoder] = Encoder
    read: str = READ
    step: Callable[[Any], int] = lambda config: 1
    fewest: int = 2
    example: int = 452
    is_added: bool = False
    language: Callable[[Any], Any] = lambda model: model
    is_window_of_cache: bool = False


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
        "", frames=None, bins=lambda config: 1, read=SAMPLES, fewest=_TWO_FRAMES, example=6452
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
