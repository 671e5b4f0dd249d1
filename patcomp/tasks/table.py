"""The tasks whose models are converted from a folder: one entry each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patcomp.tasks.entries import Entry, two_towers, whole


@dataclass(frozen=True)
class Task:
    """What models of a kind are for, and how they are exported."""

    name: str
    auto: str
    """The class of transformers that loads them."""
    classes: tuple[str, ...]
    """The ends of the names of their classes, or whole names."""
    entries: Callable[[Any, Path], list[Entry]]
    """The functions that are exported of a model, which the folder may describe further."""


def _speech(model: Any, folder: Path) -> list[Entry]:
    from patcomp.tasks.sequences import speech  # it imports transformers

    return speech(model, folder)


def _text_to_text(model: Any, folder: Path) -> list[Entry]:
    from patcomp.tasks.sequences import text_to_text

    return text_to_text(model, folder)


TASKS = (
    Task("image classification", "AutoModelForImageClassification", ("ForImageClassification",), whole),
    Task("semantic segmentation", "AutoModelForSemanticSegmentation", ("ForSemanticSegmentation",), whole),
    Task("text classification", "AutoModelForSequenceClassification", ("ForSequenceClassification",), whole),
    Task("token classification", "AutoModelForTokenClassification", ("ForTokenClassification",), whole),
    Task("masked words", "AutoModelForMaskedLM", ("ForMaskedLM",), whole),
    Task("two towers", "AutoModel", ("CLIPModel",), two_towers),
    Task("speech recognition", "AutoModelForSpeechSeq2Seq", ("WhisperForConditionalGeneration",), _speech),
    Task("text to text", "AutoModelForSeq2SeqLM", ("T5ForConditionalGeneration",), _text_to_text),
    Task("feature extraction", "AutoModel", ("Model",), whole),
)
"""The tasks; the first one whose class fits is taken."""


def task_of(architecture: str) -> Task | None:
    """The task of a model class."""
    return next((task for task in TASKS if architecture.endswith(task.classes)), None)
