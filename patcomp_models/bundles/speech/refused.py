"""The models of speech of transformers that become no bundle, with the reason."""

from __future__ import annotations

from pathlib import Path

from patcomp_models.errors import BundleError

_DELAYED = "no bundle has its loop yet, in which the tokens of several codebooks are delayed against each other"

RECOGNISERS = {
    "Nemotron3_5TranscribeForConditionalGeneration": "its encoder reads pieces that see those around them, beside a "
    "second encoder that tells speakers apart",
    "Pop2PianoForConditionalGeneration": "its processor needs the beats of the music from another package",
}
"""Those that recognise speech, or write the notes of music."""

SPEAKERS = {
    "DiaForConditionalGeneration": _DELAYED,
    "FastSpeech2ConformerModel": "its length regulator makes sizes that depend on durations",
    "FastSpeech2ConformerWithHifiGan": "its length regulator makes sizes that depend on durations",
    "GradiumPhononTTSForConditionalGeneration": "no bundle has the form of its loop yet",
    "HiggsAudioV2ForConditionalGeneration": _DELAYED,
    "MusicgenForConditionalGeneration": _DELAYED,
    "MusicgenMelodyForConditionalGeneration": _DELAYED,
    "PocketTTSForConditionalGeneration": "no bundle has its loop yet, in which a flow makes each frame; its codec "
    "becomes a bundle of its own",
    "Qwen2_5OmniForConditionalGeneration": "a second language model speaks what the first one thinks",
    "Qwen3OmniMoeForConditionalGeneration": "a second language model speaks what the first one thinks",
    "SeamlessM4TForTextToSpeech": "a second decoder makes units of sound of the text's hidden states",
    "SeamlessM4Tv2ForTextToSpeech": "a second decoder makes units of sound of the text's hidden states",
    "VibeVoiceForConditionalGeneration": "no bundle has its loop yet, in which a diffusion makes each frame",
}
"""Those that make sound."""


def not_a_bundle(folder: Path, name: str, reason: str) -> BundleError:
    """The error for a folder of such a model."""
    return BundleError(
        f"{str(folder)!r} holds {name}, which becomes no bundle, because {reason}; export its parts by "
        "FILE.py:FUNCTION, a function that returns a module and its inputs"
    )
