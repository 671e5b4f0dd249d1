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
    "Qwen2_5OmniForConditionalGeneration": "a second language model speaks what the first one thinks, and "
    "a third model makes sound of it",
    "Qwen3OmniMoeForConditionalGeneration": "a second language model speaks what the first one thinks, and "
    "a third model makes sound of it",
    "SeamlessM4Tv2ForTextToSpeech": "its second model repeats the characters of the text by durations that it "
    "predicts, and makes all units at once",
}
"""Those that make sound."""


def not_a_bundle(folder: Path, name: str, reason: str) -> BundleError:
    """The error for a folder of such a model."""
    return BundleError(
        f"{str(folder)!r} holds {name}, which becomes no bundle, because {reason}; export its parts by "
        "FILE.py:FUNCTION, a function that returns a module and its inputs"
    )
