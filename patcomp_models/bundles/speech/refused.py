"""The models of speech of transformers that become no bundle, with the reason."""

from __future__ import annotations

from pathlib import Path

from patcomp_models.errors import BundleError

_JOINED = "no bundle joins its encoder of sound with its language model yet"
_DELAYED = "its tokens of several codebooks are delayed against each other"

RECOGNISERS = {
    "FunAsrNanoForConditionalGeneration": _JOINED,
    "GraniteSpeechForConditionalGeneration": _JOINED,
    "GraniteSpeechPlusForConditionalGeneration": _JOINED,
    "KyutaiSpeechToTextForConditionalGeneration": "its language model reads the codes of a codec beside its tokens; "
    "its codec becomes a bundle with --kind streaming_codec",
    "OmniASRForConditionalGeneration": _JOINED,
    "Pop2PianoForConditionalGeneration": "its processor needs the beats of the music from another package",
    "Qwen3ASRForConditionalGeneration": _JOINED,
    "VibeVoiceAsrForConditionalGeneration": "generate adds new random numbers to what it has heard",
    "VoxtralForConditionalGeneration": _JOINED,
    "VoxtralRealtimeForConditionalGeneration": "its language model hears a piece of the recording beside each token",
}
"""Those that recognise speech, or write the notes of music."""

SPEAKERS = {
    "CsmForConditionalGeneration": "its decoder runs inside of each step",
    "DiaForConditionalGeneration": _DELAYED,
    "FastSpeech2ConformerModel": "its length regulator makes sizes that depend on durations",
    "FastSpeech2ConformerWithHifiGan": "its length regulator makes sizes that depend on durations",
    "GradiumPhononTTSForConditionalGeneration": "no bundle has the form of its loop yet",
    "HiggsAudioV2ForConditionalGeneration": _DELAYED,
    "MusicgenForConditionalGeneration": _DELAYED,
    "MusicgenMelodyForConditionalGeneration": _DELAYED,
    "PocketTTSForConditionalGeneration": "a flow of random numbers makes each of its frames; its codec becomes a "
    "bundle of its own",
    "Qwen2_5OmniForConditionalGeneration": "a second language model speaks what the first one thinks",
    "Qwen3OmniMoeForConditionalGeneration": "a second language model speaks what the first one thinks",
    "SeamlessM4TForTextToSpeech": "a second decoder makes units of sound of the text's hidden states",
    "SeamlessM4Tv2ForTextToSpeech": "a second decoder makes units of sound of the text's hidden states",
    "VibeVoiceForConditionalGeneration": "a diffusion of random numbers makes each of its frames",
}
"""Those that make sound."""


def not_a_bundle(folder: Path, name: str, reason: str) -> BundleError:
    """The error for a folder of such a model."""
    return BundleError(
        f"{str(folder)!r} holds {name}, which becomes no bundle, because {reason}; export its parts by "
        "FILE.py:FUNCTION, a function that returns a module and its inputs"
    )
