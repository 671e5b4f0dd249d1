"""SAM's models of transformers as functions of the tensors that Swift passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Points(nn.Module):
    """Masks of points: images in [0, 1] (1, 3, size, size), points (1, queries, points, 2) in pixels, and labels.

    Labels (1, queries, points) are floats: 0 background, 1 foreground, 2 and 3 two corners of a box, -1 no point.

    Args:
        model: SAM, or one of its successors.
        mean: of the channels, which the model subtracts.
        deviation: by which it divides.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, model: Any, mean: Sequence[float], deviation: Sequence[float]):
        super().__init__()
        self.model = model
        if isinstance(model.prompt_encoder.point_embed, nn.ModuleList):
            model.prompt_encoder = WithCorners(model.prompt_encoder)
        self.register_buffer("mean", torch.tensor(mean).reshape(1, 3, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).reshape(1, 3, 1, 1))

    def forward(
        self, batched_images: Tensor, batched_points: Tensor, batched_point_labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        pixels = (batched_images.float() - self.mean) / self.deviation
        found = self.model(
            pixel_values=pixels.to(batched_images.dtype), input_points=batched_points,
            input_labels=batched_point_labels.to(torch.int32), multimask_output=True,
        )  # fmt: skip
        return found.pred_masks, found.iou_scores


class WithCorners(nn.Module):
    """A prompt encoder of the first SAM that knows corners of boxes as points with the labels 2 and 3.

    Its successors do so themselves; transformers takes the boxes of the first SAM as another input.
    """

    def __init__(self, encoder: Any):
        super().__init__()
        self.encoder = encoder

    def forward(self, input_points: Tensor, input_labels: Tensor, **others: Any) -> tuple[Tensor, Tensor]:
        sparse, dense = self.encoder(input_points=input_points, input_labels=input_labels, **others)
        labels = nn.functional.pad(input_labels, (0, sparse.shape[2] - input_labels.shape[2]), value=-1)[..., None]
        for label in (2, 3):
            sparse = torch.where(labels == label, sparse + self.encoder.point_embed[label].weight, sparse)
        return sparse, dense


class Text(nn.Module):
    """Everything that a text names: pixels (1, 3, size, size), normalised, and the ids of the text (1, length).

    Args:
        model: SAM 3.
        end: the token that ends a text, and pads it.
    """

    def __init__(self, model: Any, end: int):
        super().__init__()
        self.model = model
        self.end = end

    def forward(self, pixel_values: Tensor, input_ids: Tensor) -> tuple[Tensor, ...]:
        is_end = (input_ids == self.end).to(torch.int32)
        behind = is_end.cumsum(-1) - is_end > 0  # what follows the first end is padding
        found = self.model(
            pixel_values=pixel_values, input_ids=input_ids, attention_mask=(~behind).to(torch.int64)
        )  # fmt: skip
        return found.pred_masks, found.pred_boxes, found.pred_logits, found.presence_logits, found.semantic_seg
