"""SAM's models of transformers as functions of the tensors that Swift passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.sam3.modeling_sam3 import Sam3VisionEncoderOutput


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


class SegmentByText(nn.Module):
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
        mask = _attended(input_ids, self.end).to(torch.int64)
        return _results(self.model(pixel_values=pixel_values, input_ids=input_ids, attention_mask=mask))


class ImageEncode(nn.Module):
    """Features of the patches of an image, (1, width, 1, patches).

    Args:
        model: SAM 3.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.backbone = model.vision_encoder.backbone

    def forward(self, pixel_values: Tensor) -> Tensor:
        features: Tensor = self.backbone(pixel_values).last_hidden_state
        return features.mT.unsqueeze(2)


class TextEncode(nn.Module):
    """Features of a text, (1, width + 1, 1, length); the last channel is 1 for tokens that are no padding.

    Args:
        model: SAM 3.
        end: as for `SegmentByText`.
    """

    def __init__(self, model: Any, end: int):
        super().__init__()
        self.encoder, self.projection, self.end = model.text_encoder, model.text_projection, end

    def forward(self, input_ids: Tensor) -> Tensor:
        attended = _attended(input_ids, self.end)
        hidden = self.encoder(input_ids=input_ids, attention_mask=attended.to(torch.int64)).last_hidden_state
        features: Tensor = self.projection(hidden)
        return torch.cat([features, attended[..., None].to(features.dtype)], -1).mT.unsqueeze(2)


class DetectByText(nn.Module):
    """Everything that a text names, from the features of the image and of the text.

    Args:
        model: SAM 3.
        side: of the square of patches.
    """

    def __init__(self, model: Any, side: int):
        super().__init__()
        self.model, self.side = model, side

    def forward(self, backbone_features: Tensor, text_features: Tensor) -> tuple[Tensor, ...]:
        states, positions = self.model.vision_encoder.neck(
            backbone_features.unflatten(3, (self.side, self.side))[:, :, 0]
        )
        text = text_features[:, :, 0].mT
        return _results(
            self.model(
                vision_embeds=Sam3VisionEncoderOutput(fpn_hidden_states=states, fpn_position_encoding=positions),
                text_embeds=BaseModelOutputWithPooling(pooler_output=text[..., :-1]),
                attention_mask=text[..., -1] > 0.5,
            )
        )


def _attended(ids: Tensor, end: int) -> Tensor:
    """The mask of a text's tokens up to and including the first end token; the rest is padding."""
    is_end = (ids == end).to(torch.int32)
    return is_end.cumsum(-1) - is_end == 0


def _results(found: Any) -> tuple[Tensor, ...]:
    return found.pred_masks, found.pred_boxes, found.pred_logits, found.presence_logits, found.semantic_seg
