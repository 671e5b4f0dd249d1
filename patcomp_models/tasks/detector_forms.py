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
_OF_QUERIES = ("pred_masks", "pred_keypoints")


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
        is_turned: whether boxes are turned by an angle.
        of_boxes: the names of what the model finds of each box besides.
        of_image: the names of what it finds of the image.
    """

    in_pixels, are_corners, is_of_best_class, clips_first, needs_none = False, False, True, False, False
    is_turned = False
    stride: float | None = None
    of_boxes: tuple[str, ...] = ()
    of_image: tuple[str, ...] = ()

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    @abstractmethod
    def found(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Logits (1, boxes, classes), boxes (1, boxes, 4), then `of_boxes` (1, boxes, ...) and `of_image`."""

    def scores(self, logits: Tensor) -> Tensor:
        """The probability of each class."""
        return logits.sigmoid()


class Queries(Detector):
    """A model with a box for each query, in its output by name.

    Args:
        model: takes pixels.
        names: of logits and boxes.
        classes: their number, if it is known; one more logit stands for no object.
        of_boxes: the names of further outputs with a row for each query.
    """

    def __init__(self, model: nn.Module, names: tuple[str, str], classes: int | None, of_boxes: tuple[str, ...] = ()):
        super().__init__(model)
        self.names, self.classes, self.of_boxes = names, classes, of_boxes

    def found(self, pixels: Tensor) -> tuple[Tensor, ...]:
        made = self.model(pixels)
        return tuple(made[name] for name in (*self.names, *self.of_boxes))

    def scores(self, logits: Tensor) -> Tensor:
        count = logits.shape[-1]
        if self.classes is None or count not in (self.classes, self.classes + 1):
            raise PatcompError(
                f"the model has {count} logits for {self.classes or 'an unknown number of'} classes, which does not "
                "say what scores are; leave nms= out, and compute scores in the app"
            )
        return logits.sigmoid() if count == self.classes else logits.softmax(-1)[..., :-1]


class OfHead(Detector):
    """YOLO of ultralytics for boxes, masks, poses or turned boxes; boxes and points are in pixels.

    The last channels of a box are what the task adds: coefficients of masks, of which the sum of the image's
    `prototypes` with these weights is a mask; points of a pose; or the angle of the box.

    Args:
        model: takes pixels.
        task: the name that the head has for what the task adds, if it adds something.
    """

    in_pixels = True
    stride = 7680.0

    def __init__(self, model: Any, task: str | None):
        super().__init__(model)
        self.of_boxes = () if task is None else (OF_TASKS[task],)
        self.of_image = ("prototypes",) if task == "mask_coefficient" else ()
        self.is_turned = task == "angle"
        self.points = model.model[-1].kpt_shape if task == "kpts" else None

    def channels(self, pixels: Tensor) -> tuple[Tensor, Any, list[Tensor]]:
        """The channels of boxes, the head's own outputs, and those of the image."""
        made, raw = self.model(pixels)
        boxes, *of_image = made if isinstance(made, tuple) else (made,)
        return boxes, raw, of_image

    def rows(self, logits: Tensor, channels: Tensor, of_image: list[Tensor]) -> tuple[Tensor, ...]:
        """Logits, boxes and the others; `channels` is (1, boxes, 4 + classes + those of the task)."""
        others = channels[..., 4 + logits.shape[-1] :]
        further = [others] if self.points is None else [others.unflatten(-1, self.points)]
        return logits, channels[..., :4], *(further if self.of_boxes else ()), *of_image


class Anchors(OfHead):
    """A head with the boxes of a cell of the image for each size."""

    def found(self, pixels: Tensor) -> tuple[Tensor, ...]:
        boxes, raw, of_image = self.channels(pixels)
        return self.rows(raw.get("one2many", raw)["scores"].mT, boxes.mT, of_image)


class OneToOne(OfHead):
    """A head that gives one box for each object."""

    needs_none = True

    def __init__(self, model: Any, task: str | None):
        super().__init__(model, task)
        self.are_corners = not self.is_turned
        model.model[-1].postprocess = lambda boxes: boxes  # leaves the others out; the model is a copy

    def found(self, pixels: Tensor) -> tuple[Tensor, ...]:
        boxes, raw, of_image = self.channels(pixels)
        return self.rows(raw["one2one"]["scores"].mT, boxes, of_image)


OF_TASKS = {"mask_coefficient": "mask_coefficients", "kpts": "keypoints", "angle": "angles"}
"""What heads of ultralytics find besides boxes and classes, and how outputs of programs are named."""


class DecoderQueries(Detector):
    """RT-DETR of ultralytics."""

    needs_none = True

    def found(self, pixels: Tensor) -> tuple[Tensor, ...]:
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

    def found(self, pixels: Tensor) -> tuple[Tensor, ...]:
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
        logits, boxes, *_ = _tried(found, pixels)
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
                queries = made[names[1]].shape[1]
                of_boxes = tuple(each for each in _OF_QUERIES if each in made)
                if all(isinstance(made[each], Tensor) and made[each].shape[1] == queries for each in of_boxes):
                    return Queries(own, names, _classes_of(model), of_boxes)
                return None
        if {"predictions", "raw_outputs"} <= made.keys() and isinstance(made["predictions"], Tensor):
            parts = [each[:, 4 - made["predictions"].shape[1] :].flatten(2) for each in made["raw_outputs"]]
            if torch.allclose(torch.cat(parts, 2).sigmoid(), made["predictions"][:, 4:], atol=1e-6):
                return Predictions(own, "E2E" in type(own).__name__)
        return None
    if not (isinstance(made, tuple) and len(made) == 2):
        return None
    raw: Any
    first, raw = made
    boxes = first[0] if isinstance(first, tuple) else first  # with the prototypes of masks
    if not isinstance(boxes, Tensor):
        return None
    if isinstance(raw, Mapping):
        one_to_one: Any = raw.get("one2one")
        raw = raw.get("one2many") or raw
        task = next((each for each in OF_TASKS if each in (one_to_one or raw)), None)
        further = 0 if task is None else (one_to_one or raw)[task].shape[1]
        if one_to_one is not None and boxes.shape[-1] == 6 + further:
            return OneToOne(own, task)
        if "scores" in raw and boxes.shape[1] == 4 + raw["scores"].shape[1] + further:
            return Anchors(own, task)
    elif isinstance(raw, tuple) and len(raw) == 5 and boxes.shape[-1] == 6:
        return DecoderQueries(own)
    return None


def _tried(detector: Detector, pixels: Tensor) -> tuple[Tensor, ...]:
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
