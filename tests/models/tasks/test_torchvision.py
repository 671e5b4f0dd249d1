"""Detectors of torchvision: a fixed number of boxes, the first of which are those of the model itself."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import Suppression, convert_detector
from tests.helpers import torchvision_ops
from tests.models.tasks.comparing import runs
from tests.models.tasks.torchvision_models import detector


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torchvision calls its operators, which are stood in for where they do not load."""
    torchvision_ops.know_the_shape_of_nms()
    if not torchvision_ops.OWN:
        for module in ("torchvision.ops.boxes", "torchvision.ops.roi_align"):
            monkeypatch.setattr(import_module(module), "_assert_has_ops", lambda: None)
        monkeypatch.setattr(import_module("torchvision.ops.roi_align"), "_has_ops", lambda: True)


KINDS = ["FasterRCNN", "MaskRCNN", "KeypointRCNN", "RetinaNet", "FCOS", "SSD"]
IN_CI = ("MaskRCNN", "RetinaNet", "SSD")


@pytest.mark.parametrize(
    "kind", [each if each in IN_CI else pytest.param(each, marks=pytest.mark.slow) for each in KINDS]
)
def test_boxes(kind: str, native: Native, operators: None) -> None:
    model = detector(kind)
    settings = getattr(model, "roi_heads", model)
    state, names = copy.deepcopy(model.state_dict()), set(vars(model))
    size = (48, 80)
    image = torch.from_numpy(np.random.default_rng(2).integers(0, 256, (*size, 3), dtype=np.uint8))
    pixels = image.permute(2, 0, 1) / 255
    with torch.no_grad():
        scores = model([pixels])[0]["scores"]
        settings.score_thresh = float(scores[6:8].mean())
        (own,) = model([pixels])
    count = len(own["boxes"])
    assert count == 7
    assert len(own["labels"].unique()) > 1
    sides = torch.tensor([size[1], size[0], size[1], size[0]])
    for found in runs(convert_detector(model, size, image=True), native, "main", {"image": image}):
        assert [found[name].shape for name in ("scores", "labels", "boxes")] == [(1, 10), (1, 10), (1, 10, 4)]
        assert torch.equal(found["labels"][0, :count], own["labels"].int())
        torch.testing.assert_close(found["scores"][0, :count], own["scores"], atol=1e-4, rtol=0)
        boxes = found["boxes"][0, :count] * sides
        torch.testing.assert_close(boxes, own["boxes"], atol=1e-3, rtol=0)
        assert not any(found[name][0, count:].any() for name in ("scores", "labels", "boxes"))
        if kind == "MaskRCNN":
            from torchvision.models.detection.roi_heads import paste_masks_in_image

            masks = paste_masks_in_image(found["masks"][0, :count], boxes, size)
            torch.testing.assert_close(masks, own["masks"], atol=1e-3, rtol=0)
        if kind == "KeypointRCNN":
            from torchvision.models.detection.roi_heads import heatmaps_to_keypoints

            ours = found["boxes"][0, :count] * sides * torch.tensor(model.transform.min_size) / min(size)
            points, _ = heatmaps_to_keypoints(found["heatmaps"][0, :count], ours)
            points[..., :2] *= min(size) / model.transform.min_size[0]
            torch.testing.assert_close(points, own["keypoints"], atol=1e-2, rtol=0)
    assert set(vars(model)) == names
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_an_own_suppression(operators: None) -> None:
    model: Any = detector("RetinaNet")
    with pytest.raises(PatcompError, match="RetinaNet of torchvision suppresses boxes by its own settings"):
        convert_detector(model, (64, 64), nms=Suppression())
