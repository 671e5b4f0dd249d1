"""Small detectors of torchvision, with random weights that find several boxes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

SIDE = 64


class Levels(nn.Module):
    """A backbone with two levels, of which a pixel is 8 and 16 pixels of the image."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.out_channels: Any = channels
        self.first, self.second = nn.Conv2d(3, channels, 8, 8), nn.Conv2d(channels, channels, 2, 2)

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        low = self.first(pixels)
        return {"0": low, "1": self.second(low)}


def detector(kind: str) -> Any:
    """A model of torchvision by the name of its class."""
    from torchvision.models import detection
    from torchvision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator

    sizes = {"min_size": SIDE, "max_size": 2 * SIDE}
    anchors = AnchorGenerator(((12,), (24,)), ((0.5, 1.0),) * 2)
    torch.manual_seed(0)
    if kind.endswith("RCNN"):
        model = getattr(detection, kind)(
            Levels(), 4, rpn_anchor_generator=anchors, rpn_post_nms_top_n_test=12, rpn_pre_nms_top_n_test=40,
            box_detections_per_img=10, box_score_thresh=0.01, box_nms_thresh=0.3, **sizes,
        )  # fmt: skip
    elif kind == "SSD":
        boxes = DefaultBoxGenerator([[2]] * 2, scales=[0.2, 0.4, 0.6])
        backbone = Levels()
        backbone.out_channels = [8, 8]
        model = detection.ssd.SSD(
            backbone, boxes, (SIDE, SIDE), 4, topk_candidates=30, detections_per_img=10, score_thresh=0.01
        )  # fmt: skip
    else:
        given = AnchorGenerator(((8,), (16,)), ((1.0,),) * 2) if kind == "FCOS" else anchors
        model = getattr(detection, kind)(
            Levels(32), 4, anchor_generator=given, topk_candidates=30, detections_per_img=10, score_thresh=0.01,
            nms_thresh=0.3, **sizes,
        )  # fmt: skip
    for name, weights in model.named_parameters():
        if weights.ndim > 1:
            nn.init.normal_(weights, 0, (2.5 / weights[0].numel()) ** 0.5)
        elif "bias" in name:
            nn.init.normal_(weights, 0, 0.05)
    return model.eval()
