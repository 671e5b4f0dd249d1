"""The box formats of several packages; a model's format is recognised from its outputs for an example.

None of the packages is imported here.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.errors import PatcompError, reason_of

_QUERIES = (("logits", "pred_boxes"), ("pred_logits", "pred_boxes"))


class Detector(nn.Module):
    """A detector of one image, (1, 3, height, width).

    Attributes:
        in_pixels: whether its boxes are in pixels; otherwise they are shares of the image.
        are_corners: whether a box is left, top, right, bottom; otherwise its centre, width and height.
        is_of_best_class: whether a box has the label of its best class only; otherwise one of each class that passes.
        clips_first: whether boxes are clipped to the image before the suppression, and those outside are left out.
        stride: how far apart boxes of neighbouring classes are moved before the suppression; by default as far as the
            boxes reach.
        needs_none: whether the model gives one box for each object.
    """

    in_pixels, are_corners, is_of_best_class, clips_first, needs_none = False, False, True, False, False
    stride: float | None = None

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    @abstractmethod
    def found(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (1, boxes, classes) and boxes (1, boxes, 4)."""

    def scores(self, logits: Tensor) -> Tensor:
        """The probability of each class."""
        return logits.sigmoid()


class Queries(Detector):
    """A model with a box for each query, in its output by name.

    Args:
        model: takes pixels.
        names: of logits and boxes.
        classes: their number, if it is known; one more logit stands for no object.
    """

    def __init__(self, model: nn.Module, names: tuple[str, str], classes: int | None):
        super().__init__(model)
        self.names, self.classes = names, classes

    def found(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        made = self.model(pixels)
        return made[self.names[0]], made[self.names[1]]

    def scores(self, logits: Tensor) -> Tensor:
        count = logits.shape[-1]
        if self.classes is None or count not in (self.classes, self.classes + 1):
            raise PatcompError(
                f"the model has {count} logits for {self.classes or 'an unknown number of'} classes, which does not "
                "say what scores are; leave nms= out, and compute scores in the app"
            )
        return logits.sigmoid() if count == self.classes else logits.softmax(-1)[..., :-1]


class Anchors(Detector):
    """YOLO of ultralytics: the boxes of a cell of the image for each size, in pixels."""

    in_pixels = True
    stride = 7680.0

    def found(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        boxes, raw = self.model(pixels)
        return raw.get("one2many", raw)["scores"].mT, boxes[:, :4].mT


class OneToOne(Detector):
    """YOLO of ultralytics with a head that gives one box for each object."""

    in_pixels, are_corners, needs_none = True, True, True

    def __init__(self, model: Any):
        super().__init__(model)
        model.model[-1].postprocess = lambda boxes: boxes  # leaves the others out; the model is a copy

    def found(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        boxes, raw = self.model(pixels)
        return raw["one2one"]["scores"].mT, boxes[..., :4]


class DecoderQueries(Detector):
    """RT-DETR of ultralytics."""

    needs_none = True

    def found(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        boxes, logits, *_ = self.model(pixels)[1]
        return logits[-1], boxes[-1]


class Predictions(Detector):
    """YOLO of libreyolo: the corners of boxes in pixels, and a label for each class that passes.

    Args:
        model: takes pixels.
        is_one_to_one: whether it gives one box for each object.
    """

    in_pixels, are_corners, is_of_best_class, clips_first = True, True, False, True

    def __init__(self, model: nn.Module, is_one_to_one: bool):
        super().__init__(model)
        self.needs_none = is_one_to_one

    def found(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        made = self.model(pixels)
        boxes = made["predictions"]
        classes = boxes.shape[1] - 4
        logits = torch.cat([each[:, -classes:].flatten(2) for each in made["raw_outputs"]], 2)
        return logits.mT, boxes[:, :4].mT


def detector_of(model: Any, pixels: Tensor) -> Detector:
    """A copy of a model, in the form that its outputs for an example have.

    Args:
        model: an object of one of the packages.
        pixels: the example.

    Raises:
        PatcompError: the object is no detector, or of no known form.
    """
    inner = model
    while not isinstance(inner, nn.Module) or _predicts(inner):
        if not hasattr(inner, "model"):
            raise PatcompError(
                f"{type(model).__name__} is no detector: it is no module of PyTorch and has none as its attribute model"
            )
        inner = inner.model
    own = copy.deepcopy(inner).float().eval()
    try:
        with torch.no_grad():
            made = own(pixels)
    except Exception as error:  # the code of a model can raise anything
        raise PatcompError(
            f"{type(model).__name__} does not run on an image of {pixels.shape[2]}x{pixels.shape[3]}: "
            f"{reason_of(error)}"
        ) from error
    found = _form_of(model, own, made)
    if found is not None:
        logits, boxes = _tried(found, pixels)
        if boxes.shape == (1, logits.shape[1], 4) and torch.equal(boxes.isfinite(), torch.ones_like(boxes.bool())):
            return found
    raise PatcompError(
        f"{type(model).__name__} gives {_described(made)}, and this is no form of a detector that is known; export a "
        "function of yours that returns logits and pred_boxes, by FILE.py:FUNCTION"
    )


def _predicts(model: Any) -> bool:
    """Whether a module is no network, but an object of ultralytics around one, such as `YOLO(...)`."""
    return any(kind.__module__ == "ultralytics.engine.model" for kind in type(model).__mro__)


def _form_of(model: Any, own: Any, made: Any) -> Detector | None:
    if isinstance(made, Mapping):
        for names in _QUERIES:
            if all(isinstance(made.get(name), Tensor) for name in names):
                return Queries(own, names, _classes_of(model))
        if {"predictions", "raw_outputs"} <= made.keys() and isinstance(made["predictions"], Tensor):
            raw = torch.cat([each[:, 4 - made["predictions"].shape[1] :].flatten(2) for each in made["raw_outputs"]], 2)
            if torch.allclose(raw.sigmoid(), made["predictions"][:, 4:], atol=1e-6):
                return Predictions(own, "E2E" in type(own).__name__)
        return None
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Tensor)):
        return None
    boxes, raw = made
    if isinstance(raw, Mapping):
        if boxes.shape[-1] == 6 and "one2one" in raw:
            return OneToOne(own)
        raw = raw.get("one2many", raw)
        if "scores" in raw and boxes.shape[1] == 4 + raw["scores"].shape[1]:  # more are masks, points or angles
            return Anchors(own)
    elif isinstance(raw, tuple) and len(raw) == 5 and boxes.shape[-1] == 6:
        return DecoderQueries(own)
    return None


def _tried(detector: Detector, pixels: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return detector.found(pixels)


def _classes_of(model: Any) -> int | None:
    """The number of classes that a model of transformers or libreyolo names."""
    named = getattr(getattr(model, "config", None), "num_labels", None) or getattr(model, "nb_classes", None)
    return named if isinstance(named, int) else None


def _described(made: Any) -> str:
    """The outputs of a model, in a few words."""
    if isinstance(made, Tensor):
        return "a tensor of " + "x".join(map(str, made.shape))
    if isinstance(made, Mapping):
        return ", ".join(map(str, list(made)[:6]))
    if isinstance(made, tuple | list):
        return f"{len(made)} results"
    return type(made).__name__
