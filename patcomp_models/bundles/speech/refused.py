"""The models of speech of transformers that become no bundle, with the reason."""

from __future__ import annotations

from pathlib import Path

from patcomp_models.errors import BundleError

RECOGNISERS = {
    "Nemotron3_5TranscribeForConditionalGeneration": "its encoder reads pieces that see those around them, beside a "
    "second encoder that tells speakers apart",
    "Pop2PianoForConditionalGeneration": "its processor needs the beats of the music from another package",
}
"""Those that recognise speech, or write the notes of music."""

SPEAKERS = {
    "Qwen2_5OmniForConditionalGeneration": "a second language model speaks what the first one thinks",
    "Qwen3OmniMoeForConditionalGeneration": "a second language model speaks what the first one thinks",
    "SeamlessM4TForTextToSpeech": "a second model makes units of sound of the hidden "
    "states of the text that the first one writes",
    "SeamlessM4Tv2ForTextToSpeech": "a second model makes units of sound of the hidden "
    "states of the text that the first one writes",
}
"""Those that make sound."""


def not_a_bundle(folder: Path, name: str, reason: str) -> BundleError:
    """The error for a folder of such a model."""
    return BundleError(
        f"{str(folder)!r} holds {name}, which becomes no bundle, because {reason}; export its parts by "
        "FILE.py:FUNCTION, a function that returns a module and its inputs"
    )
