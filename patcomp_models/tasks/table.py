"""The tasks whose models are converted from a folder: one entry each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patcomp_models.tasks.entries import Entry, whole_entries
from patcomp_models.tasks.pictures import detection, video
from patcomp_models.tasks.towers import two_towers

_OWN = "{}"
"""Each model is loaded by its own class."""


@dataclass(frozen=True)
class Task:
    """What models of a kind are for, and how they are exported."""

    name: str
    auto: str
    """The class of transformers that loads them; with `{}`, the class of the model itself, and its package."""
    classes: tuple[str, ...]
    """The ends of the names of their classes, or whole names."""
    entries: Callable[[Any, Path], list[Entry]]
    """The functions that are exported of a model, which the folder may describe further."""
    heads: tuple[str, ...] = ()
    """Weights of the folder that the task leaves out, or that the folder may lack."""


def _speech(model: Any, folder: Path) -> list[Entry]:
    from patcomp_models.tasks.sequences import speech  # it imports transformers

    return speech(model, folder)


def _text_to_text(model: Any, folder: Path) -> list[Entry]:
    from patcomp_models.tasks.sequences import text_to_text

    return text_to_text(model, folder)


def _image_to_text(model: Any, folder: Path) -> list[Entry]:
    from patcomp_models.tasks.sequences import image_to_text

    return image_to_text(model, folder)


def _embedding(model: Any, folder: Path) -> list[Entry]:
    from patcomp_models.tasks.sentences import embedding

    return embedding(model, folder)


def _boxes(model: Any, folder: Path) -> list[Entry]:
    from patcomp_models.tasks.boxes import boxes

    return boxes(model, folder)


def _rerank(model: Any, folder: Path) -> list[Entry]:
    from patcomp_models.tasks.sentences import rerank

    return rerank(model, folder)


def _time_series(model: Any, folder: Path) -> list[Entry]:
    from patcomp_models.tasks.time_series import time_series

    return time_series(model, folder)


def _codec(model: Any, folder: Path) -> list[Entry]:
    from patcomp_models.tasks.codecs import codec

    return codec(model, folder)


TASKS = (
    Task("image classification", "AutoModelForImageClassification", ("ForImageClassification",), whole_entries),
    Task("semantic segmentation", "AutoModelForSemanticSegmentation", ("ForSemanticSegmentation",), whole_entries),
    Task("text detection", "AutoModelForObjectDetection", ("DetForObjectDetection",), whole_entries),
    Task("text recognition", "AutoModelForTextRecognition", ("ForTextRecognition",), whole_entries),
    Task("object detection", "AutoModelForObjectDetection", ("ForObjectDetection",), detection),
    Task(
        "universal segmentation",
        "AutoModelForUniversalSegmentation",
        ("ForUniversalSegmentation", "ForInstanceSegmentation"),
        whole_entries,
    ),
    Task("image segmentation", "AutoModelForImageSegmentation", ("DetrForSegmentation",), whole_entries),
    Task("depth estimation", "AutoModelForDepthEstimation", ("ForDepthEstimation",), whole_entries),
    Task("pose estimation", "AutoModelForPoseEstimation", ("ForPoseEstimation",), whole_entries),
    Task("keypoint detection", "AutoModelForKeypointDetection", ("ForKeypointDetection",), whole_entries),
    Task("image matting", "AutoModelForImageMatting", ("ForImageMatting",), whole_entries),
    Task("super resolution", "AutoModelForImageToImage", ("ForImageSuperResolution",), whole_entries),
    Task("video classification", "AutoModelForVideoClassification", ("ForVideoClassification",), video),
    Task("text classification", "AutoModelForSequenceClassification", ("ForSequenceClassification",), whole_entries),
    Task("token classification", "AutoModelForTokenClassification", ("ForTokenClassification",), whole_entries),
    Task("masked words", "AutoModelForMaskedLM", ("ForMaskedLM",), whole_entries),
    Task("two towers", "AutoModel", ("CLIPModel", "SiglipModel", "ClapModel"), two_towers),
    Task("speech recognition", "AutoModelForSpeechSeq2Seq", ("WhisperForConditionalGeneration",), _speech),
    Task("image to text", _OWN, ("VisionEncoderDecoderModel",), _image_to_text),
    Task("text to text", "AutoModelForSeq2SeqLM", ("T5ForConditionalGeneration",), _text_to_text),
    Task(
        "time series prediction",
        _OWN,
        (
            "TimesFmModelForPrediction",
            "TimesFm2_5ModelForPrediction",
            "PatchTSTForPrediction",
            "PatchTSMixerForPrediction",
            "TimeSeriesTransformerForPrediction",
            "InformerForPrediction",
            "AutoformerForPrediction",
        ),
        _time_series,
    ),
    Task("time series prediction", "chronos.chronos_bolt.{}", ("ChronosBoltModelForForecasting",), _time_series),
    Task("time series prediction", "chronos.{}", ("Chronos2Model",), _time_series),
    Task(
        "time series classification",
        _OWN,
        ("PatchTSTForClassification", "PatchTSMixerForTimeSeriesClassification"),
        _time_series,
    ),
    Task("time series regression", _OWN, ("PatchTSTForRegression", "PatchTSMixerForRegression"), _time_series),
    Task("audio codec", "AutoModel", ("EncodecModel", "DacModel"), _codec),
    Task("feature extraction", "AutoModel", ("Model",), whole_entries),
)
"""The tasks; the first one whose class fits is taken."""

HEADS = ("lm_head.*", "score.*", "classifier.*", "cls.*", "pooler.*")
"""Weights of heads, which the model of an embedding has no place for, or lacks."""

CHOSEN = ("embedding", "rerank", "boxes")
"""The tasks that only the user chooses, by name."""


def task_of(architecture: str, chosen: str | None = None) -> Task | None:
    """The task of a model class.

    Args:
        architecture: the class.
        chosen: one of `CHOSEN`, or None.
    """
    if chosen == "embedding":
        return Task("embedding", "AutoModel", (), _embedding, HEADS)
    if chosen == "rerank":
        is_classifier = architecture.endswith("ForSequenceClassification")
        auto = "AutoModelForSequenceClassification" if is_classifier else "AutoModelForCausalLM"
        return Task("reranking", auto, (), _rerank)
    if chosen == "boxes":
        return Task("object detection", "AutoModelForObjectDetection", (), _boxes)
    return next((task for task in TASKS if architecture.endswith(task.classes)), None)
