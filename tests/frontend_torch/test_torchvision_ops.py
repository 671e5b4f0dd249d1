"""The operators of torchvision in programs of open sizes; `tests/helpers/torchvision_ops.py` may stand in for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from patcomp import TorchConverter, UnsupportedError
from patcomp.emit.native import Native
from patcomp.evaluate.inputs import prepare_input
from tests.helpers.torchvision_ops import OWN, STAND_INS, know_the_shape_of_nms

OPS = torch.ops.torchvision


class Detector(nn.Module):
    """Boxes that are left of each class, the best three first, and their scores."""

    def forward(self, boxes: torch.Tensor, scores: torch.Tensor, classes: torch.Tensor) -> Any:
        apart = boxes + (classes.float() * (boxes.max() + 1)).unsqueeze(1)
        kept = OPS.nms(apart, scores, 0.3)
        return boxes[kept], scores[kept] * 2, OPS.nms(boxes, scores, 0.5)[:3]


class Aligned(nn.Module):
    """Features of regions, and of regions in other numbers of points."""

    def forward(self, x: torch.Tensor, rois: torch.Tensor) -> Any:
        several = OPS.roi_align(x, rois, 0.5, 2, 3, 2, False)
        own = OPS.roi_align(x, rois, 1.0, 2, 2, -1, True)
        return several, own, OPS.ps_roi_align(x, rois, 0.5, 1, 2, -1)[0], OPS.ps_roi_pool(x, rois, 1.0, 2, 1)[0]


class Deformed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 4 * 2 * 9).reshape(4, 2, 3, 3))

    def forward(self, x: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor) -> Any:
        bias = x.new_zeros(4)
        return (OPS.deform_conv2d(x, self.weight, offset, mask, bias, 1, 1, 1, 1, 1, 1, 2, 2, True),)


def _numbers(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def _detections(count: int) -> tuple[torch.Tensor, ...]:
    corner, size = _numbers(count, 2, seed=1).abs() * 9, _numbers(count, 2, seed=2).abs() * 9
    scores = (_numbers(count, seed=3) * 3).round()  # some are equal
    return torch.cat([corner, corner + size], 1), scores, torch.arange(count) % 3


def _regions(images: int, count: int, height: int, width: int) -> tuple[torch.Tensor, ...]:
    boxes = _numbers(count, 4, seed=4) * 6
    boxes[:, 2:] = boxes[:, :2] + boxes[:, 2:].abs() + 1
    return _numbers(images, 4, height, width), torch.cat([(torch.arange(count) % images).float()[:, None], boxes], 1)


def _deformed(images: int, height: int, width: int) -> tuple[torch.Tensor, ...]:
    offset, mask = _numbers(images, 36, height, width, seed=5), _numbers(images, 18, height, width, seed=6)
    return _numbers(images, 4, height, width), 2 * offset, mask


COUNT, IMAGES = Dim("count", min=2, max=99), Dim("images", min=2, max=9)
IMAGE = {0: IMAGES, 2: Dim("height", min=3, max=99), 3: Dim("width", min=3, max=99)}
PROGRAMS: dict[str, tuple[nn.Module, Any, list[tuple[torch.Tensor, ...]]]] = {
    "boxes": (Detector(), ({0: COUNT}, {0: COUNT}, {0: COUNT}), [_detections(count) for count in (20, 2, 31)]),
    "regions": (Aligned(), (IMAGE, {0: COUNT}), [_regions(2, 3, 6, 5), _regions(3, 5, 4, 7)]),
    "deformed": (Deformed(), (IMAGE, IMAGE, IMAGE), [_deformed(2, 4, 5), _deformed(3, 6, 4)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_open_sizes(name: str, native: Native) -> None:
    know_the_shape_of_nms()
    model, shapes, calls = PROGRAMS[name]
    program = TorchConverter().add_exported_program(
        torch.export.export(model, calls[0], dynamic_shapes=shapes)
    ).to_coreai()  # fmt: skip
    types = [argument.type for argument in program.module.graph("main").regions[0].block.args]
    for call in calls:
        given = zip(program.input_names(), call, types, strict=True)
        inputs = {name: prepare_input(value, type_, name) for name, value, type_ in given}
        with torch.no_grad():
            wanted = model(*call)
        for outputs in (program.run(inputs), native.run(program.module, inputs)):
            for output, expected in zip(program.output_names(), wanted, strict=True):
                torch.testing.assert_close(
                    torch.as_tensor(outputs[output]), expected, rtol=1e-5, atol=1e-5, check_dtype=False
                )


def test_a_maximum_over_regions_of_an_image_of_open_size_is_refused() -> None:
    class Pooled(nn.Module):
        def forward(self, x: torch.Tensor, rois: torch.Tensor) -> Any:
            return OPS.roi_pool(x, rois, 1.0, 2, 2)[0]

    exported = torch.export.export(Pooled(), _regions(2, 3, 6, 5), dynamic_shapes=(IMAGE, None))
    with pytest.raises(UnsupportedError, match="roi_pool needs an image of a fixed size; export with that size fixed"):
        TorchConverter().add_exported_program(exported).to_coreai()


ROIS = _regions(2, 5, 6, 5)
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "deform_conv2d": [(*_deformed(2, 4, 5)[:1], Deformed().weight.detach(), *_deformed(2, 4, 5)[1:], _numbers(4),
                       1, 1, 1, 1, 1, 1, 2, 2, True)],
    "nms": [(*_detections(20)[:2], 0.3)],
    "ps_roi_align": [(*ROIS, 0.5, 1, 2, 2), (*ROIS, 1.0, 2, 2, -1)],
    "ps_roi_pool": [(*ROIS, 0.5, 1, 2), (*ROIS, 1.0, 2, 2)],
    "roi_align": [(*ROIS, 0.5, 2, 3, 2, False), (*ROIS, 1.0, 2, 2, -1, True)],
    "roi_pool": [(*ROIS, 0.5, 2, 3), (*ROIS, 1.0, 3, 2)],
}  # fmt: skip


@pytest.mark.skipif(not OWN, reason="needs a torchvision that fits this PyTorch")
@pytest.mark.parametrize("name", STAND_INS)
def test_what_stands_in_is_equal(name: str) -> None:
    function: Callable[..., Any] = STAND_INS[name][0]
    for arguments in CALLS[name]:
        torch.testing.assert_close(function(*arguments), getattr(OPS, name)(*arguments), rtol=1e-5, atol=1e-5)
