"""Detectors given as objects: models of transformers, ultralytics, libreyolo, torchvision, and others with queries.

logits, pred_boxes = main(pixel_values)
scores, labels, boxes = main(pixel_values), with non-maximum suppression
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from patcomp import AIProgram, TorchConverter
from patcomp.errors import PatcompError
from patcomp.targets import Target
from patcomp_models.tasks.boxes import BOX_OUTPUTS
from patcomp_models.tasks.detector_forms import Detector, detector_of
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.folder_to_program import exported_entry
from patcomp_models.tasks.images import from_image
from patcomp_models.tasks.preprocessing import Preprocessing
from patcomp_models.tasks.suppression import Suppression, best_apart, forget_the_least_count, import_torchvision
from patcomp_models.tasks.torchvision_detectors import names_of_torchvision, of_torchvision


class Sized(nn.Module):
    """A detector of images of one size.

    Args:
        detector: of a known form.
        size: height and width.
    """

    sides: Tensor

    def __init__(self, detector: Detector, size: tuple[int, int]):
        super().__init__()
        self.detector = detector
        height, width = size
        self.register_buffer("sides", torch.tensor([width, height, width, height], dtype=torch.float32))

    def shares(self, name: str, values: Tensor) -> Tensor:
        """A further output of each box: points become shares of the image."""
        if name != "keypoints" or not self.detector.in_pixels:
            return values
        return torch.cat([values[..., :2] / self.sides[:2], values[..., 2:]], -1)


class Raw(Sized):
    """Logits, the centre, width and height of boxes as shares of the image, and what else the model finds."""

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        logits, boxes, *others = self.detector.found(pixels)
        if self.detector.are_corners:
            low, high = boxes.split(2, -1)
            boxes = torch.cat([(low + high) / 2, high - low], -1)
        boxes = boxes / self.sides if self.detector.in_pixels else boxes
        names = (*self.detector.of_boxes, *self.detector.of_image)
        return logits, boxes, *map(self.shares, names, others)


class Suppressed(Sized):
    """Scores and labels, left, top, right and bottom of boxes as shares of the image, and what else the model finds.

    Args:
        suppression: which boxes stay.
        sized: as for `Sized`.
    """

    def __init__(self, suppression: Suppression, *sized: Any):
        super().__init__(*sized)
        self.suppression = suppression

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        logits, boxes, *others = self.detector.found(pixels)
        names = self.detector.of_boxes
        further, of_image = [each[0] for each in others[: len(names)]], others[len(names) :]
        scores, corners = self.detector.scores(logits)[0], boxes[0]
        if not self.detector.are_corners:
            middle, sides = corners.split(2, -1)
            corners = torch.cat([middle - sides / 2, middle + sides / 2], -1)
        if self.detector.clips_first:
            corners = corners.clamp(torch.zeros_like(self.sides), self.sides)
            inside = (corners[:, 2:] > corners[:, :2]).all(1, keepdim=True)
            scores = torch.where(inside, scores, 0)
        low = corners.amin()
        stride = self.detector.stride or corners.amax() - low + 1
        if self.detector.is_of_best_class:
            best, labels = scores.max(-1)
            chosen = (best > self.suppression.scores).nonzero()[:, 0]
            best, labels = best[chosen], labels[chosen]
        else:
            chosen, labels = (scores > self.suppression.scores).nonzero().unbind(1)
            best = scores[chosen, labels]
        rows = [labels, *(each[chosen] for each in further)]
        best, corners, labels, *further = best_apart(
            corners[chosen], best, labels, rows, self.suppression.overlap, self.suppression.boxes, (low, stride)
        )
        if self.detector.in_pixels:
            corners = (corners / self.sides).clamp(0, 1)
        found = (best, labels.int(), corners, *map(self.shares, names, further))
        return *(each[None] for each in found), *of_image


def convert_detector(
    model: Any,
    image_size: tuple[int, int],
    *,
    nms: Suppression | None = None,
    image: bool | Preprocessing = False,
    target: Literal["cpu", "gpu", "neural_engine"] | Target | None = None,
    converter: TorchConverter | None = None,
    **options: Any,
) -> AIProgram:
    """Convert a detector that is given as an object; it stays as it is.

    Args:
        model: of transformers with `logits` and `pred_boxes`; `YOLO(...)` of ultralytics, or its `.model`; a detector
            of libreyolo, rfdetr or torchvision; or any module of PyTorch with `pred_logits` and `pred_boxes`.
        image_size: height and width of the image that the program takes.
        nms: for `scores` and `labels` (1, boxes) and `boxes` (1, boxes, 4), corners as shares of the image. Without it
            the outputs are `logits` (1, boxes, classes) and `pred_boxes` (1, boxes, 4), the form of detectors in
            Apple's Swift package; a model of torchvision always gives scores, labels and boxes. Behind these is
            what else it finds, such as masks or points.
        image: whether the input is `image` (height, width, 3), bytes in RGB, instead of `pixel_values`: True for models
            that take a 255th of them, else what happens to the image before, which must not change its size.
        target: a device, as in `TorchConverter.to_coreai`.
        converter: one with own rules or lowerings; by default a new one.
        options: further ones of `TorchConverter.to_coreai`.

    Raises:
        PatcompError: the object is no detector of a known form, or its ops cannot be converted.
    """
    pixels = torch.rand(1, 3, *image_size, generator=torch.Generator().manual_seed(0))
    module, outputs = _with_fixed_outputs(model, pixels, nms)
    entry = Entry("main", module.eval(), {"pixel_values": pixels}, outputs)
    if image is True and not _takes_a_255th(model, image_size):
        raise PatcompError(
            f"{type(model).__name__} takes other numbers than a 255th of the bytes; leave image= out, and preprocess "
            "in the app"
        )
    if image:
        settings = Preprocessing() if image is True else image
        if settings.resize is not None or settings.crop is not None:
            raise PatcompError(
                "boxes are shares of the image that the detector takes; leave resize= and crop= of Preprocessing out"
            )
        entry = from_image(entry, settings, image_size)
    converter = converter or TorchConverter()
    program = exported_entry(entry)
    forget_the_least_count(program)
    converter.add_exported_program(program, entry.given, entry.outputs)
    return converter.to_coreai(target=target, **options)


def _with_fixed_outputs(model: Any, pixels: Tensor, nms: Suppression | None) -> tuple[nn.Module, tuple[str, ...]]:
    """A copy of a detector whose outputs have fixed sizes, and their names."""
    name, (height, width) = type(model).__name__, pixels.shape[2:]
    whole = of_torchvision(model)
    if whole is not None:
        if nms is not None:
            raise PatcompError(
                f"{name} of torchvision suppresses boxes by its own settings (score_thresh, nms_thresh, "
                "detections_per_img, also of its roi_heads); leave nms= out"
            )
        import_torchvision()
        return whole, (*BOX_OUTPUTS, *whole.further)
    detector = detector_of(model, pixels)
    of_all = (*detector.of_boxes, *detector.of_image)
    if nms is None:
        return Raw(detector, (height, width)), ("logits", "pred_boxes", *of_all)
    if detector.needs_none:
        raise PatcompError(f"{name} gives one box for each object, and needs no suppression; leave nms= out")
    if detector.is_turned:
        raise PatcompError(
            f"{name} finds turned boxes, whose overlap is no intersection of rectangles; leave nms= out, and suppress "
            "in the app"
        )
    import_torchvision()
    with torch.no_grad():
        detector.scores(detector.found(pixels)[0])  # what it cannot tell is said before the export
    return Suppressed(nms, detector, (height, width)), (*BOX_OUTPUTS, *of_all)


def _takes_a_255th(model: Any, size: tuple[int, int]) -> bool:
    """Whether a package gives its model a 255th of the bytes of an image that has the model's size."""
    if names_of_torchvision(model):
        return True  # the model itself normalises
    if type(model).__module__.startswith("ultralytics."):
        return True  # `BasePredictor.preprocess`
    preprocess = getattr(model, "_preprocess", None)
    if preprocess is None or size[0] != size[1]:
        return False
    bytes_ = torch.randint(0, 256, (*size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    made = preprocess(bytes_.numpy(), "rgb", input_size=size[0])[0]
    return made.shape[-2:] == size and torch.allclose(made.reshape(3, *size), bytes_.permute(2, 0, 1) / 255, atol=1e-6)
