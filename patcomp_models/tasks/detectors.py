"""Detectors given as objects: models of transformers, ultralytics, libreyolo, and others with queries.

logits, pred_boxes = main(pixel_values)
scores, labels, boxes = main(pixel_values), with non-maximum suppression
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from patcomp import AIProgram, TorchConverter
from patcomp.errors import PatcompError, reason_of
from patcomp.targets import Target
from patcomp_models.tasks.boxes import BOX_OUTPUTS
from patcomp_models.tasks.detector_forms import Detector, detector_of
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.folder_to_program import exported_entry


@dataclass(frozen=True)
class Suppression:
    """Non-maximum suppression: of boxes of one class that overlap, the one with the best score stays.

    Attributes:
        scores: boxes with at most this score are left out.
        overlap: boxes whose intersection over union with a better one is larger are left out.
        boxes: how many the program gives; the best ones, and behind them boxes of the score 0.
    """

    scores: float = 0.25
    overlap: float = 0.7
    boxes: int = 300

    def __post_init__(self) -> None:
        for name in ("scores", "overlap"):
            if not 0 <= getattr(self, name) <= 1:
                raise PatcompError(f"Suppression.{name} must be between 0 and 1, got {getattr(self, name)}")
        if self.boxes < 1:
            raise PatcompError(f"Suppression.boxes must be at least 1, got {self.boxes}")


class Sized(nn.Module):
    """A detector of images of one size, in pixels or as bytes.

    Args:
        detector: of pixels.
        size: height and width.
        of_bytes: whether the image is (height, width, 3) of uint8, of which the model takes a 255th.
    """

    sides: Tensor

    def __init__(self, detector: Detector, size: tuple[int, int], of_bytes: bool):
        super().__init__()
        self.detector, self.of_bytes = detector, of_bytes
        height, width = size
        self.register_buffer("sides", torch.tensor([width, height, width, height], dtype=torch.float32))

    def found(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and boxes as the detector has them."""
        return self.detector.found(image.permute(2, 0, 1)[None].float() / 255 if self.of_bytes else image)


class Raw(Sized):
    """Logits, and the centre, width and height of boxes as shares of the image."""

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        logits, boxes = self.found(image)
        if self.detector.are_corners:
            low, high = boxes.split(2, -1)
            boxes = torch.cat([(low + high) / 2, high - low], -1)
        return logits, boxes / self.sides if self.detector.in_pixels else boxes


class Suppressed(Sized):
    """Scores and labels, and left, top, right and bottom of boxes as shares of the image.

    Args:
        suppression: which boxes stay.
        sized: as for `Sized`.
    """

    def __init__(self, suppression: Suppression, *sized: Any):
        super().__init__(*sized)
        self.suppression = suppression

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, boxes = self.found(image)
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
        corners = corners[chosen]
        apart = torch.cat([corners + labels[:, None] * stride, low + _BESIDE.to(low)])
        best, labels, corners = (
            torch.cat([each, each.new_zeros(2, *each.shape[1:])]) for each in (best, labels, corners)
        )
        kept = torch.ops.torchvision.nms(apart, best, self.suppression.overlap)
        corners = corners[kept]
        if self.detector.in_pixels:
            corners = (corners / self.sides).clamp(0, 1)
        return self._filled(best[kept]), self._filled(labels[kept].int()), self._filled(corners)

    def _filled(self, values: Tensor) -> Tensor:
        """As many as the program gives."""
        count = self.suppression.boxes
        return torch.cat([values[:count], values.new_zeros(count, *values.shape[1:])])[:count][None]


_BESIDE = torch.tensor([[-2.0, -2.0, -1.0, -1.0], [-4.0, -4.0, -3.0, -3.0]])
"""Two boxes beside all others, with the score 0, stay: torchvision says to `torch.export` that at least two do."""


def convert_detector(
    model: Any,
    image_size: tuple[int, int],
    *,
    nms: Suppression | None = None,
    image: bool = False,
    target: Literal["cpu", "gpu", "neural_engine"] | Target | None = None,
    converter: TorchConverter | None = None,
    **options: Any,
) -> AIProgram:
    """Convert a detector that is given as an object; it stays as it is.

    Args:
        model: of transformers with `logits` and `pred_boxes`; `YOLO(...)` of ultralytics, or its `.model`; a detector
            of libreyolo or rfdetr; or any module of PyTorch with `pred_logits` and `pred_boxes`.
        image_size: height and width of the image that the program takes.
        nms: for `scores` and `labels` (1, boxes) and `boxes` (1, boxes, 4), corners as shares of the image. Without it
            the outputs are `logits` (1, boxes, classes) and `pred_boxes` (1, boxes, 4), the form of detectors in
            Apple's Swift package.
        image: whether the input is `image` (height, width, 3), bytes in RGB, instead of `pixel_values`; for models that
            take a 255th of them.
        target: a device, as in `TorchConverter.to_coreai`.
        converter: one with own rules or lowerings; by default a new one.
        options: further ones of `TorchConverter.to_coreai`.

    Raises:
        PatcompError: the object is no detector of a known form, or its ops cannot be converted.
    """
    pixels = torch.rand(1, 3, *image_size, generator=torch.Generator().manual_seed(0))
    detector = detector_of(model, pixels)
    if nms is not None and detector.needs_none:
        raise PatcompError(
            f"{type(model).__name__} gives one box for each object, and needs no suppression; leave nms= out"
        )
    if nms is not None:
        _import_torchvision()
        with torch.no_grad():
            detector.scores(detector.found(pixels)[0])  # what it cannot tell is said before the export
    if image and not _takes_a_255th(model, image_size):
        raise PatcompError(
            f"{type(model).__name__} takes other numbers than a 255th of the bytes; leave image= out, and preprocess "
            "in the app"
        )
    given = (pixels[0].permute(1, 2, 0) * 255).round().to(torch.uint8) if image else pixels
    sized = (detector, image_size, image)
    module, outputs = (
        (Raw(*sized), ("logits", "pred_boxes")) if nms is None else (Suppressed(nms, *sized), BOX_OUTPUTS)
    )  # fmt: skip
    module.eval()
    entry = Entry("main", module, {"image" if image else "pixel_values": given}, outputs)
    converter = converter or TorchConverter()
    program = exported_entry(entry)
    _forget_the_least_count(program)
    converter.add_exported_program(program, entry.given, entry.outputs)
    return converter.to_coreai(target=target, **options)


def _forget_the_least_count(program: ExportedProgram) -> None:
    """Erase the assertion of torchvision that at least two boxes stay.

    It holds, by `_BESIDE`. To check it, each run of the program would compute the whole model in PyTorch.
    """
    graph = program.graph
    for kept in (node for node in graph.nodes if node.target == torch.ops.torchvision.nms.default):
        for size in [user for user in kept.users if user.target == torch.ops.aten.sym_size.int]:
            for least in [user for user in size.users if user.target is operator.ge and user.args[1] == 2]:
                for assertion in [each for each in least.users if each.target == torch.ops.aten._assert_scalar.default]:
                    graph.erase_node(assertion)
                graph.erase_node(least)
    program.graph_module.recompile()


def _import_torchvision() -> None:
    """Define `nms`."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError) as error:
        raise PatcompError(f"a suppression needs torchvision, which cannot be used: {reason_of(error)}") from error


def _takes_a_255th(model: Any, size: tuple[int, int]) -> bool:
    """Whether a package gives its model a 255th of the bytes of an image that has the model's size."""
    if type(model).__module__.startswith("ultralytics."):
        return True  # `BasePredictor.preprocess`
    preprocess = getattr(model, "_preprocess", None)
    if preprocess is None or size[0] != size[1]:
        return False
    bytes_ = torch.randint(0, 256, (*size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    made = preprocess(bytes_.numpy(), "rgb", input_size=size[0])[0]
    return made.shape[-2:] == size and torch.allclose(made.reshape(3, *size), bytes_.permute(2, 0, 1) / 255, atol=1e-6)
