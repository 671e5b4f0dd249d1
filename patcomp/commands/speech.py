"""`patcomp transcribe`: the text of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from patcomp.commands.common import AsJson, print_json, require_transformers


def transcribe(
    bundle: Annotated[Path, typer.Argument(help="The folder of a bundle of a model that recognises speech.")],
    recording: Annotated[Path, typer.Argument(help="A WAVE file of whole numbers (PCM), at the model's rate.")],
    json: AsJson = False,
) -> None:
    """Write the text of a recording, by a bundle on this machine's Core AI runtime; for checks, not for speed."""
    require_transformers("a transcription")
    from patcomp.bundles import transcribe as transcribed

    made = transcribed(bundle, recording)
    if json:
        print_json({"text": made.text, "tokens": made.tokens})
    else:
        print(made.text)
