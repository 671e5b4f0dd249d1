"""The tasks whose models are converted from a folder: one entry each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patcomp_models.tasks.entries import Entry, whole_entries
from patcomp_models.tasks.heads import choices, named_objects, pairs, sounds
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


def _image_and_text_to_text(model: Any, folder: Path) -> list[Entry]:
    from patcomp_models.tasks.sequences import image_and_text_to_text

    return image_and_text_to_text(model, folder)


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


_HEARING = (
    "Wav2Vec2",
    "Wav2Vec2Conformer",
    "WavLM",
    "Hubert",
    "SEW",
    "SEWD",
    "UniSpeech",
    "UniSpeechSat",
    "Data2VecAudio",
    "Wav2Vec2Bert",
)
"""Models of sounds whose classifiers are named as those of texts."""

_IMAGE_CLASSIFIERS = (
    "ForImageClassification",
    "ForImageClassificationWithTeacher",
    *(f"PerceiverForImageClassification{inputs}" for inputs in ("Learned", "Fourier", "ConvProcessing")),
)
"""Of DeiT and LeViT with a teacher, whose logits are beside the model's own, and of Perceiver."""

_TOWERS = tuple(
    f"{name}Model" for name in ("CLIP", "Siglip", "Clap", "Align", "Blip", "CLIPSeg", "MetaClip2", "GroupViT", "Tipsv2")
)
"""Of CLIP also AltCLIP and Chinese CLIP."""

_SEQUENCES = (
    *(f"{name}ForConditionalGeneration" for name in ("T5", "T5Gemma", "Bart", "Pegasus", "M2M100", "Blenderbot")),
    *(f"{name}ForConditionalGeneration" for name in ("BlenderbotSmall", "Mvp")),
    *("MarianMTModel", "EncoderDecoderModel", "ForTextToText"),
)
"""The ends of the names of models from text to text: of T5 also MT5 and UMT5, of Bart also MBart and PLBart. NLLB is
M2M100."""

_READERS = (
    "VisionEncoderDecoderModel",
    *(f"{name}ForConditionalGeneration" for name in ("PPFormulaNet", "Pix2Struct", "Blip")),
)
"""Models that write what they see in an image: TrOCR and Donut, PP-FormulaNet, Pix2Struct, BLIP."""

TASKS = (
    Task("image classification", "AutoModelForImageClassification", _IMAGE_CLASSIFIERS, whole_entries),
    Task("semantic segmentation", "AutoModelForSemanticSegmentation", ("ForSemanticSegmentation",), whole_entries),
    Task("text detection", "AutoModelForObjectDetection", ("DetForObjectDetection",), whole_entries),
    Task("text recognition", "AutoModelForTextRecognition", ("ForTextRecognition",), whole_entries),
    Task(
        "zero-shot object detection",
        "AutoModelForZeroShotObjectDetection",
        ("OwlViTForObjectDetection", "Owlv2ForObjectDetection"),
        named_objects,
    ),
    Task("object detection", "AutoModelForObjectDetection", ("ForObjectDetection",), detection),
    Task(
        "universal segmentation",
        "AutoModelForUniversalSegmentation",
        ("ForUniversalSegmentation", "ForInstanceSegmentation"),
        whole_entries,
    ),
    Task("image segmentation", "AutoModelForImageSegmentation", ("DetrForSegmentation",), whole_entries),
    Task("depth estimation", "AutoModelForDepthEstimation", ("ForDepthEstimation",), whole_entries),
    Task("normal estimation", "AutoModelForNormalEstimation", ("ForNormalEstimation",), whole_entries),
    Task("pointmap estimation", "AutoModelForPointmapEstimation", ("ForPointmapEstimation",), whole_entries),
    Task("pose estimation", "AutoModelForPoseEstimation", ("ForPoseEstimation",), whole_entries),
    Task("keypoint detection", "AutoModelForKeypointDetection", ("ForKeypointDetection",), whole_entries),
    Task("image matting", "AutoModelForImageMatting", ("ForImageMatting",), whole_entries),
    Task("super resolution", "AutoModelForImageToImage", ("ForImageSuperResolution",), whole_entries),
    Task("video classification", "AutoModelForVideoClassification", ("ForVideoClassification",), video),
    Task(
        "audio classification",
        "AutoModelForAudioClassification",
        ("ForAudioClassification", *(f"{name}ForSequenceClassification" for name in _HEARING)),
        sounds,
    ),
    Task(
        "audio frame classification", "AutoModelForAudioFrameClassification", ("ForAudioFrameClassification",), sounds
    ),
    Task("speaker vectors", "AutoModelForAudioXVector", ("ForXVector",), sounds),
    Task(
        "document question answering",
        "AutoModelForDocumentQuestionAnswering",
        ("LayoutLMForQuestionAnswering", "LayoutLMv2ForQuestionAnswering"),
        pairs,
    ),
    Task(
        "question answering",
        "AutoModelForQuestionAnswering",
        ("ForQuestionAnswering", "ForQuestionAnsweringSimple"),
        pairs,
    ),
    Task("multiple choice", "AutoModelForMultipleChoice", ("ForMultipleChoice",), choices),
    Task("next sentence prediction", "AutoModelForNextSentencePrediction", ("ForNextSentencePrediction",), pairs),
    Task("text classification", "AutoModelForSequenceClassification", ("ForSequenceClassification",), whole_entries),
    Task("token classification", "AutoModelForTokenClassification", ("ForTokenClassification",), whole_entries),
    Task("masked words", "AutoModelForMaskedLM", ("ForMaskedLM",), whole_entries),
    Task("two towers", "AutoModel", _TOWERS, two_towers),
    Task("speech recognition", "AutoModelForSpeechSeq2Seq", ("WhisperForConditionalGeneration",), _speech),
    Task("image to text", _OWN, _READERS, _image_to_text),
    Task(
        "image and text to text",
        "AutoModelForImageTextToText",
        ("Florence2ForConditionalGeneration", "T5Gemma2ForConditionalGeneration"),
        _image_and_text_to_text,
    ),
    Task("text to text", "AutoModelForSeq2SeqLM", _SEQUENCES, _text_to_text),
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

_ONE = "its decoder continues a text by one token in a call, and a prompt has several"
_LOOP = "its experts are called by a loop over those that a run needs"
WITHOUT_TASK = {
    **dict.fromkeys((f"{name}ForConditionalGeneration" for name in ("SwitchTransformers", "NllbMoe")), _LOOP),
    "LEDForConditionalGeneration": "its encoder decides by a mask of global attention, which a run gives",
    "UdopForConditionalGeneration": "its encoder leaves out parts of an image, whose number a run knows",
    "LongT5ForConditionalGeneration": "its encoder cuts a text into blocks, whose number a run knows",
    **dict.fromkeys((f"{name}ForConditionalGeneration" for name in ("ProphetNet", "FSMT")), _ONE),
    "PegasusXForConditionalGeneration": "its encoder cuts a text into blocks, whose number a run knows",
    "ForKeypointMatching": "it keeps as many keypoints as an image has, so no size of its results is known",
    "ForMaskedImageModeling": "it is for training: it fills hidden parts of an image",
    "ForCausalImageModeling": "it draws one point of an image after the other, and a loop of its own has to call it",
    "ForTableRecognition": "it writes a table by a loop, whose length only a run knows",
    "ForPreTraining": "it is for training; take a class with a task",
    "TapasForQuestionAnswering": "it sums over the cells of a table, whose number only a run knows",
    "ViltForQuestionAnswering": "it draws the places of an image at random",
    "GroundingDinoForObjectDetection": "it finds the names of kinds in a text by a loop over its tokens",
    "OmDetTurboForObjectDetection": "it keeps a cache of texts between calls",
    "PromptDepthAnythingForDepthEstimation": "it also takes a map of depths, and without it computes something else",
    "OneFormerForUniversalSegmentation": "it takes the name of a task, as tokens, beside the image",
    "VideoPrismClipModel": "it compares videos with texts, and no function of it has been tried",
    "XCLIPModel": "it changes the embedding of a text by the video, so that no function of the text alone computes it",
    "Siglip2Model": "it takes patches of an image, packed, and their number",
    "Siglip2ForImageClassification": "it takes patches of an image, packed, and their number",
    "Blip2ForImageTextRetrieval": "no function for its image and its text has been tried",
    "ForRetrieval": "it is a vision-language model with a vector for each token, and no function of it has been tried",
    "ForDecision": "it takes options and marks of them beside a text, and no function of it has been tried",
    "BlipForQuestionAnswering": "it writes its answer by a loop; a bundle has one for vision-language models",
}
"""The ends of the names of classes that no task takes, and why."""

_BUNDLES = "becomes a bundle where patcomp has a kind for it; give -o a name without .aimodel, or call convert_bundle"
_WRITERS = (
    *(f"For{task}" for task in ("ConditionalGeneration", "TextToText", "ProteinText2Text", "VisionText2Text")),
    *("ForSpeechToText", "ForBlockDiffusion", "NemotronH_Omni_Reasoning_V3"),
)
ELSEWHERE = {
    **dict.fromkeys(("ForCTC", "ForRNNT", "ForTDT"), f"it recognises speech, and {_BUNDLES}"),
    **dict.fromkeys(_WRITERS, f"it writes by a loop, and {_BUNDLES}"),
    **dict.fromkeys(
        ("ReformerModelWithLMHead", "BertGenerationDecoder"), "it is a language model; give it to patcomp convert-lm"
    ),
    **dict.fromkeys(("ForTextToSpeech", "WithHifiGan"), f"it speaks, and {_BUNDLES}"),
    "Backbone": "it is a part of other models, and has no task; take the folder of a whole model",
}
"""The ends of the names of further classes, read where no task fits: where they belong."""

HEADS = ("lm_head.*", "score.*", "classifier.*", "cls.*", "pooler.*")
"""Weights of heads, which the model of an embedding has no place for, or lacks."""

CHOSEN = ("embedding", "rerank", "boxes")
"""The tasks that only the user chooses, by name."""


def refusal(architecture: str) -> str | None:
    """Why no task takes a model class; None if a task may."""
    tables = (WITHOUT_TASK,) if task_of(architecture) else (WITHOUT_TASK, ELSEWHERE)
    return next((why for table in tables for end, why in table.items() if architecture.endswith(end)), None)


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
