"""`patcomp transcribe`: the text of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from patcomp.commands.common import AsJson, print_json, require_transformers, tell
from patcomp.commands.subjects import Subject, subject_of


def transcribe(
    bundle: Annotated[Path, typer.Argument(help="The folder of a bundle of a model that recognises speech.")],
    recording: Annotated[Path, typer.Argument(help="A WAVE file of whole numbers (PCM), at the model's rate.")],
    language: Annotated[
        str | None, typer.Option(help="Whisper: the language of the text, such as de, instead of the bundle's.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Whisper: transcribe or translate, instead of the bundle's.")] = None,
    json: AsJson = False,
) -> None:
    """Write the text of a recording, by a bundle on this machine's Core AI runtime; for checks, not for speed.

    $ patcomp transcribe bundles/whisper speech.wav --language de
    """
    subject_of(str(bundle), "transcribe", (Subject.BUNDLE,))
    require_transformers("a transcription")
    from patcomp_models.checkpoints.json_files import metadata_in

    metadata_in(bundle)  # before PyTorch is imported
    from patcomp_models.bundles import transcribe as transcribed

    made = transcribed(bundle, recording, language=language, task=task)
    if json:
        print_json({"text": made.text, "tokens": made.tokens})
    else:
        tell(made.text)
