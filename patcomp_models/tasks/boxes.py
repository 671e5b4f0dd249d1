"""Detectors with scores, labels and boxes, as the image processor of their folder makes them of the model's outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoImageProcessor
from transformers.image_transforms import center_to_corners_format

from patcomp.errors import PatcompError
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.pictures import detection

BOX_OUTPUTS = ("scores", "labels", "boxes")


class BoxDetector(nn.Module):
    """A detector that takes an image.

    Args:
        model: of transformers.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model


class BestClass(BoxDetector):
    """A box for each query: its class is the most probable one but the last, which stands for no object (DETR, YOLOS,
    Table Transformer)."""

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        result = self.model(pixel_values=pixel_values)
        scores, labels = result.logits.softmax(-1)[..., :-1].max(-1)
        return scores, labels.int(), center_to_corners_format(result.pred_boxes)


class BestPairs(BoxDetector):
    """The most probable pairs of a query and a class, by their scores (Deformable DETR, RT-DETR, D-FINE)."""

    def __init__(self, model: nn.Module, count: int):
        super().__init__(model)
        self.count = count

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        result = self.model(pixel_values=pixel_values)
        classes = result.logits.shape[-1]
        scores, pairs = result.logits.sigmoid().flatten(1).topk(self.count)
        query = pairs.div(classes, rounding_mode="floor")[..., None].expand(-1, -1, 4)
        return scores, (pairs % classes).int(), center_to_corners_format(result.pred_boxes).gather(1, query)


def boxes(model: Any, folder: Path) -> list[Entry]:
    """A detector's scores, labels and boxes.

    Which of the two forms its image processor computes is found out by comparing with it.

    Raises:
        PatcompError: the folder has no image processor for detectors, or it computes something else.
    """
    (entry,) = detection(model, folder)
    try:
        processor: Any = AutoImageProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, ImportError) as error:
        raise PatcompError(
            f"{str(folder)!r} has no image processor, which says what scores are ({str(error).splitlines()[0]}); save "
            "the processor of the model there, or leave the task out"
        ) from error
    if not hasattr(processor, "post_process_object_detection"):
        raise PatcompError(f"{type(processor).__name__} makes no boxes of a detector's outputs; leave the task out")
    pixels = entry.inputs["pixel_values"]
    with torch.no_grad():
        found = model(pixel_values=pixels)
        # a threshold that every score passes
        (wanted,) = processor.post_process_object_detection(found, threshold=-1.0, target_sizes=None)
        count = min(len(wanted["scores"]), found.logits[0].numel())
        for module in (BestClass(model), BestPairs(model, count)):
            if all(_same(made[0], wanted[name]) for made, name in zip(module(pixels), BOX_OUTPUTS, strict=True)):
                return [replace(entry, module=module.eval(), outputs=BOX_OUTPUTS)]
    raise PatcompError(
        f"{type(processor).__name__} computes other scores or boxes than the most probable class of each query, or the "
        "most probable classes of all; leave the task out, and choose the boxes in the app"
    )


def _same(made: Tensor, wanted: Tensor) -> bool:
    return made.shape == wanted.shape and torch.allclose(made.double(), wanted.double(), rtol=1e-3, atol=1e-4)
