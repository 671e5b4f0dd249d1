"""Example inputs for a model: its own, or those that a user gives in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.commands.arrays import read_example
from patcomp.commands.common import UsageError
from patcomp.commands.packages import reader_of
from patcomp.commands.subjects import Subject, subject_of

if TYPE_CHECKING:
    from patcomp import AIProgram
    from patcomp.conversion.source import ModelSource

_MOST = 64
"""The most examples of a folder."""
_TEXTS = (".txt", ".md", ".jsonl")
_OF_FOLDERS = (Subject.FOLDER, Subject.NAME)

Text = tuple[str, ...]
"""A text, or a pair of texts."""


def examples_given(given: str, model: str, source: ModelSource, program: AIProgram) -> list[Any]:
    """Example inputs of a function: `inputs`, the model's own, or at most 64 of a folder.

    A folder has files of `numpy.savez`, pictures, or for the model of a folder with a tokenizer texts: one in each
    `.txt` and `.md`, and one in each line of `.jsonl`.

    Raises:
        UsageError: there is no folder, a file is none of these, or the function takes other inputs.
        PatcompError: the folder of the model has no tokenizer.
    """
    if given == "inputs":
        return [source.inputs_for(program)]
    folder = Path(given)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {given}; give one with examples (.npz, .png, .txt, .jsonl), or inputs")
    files = sorted(each for each in folder.iterdir() if each.is_file() and not each.name.startswith("."))
    texts = [text for each in files if each.suffix.lower() in _TEXTS for text in _texts_in(each)]
    others = [each for each in files if each.suffix.lower() not in _TEXTS]
    if not texts:
        signature = program.signature(source.entry)
        return [read_example(each, signature) for each in others[:: max(1, -(-len(others) // _MOST))]]
    if others:
        raise UsageError(f"{given} has texts, and {others[0].name} beside them; give a folder of one kind of examples")
    found = subject_of(model, "compress", (Subject.FUNCTION, Subject.PROGRAM, Subject.ONNX, *_OF_FOLDERS))
    if found not in _OF_FOLDERS:
        raise UsageError(f"{given} has texts, and {model} is {found}, without a tokenizer; give the inputs as .npz")
    chosen = texts[:: max(1, -(-len(texts) // _MOST))]
    return reader_of(found).inputs_of_texts(model, chosen, program, source.entry)


def _texts_in(file: Path) -> list[Text]:
    """The texts of a file.

    Raises:
        UsageError: a line of a `.jsonl` is no text.
    """
    if file.suffix.lower() != ".jsonl":
        return [(file.read_text(errors="replace").strip(),)]
    return [_text_in(line, f"{file}:{number}") for number, line in enumerate(file.open(errors="replace"), 1)
            if line.strip()]  # fmt: skip


def _text_in(line: str, place: str) -> Text:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    given = [value.get(name) for name in ("text", "text_pair") if name in value] if isinstance(value, dict) else [value]
    found = [each for each in given if isinstance(each, str)]
    if not found or len(found) < len(given):
        raise UsageError(
            f'{place} must be a JSON string, or {{"text": ...}} with a "text_pair" beside it for two texts'
        )
    return tuple(found)
