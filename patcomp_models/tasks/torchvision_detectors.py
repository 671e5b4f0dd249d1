"""Detectors of torchvision with a fixed number of boxes, where torchvision itself has as many as it finds.

The models compute all but two functions themselves, on a copy: which proposals of regions stay, and which boxes. These
take fixed numbers of candidates, and give fixed numbers of boxes, with zeros behind the last one. A proposal of zeros
has no area, so that torchvision leaves the boxes out that its head makes of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.tasks.suppression import best_apart

_Sizes = Sequence[tuple[int, int]]


class OfTorchvision(nn.Module):
    """Scores and labels (1, boxes), and left, top, right and bottom of boxes as shares of the image (1, boxes, 4).

    Args:
        model: a copy, whose methods are replaced here.
    """

    further: tuple[str, ...] = ()
    """The names of what the model finds of each box besides."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def result(self, found: dict[str, Tensor], size: Sequence[int]) -> tuple[Tensor, ...]:
        """What is found in an image of this height and width."""
        sides = found["boxes"].new_tensor([size[1], size[0], size[1], size[0]])
        boxes = found["boxes"] / sides
        values = (found["scores"], found["labels"].int(), boxes, *(found[name] for name in self.further))
        return tuple(each[None] for each in values)


class OneStage(OfTorchvision):
    """RetinaNet, FCOS, SSD and SSDlite.

    Args:
        model: as of `OfTorchvision`.
        candidates: the class's boxes before the suppression.
    """

    def __init__(self, model: Any, candidates: Callable[..., tuple[Tensor, Tensor, Tensor]]):
        super().__init__(model)

        def postprocess(own: Any, outputs: Any, anchors: Any, sizes: _Sizes) -> list[dict[str, Tensor]]:
            first = {name: values[0] if isinstance(values, Tensor) else [each[0] for each in values]
                     for name, values in outputs.items()}  # fmt: skip
            boxes, scores, labels = candidates(own, first, anchors[0])
            boxes = _clipped(boxes, sizes[0])
            return [_best(boxes, scores, labels, scores > own.score_thresh, own.nms_thresh, own.detections_per_img)]

        model.postprocess_detections = MethodType(postprocess, model)

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        (found,) = self.model([pixels[0]])
        return self.result(found, pixels.shape[2:])


class TwoStages(OfTorchvision):
    """Faster R-CNN, Mask R-CNN and Keypoint R-CNN.

    `masks` (1, boxes, 1, height, width) are those of boxes, which torchvision's `paste_masks_in_image` puts into an
    image; `heatmaps` (1, boxes, points, height, width) those of points, of which torchvision's
    `heatmaps_to_keypoints` makes places.
    """

    def __init__(self, model: Any):
        super().__init__(model)
        heads = model.roi_heads
        self.further = ("masks",) * heads.has_mask() + ("heatmaps",) * heads.has_keypoint()
        self.of_points = None
        if heads.has_keypoint():  # torchvision's forward makes places of the points, in a loop over boxes
            self.of_points = nn.ModuleList([heads.keypoint_roi_pool, heads.keypoint_head, heads.keypoint_predictor])
            heads.keypoint_roi_pool = heads.keypoint_head = heads.keypoint_predictor = None
        model.rpn.filter_proposals = MethodType(_proposals, model.rpn)
        heads.postprocess_detections = MethodType(_boxes_of_regions, heads)

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        model = self.model
        images, _ = model.transform([pixels[0]])
        features = model.backbone(images.tensors)
        features = {"0": features} if isinstance(features, Tensor) else features
        proposals, _ = model.rpn(images, features)
        (found,), _ = model.roi_heads(features, proposals, images.image_sizes)
        if self.of_points is not None:
            pool, head, predictor = self.of_points
            found["heatmaps"] = predictor(head(pool(features, [found["boxes"]], images.image_sizes)))
        return self.result(found, images.image_sizes[0])


def of_torchvision(model: Any) -> OfTorchvision | None:
    """A copy of a detector of torchvision with a fixed number of boxes; None of other objects."""
    names = names_of_torchvision(model)
    if "GeneralizedRCNN" in names:
        return TwoStages(copy.deepcopy(model).float().eval())
    known = next((each for each in names if each in _CANDIDATES), None)
    return None if known is None else OneStage(copy.deepcopy(model).float().eval(), _CANDIDATES[known])


def names_of_torchvision(model: Any) -> list[str]:
    """The names of a model's classes that are detectors of torchvision; empty for other objects."""
    return [kind.__name__ for kind in type(model).__mro__
            if kind.__module__.startswith("torchvision.models.detection.")]  # fmt: skip


def _clipped(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    return torch.stack([boxes[:, axis].clamp(0, size[1 - axis % 2]) for axis in range(4)], 1)


def _best(
    boxes: Tensor, scores: Tensor, labels: Tensor, passing: Tensor, overlap: float, count: int
) -> dict[str, Tensor]:  # fmt: skip
    """The boxes that pass and overlap no better one of their label."""
    chosen = passing.nonzero()[:, 0]
    reach = boxes.amin(), boxes.amax() - boxes.amin() + 1
    best, corners, kept = best_apart(
        boxes[chosen], scores[chosen], labels[chosen], [labels[chosen]], overlap, count, reach
    )  # fmt: skip
    return {"boxes": corners, "scores": best, "labels": kept}


def _has_area(boxes: Tensor, least: float) -> Tensor:
    return (boxes[:, 2:] - boxes[:, :2] >= least).all(1)


# ---- in the place of torchvision's functions ---------------------------------------------------------


def _proposals(
    own: Any, proposals: Tensor, objectness: Tensor, sizes: _Sizes, counts: list[int]
) -> tuple[list[Tensor], list[Tensor]]:
    """In the place of `RegionProposalNetwork.filter_proposals`, for one image."""
    levels = torch.cat([torch.full((count,), level) for level, count in enumerate(counts)])
    every, start = objectness.reshape(-1), 0
    chosen = []
    for count in counts:
        chosen.append(every[start : start + count].topk(min(own.pre_nms_top_n(), count)).indices + start)
        start += count
    best = torch.cat(chosen)
    boxes, levels = _clipped(proposals[0][best], sizes[0]), levels[best]
    scores = every[best].sigmoid()
    passing = _has_area(boxes, own.min_size) & (scores >= own.score_thresh)
    found = _best(boxes, scores, levels, passing, own.nms_thresh, min(own.post_nms_top_n(), len(best)))
    return [found["boxes"]], [found["scores"]]


def _boxes_of_regions(
    own: Any, logits: Tensor, regression: Tensor, proposals: list[Tensor], sizes: _Sizes
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """In the place of `RoIHeads.postprocess_detections`, for one image; the first class is the background."""
    regions, classes = logits.shape
    boxes = own.box_coder.decode(regression, proposals)[:, 1:].reshape(-1, 4)
    boxes = _clipped(boxes, sizes[0])
    scores = logits.softmax(-1)[:, 1:].reshape(-1)
    labels = torch.arange(1, classes).expand(regions, -1).reshape(-1)
    passing = (scores > own.score_thresh) & _has_area(boxes, 1e-2)
    found = _best(boxes, scores, labels, passing, own.nms_thresh, own.detections_per_img)
    return [found["boxes"]], [found["scores"]], [found["labels"]]


def _of_levels(
    own: Any, outputs: dict[str, list[Tensor]], anchors: list[Tensor], scores: list[Tensor], decode: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The best pairs of an anchor and a class of each level."""
    boxes, highest, labels = [], [], []
    for level, regression, places in zip(scores, outputs["bbox_regression"], anchors, strict=True):
        best, pairs = level.flatten().topk(min(own.topk_candidates, level.numel()))
        at = pairs.div(level.shape[1], rounding_mode="floor")
        boxes.append(decode(regression[at], places[at]))
        highest.append(best)
        labels.append(pairs % level.shape[1])
    return torch.cat(boxes), torch.cat(highest), torch.cat(labels)


def _of_retinanet(own: Any, outputs: Any, anchors: Any) -> tuple[Tensor, Tensor, Tensor]:
    scores = [each.sigmoid() for each in outputs["cls_logits"]]
    return _of_levels(own, outputs, anchors, scores, own.box_coder.decode_single)


def _of_fcos(own: Any, outputs: Any, anchors: Any) -> tuple[Tensor, Tensor, Tensor]:
    pairs = zip(outputs["cls_logits"], outputs["bbox_ctrness"], strict=True)
    scores = [(logits.sigmoid() * middle.sigmoid()).sqrt() for logits, middle in pairs]
    return _of_levels(own, outputs, anchors, scores, own.box_coder.decode)


def _of_ssd(own: Any, outputs: Any, anchors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best boxes of each class; the first class is the background."""
    boxes = own.box_coder.decode_single(outputs["bbox_regression"], anchors)
    scores = outputs["cls_logits"].softmax(-1)[:, 1:].T
    best, at = scores.topk(min(own.topk_candidates, len(boxes)))
    labels = torch.arange(1, len(scores) + 1)[:, None].expand(best.shape)
    return boxes[at.flatten()], best.flatten(), labels.flatten()


_CANDIDATES = {"RetinaNet": _of_retinanet, "FCOS": _of_fcos, "SSD": _of_ssd}
