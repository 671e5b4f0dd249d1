"""Detectors given as objects: logits and boxes, and what stays after a suppression."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import AIProgram
from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import Preprocessing, Suppression, convert_detector
from tests.helpers import torchvision_ops
from tests.models.tasks.comparing import runs
from tests.models.tasks.folders import MODELS, draw

SIDE = 64


class Head(nn.Module):
    """Boxes and class logits of each cell of 8 x 8 pixels.

    It keeps its grid after the first call, as those of ultralytics do.
    """

    def __init__(self, classes: int = 3):
        super().__init__()
        torch.manual_seed(0)
        self.boxes, self.classes = nn.Conv2d(3, 4, 8, 8), nn.Conv2d(3, classes, 8, 8)
        self.grid: Tensor | None = None
        for layer in (self.boxes, self.classes):
            nn.init.normal_(layer.weight, 0, 0.4)

    def middles(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.grid is None:
            places = torch.arange(SIDE // 8) * 8.0 + 4
            self.grid = torch.stack(torch.meshgrid(places, places, indexing="xy")).flatten(1)[None]
        found = self.boxes(pixels).flatten(2)
        return self.grid + 4 * found[:, :2], 12 + 8 * found[:, 2:].sigmoid(), self.classes(pixels).flatten(2)


class OfUltralytics(Head):
    def forward(self, pixels: Tensor) -> Any:
        middle, sides, logits = self.middles(pixels)
        return torch.cat([middle, sides, logits.sigmoid()], 1), {"scores": logits}


class OfLibreyolo(Head):
    def forward(self, pixels: Tensor) -> Any:
        middle, sides, logits = self.middles(pixels)
        corners = torch.cat([middle - sides / 2, middle + sides / 2], 1)
        raw = torch.cat([corners, logits], 1).unflatten(2, (SIDE // 8, SIDE // 8))
        return {"predictions": torch.cat([corners, logits.sigmoid()], 1), "raw_outputs": [raw]}


class OfQueries(Head):
    def forward(self, pixels: Tensor) -> Any:
        middle, sides, logits = self.middles(pixels)
        return {"pred_logits": logits.mT, "pred_boxes": torch.cat([middle, sides], 1).mT / SIDE, "others": None}


def wrapped(model: nn.Module, classes: int = 3) -> Any:
    """An object that holds a model, as those of libreyolo do."""

    class Wrapper:
        nb_classes = classes

    found: Any = Wrapper()
    found.model = model
    return found


def expected(corners: Tensor, scores: Tensor, chosen: Suppression) -> list[tuple[int, float, list[float]]]:
    """The labels, scores and boxes that stay, by their definition: one class after the other."""
    found = []
    for label in range(scores.shape[1]):
        passing = scores[:, label] > chosen.scores
        boxes, best = corners[passing], scores[passing, label]
        kept = torchvision_ops.nms(boxes, best, chosen.overlap)
        found += [(label, best[each].item(), boxes[each].tolist()) for each in kept]
    return sorted(found, key=lambda each: -each[1])[: chosen.boxes]


def photo() -> Tensor:
    return torch.randint(0, 256, (SIDE, SIDE, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


FORMS: dict[str, tuple[Callable[[], Any], bool, bool]] = {
    "ultralytics": (OfUltralytics, True, False),
    "libreyolo": (OfLibreyolo, False, True),
    "queries": (lambda: wrapped(OfQueries()), True, False),
}
"""An object, whether a box has its best class only, and whether boxes are clipped to the image first."""


@pytest.mark.parametrize(
    "name", [each if each == "ultralytics" else pytest.param(each, marks=pytest.mark.slow) for each in FORMS]
)
def test_forms(name: str, native: Native) -> None:
    torchvision_ops.know_the_shape_of_nms()
    make, is_of_best_class, is_clipped = FORMS[name]
    given = make()
    model = given if isinstance(given, nn.Module) else given.model
    before = copy.deepcopy(vars(model)), {key: value.clone() for key, value in model.state_dict().items()}
    pixels = photo().permute(2, 0, 1)[None] / 255
    with torch.no_grad():
        middle, sides, logits = copy.deepcopy(model).middles(pixels)
    for found in runs(convert_detector(given, (SIDE, SIDE)), native, "main", {"pixel_values": pixels}):
        torch.testing.assert_close(found["logits"], logits.mT, atol=1e-5, rtol=0)
        torch.testing.assert_close(found["pred_boxes"], torch.cat([middle, sides], 1).mT / SIDE, atol=1e-6, rtol=0)
    chosen = Suppression(scores=0.3, overlap=0.4, boxes=20)
    corners, scores = torch.cat([middle - sides / 2, middle + sides / 2], 1)[0].T, logits.sigmoid()[0].T
    corners = corners.clamp(0, SIDE) if is_clipped else corners
    if is_of_best_class:
        scores = torch.where(scores == scores.amax(1, keepdim=True), scores, 0)
    wanted = expected(corners, scores, chosen)
    assert 5 < len(wanted) < 20
    assert len({label for label, _, _ in wanted}) > 1
    for found in runs(
        convert_detector(given, (SIDE, SIDE), nms=chosen), native, "main", {"pixel_values": pixels}
    ):  # fmt: skip
        agrees(found, wanted, clipped=name != "queries")
    assert vars(model).keys() == before[0].keys()
    assert model.grid is None
    assert all(torch.equal(value, before[1][key]) for key, value in model.state_dict().items())


def agrees(found: dict[str, Tensor], wanted: list[tuple[int, float, list[float]]], clipped: bool = True) -> None:
    """Boxes of a program are the wanted ones, in pixels, and behind them there is nothing."""
    count, boxes = len(wanted), torch.tensor([each[2] for each in wanted]) / SIDE
    assert found["labels"][0, :count].tolist() == [each[0] for each in wanted]
    torch.testing.assert_close(
        found["scores"][0, :count], torch.tensor([each[1] for each in wanted]), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(found["boxes"][0, :count], boxes.clamp(0, 1) if clipped else boxes, atol=1e-6, rtol=0)
    assert not any(value[0, count:].any() for value in found.values())


def test_bytes_and_nothing_found(native: Native) -> None:
    """An image of bytes; and an image in which no box passes."""
    torchvision_ops.know_the_shape_of_nms()

    class OfPackage(OfUltralytics):
        """It says that it is of ultralytics, which gives its models a 255th of the bytes."""

    OfPackage.__module__ = "ultralytics.nn.tasks"
    program = convert_detector(OfPackage(), (SIDE, SIDE), nms=Suppression(0.99, 0.4, 7), image=True)
    for found in runs(program, native, "main", {"image": photo()}):
        assert [value.shape for value in found.values()] == [(1, 7), (1, 7), (1, 7, 4)]
        assert not any(value.any() for value in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["YolosForObjectDetection", "RTDetrForObjectDetection"])
def test_transformers(name: str, native: Native) -> None:
    """Scores are those of the processor: of the classes but the last, or of each class by itself."""
    import transformers

    torchvision_ops.know_the_shape_of_nms()
    kind, settings = MODELS[name]
    torch.manual_seed(0)
    model = draw(getattr(transformers, name)(transformers.AutoConfig.for_model(kind, **settings)).eval())
    size = (32, 48) if name.startswith("Yolos") else (64, 64)
    pixels = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        own = model(pixels)
    for found in runs(convert_detector(model, size), native, "main", {"pixel_values": pixels}):
        torch.testing.assert_close(found["logits"], own.logits, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found["pred_boxes"], own.pred_boxes, atol=1e-5, rtol=1e-5)
    scores = own.logits.softmax(-1)[0, :, :-1] if name.startswith("Yolos") else own.logits.sigmoid()[0]
    scores = torch.where(scores == scores.amax(1, keepdim=True), scores, 0)
    middle, sides = own.pred_boxes[0].split(2, -1)
    middle_scores = scores.amax(1).sort().values[len(scores) // 2 - 1 : len(scores) // 2 + 1]
    chosen = Suppression(scores=float(middle_scores.mean()), overlap=0.8, boxes=10)
    wanted = expected(torch.cat([middle - sides / 2, middle + sides / 2], 1) * SIDE, scores, chosen)
    assert len(wanted) > 1
    for found in runs(convert_detector(model, size, nms=chosen), native, "main", {"pixel_values": pixels}):
        agrees(found, wanted, clipped=False)


def test_bytes_that_are_normalised(native: Native) -> None:
    model = wrapped(OfQueries())
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4])
    settings = Preprocessing(mean=tuple(mean.tolist()), std=tuple(std.tolist()))
    with torch.no_grad():
        own = copy.deepcopy(model.model)(((photo() / 255 - mean) / std).permute(2, 0, 1)[None])
    program = convert_detector(model, (SIDE, SIDE), image=settings)
    for found in runs(program, native, "main", {"image": photo()}):
        torch.testing.assert_close(found["logits"], own["pred_logits"], atol=1e-4, rtol=0)


class Segments(OfUltralytics):
    """Masks as sums of prototypes: the coefficients are the raw boxes."""

    def forward(self, pixels: Tensor) -> Any:
        boxes, raw = super().forward(pixels)
        coefficients = self.boxes(pixels).flatten(2)
        raw = {"one2many": {**raw, "mask_coefficient": coefficients}}
        return (torch.cat([boxes, coefficients], 1), pixels[:, :, ::2, ::2]), raw


def test_what_else_is_found(native: Native) -> None:
    """Coefficients of the masks of boxes that stay, and their prototypes."""
    torchvision_ops.know_the_shape_of_nms()
    pixels = photo().permute(2, 0, 1)[None] / 255
    model = Segments()
    with torch.no_grad():
        (boxes, prototypes), raw = copy.deepcopy(model)(pixels)
    everything = convert_detector(model, (SIDE, SIDE)).run(pixels)
    torch.testing.assert_close(everything[2], raw["one2many"]["mask_coefficient"].mT, atol=1e-5, rtol=0)
    torch.testing.assert_close(everything[3], prototypes)
    scores = boxes[0, 4:7].amax(0)
    program = convert_detector(model, (SIDE, SIDE), nms=Suppression(0.3, 0.4, 20))
    for found in runs(program, native, "main", {"pixel_values": pixels}):
        assert list(found) == ["scores", "labels", "boxes", "mask_coefficients", "prototypes"]
        count = int((found["scores"] > 0).sum())
        assert 5 < count < 20
        for place in range(count):
            row = int((scores - found["scores"][0, place]).abs().argmin())
            coefficients = found["mask_coefficients"][0, place]
            torch.testing.assert_close(coefficients, boxes[0, 7:, row], atol=1e-5, rtol=0)
        assert not found["mask_coefficients"][0, count:].any()


class Unknown(OfUltralytics):
    def forward(self, pixels: Tensor) -> Any:
        boxes, raw = super().forward(pixels)
        return torch.cat([boxes, boxes], 1), raw


class Turned(OfUltralytics):
    def forward(self, pixels: Tensor) -> Any:
        boxes, raw = super().forward(pixels)
        return torch.cat([boxes, boxes[:, :1]], 1), {**raw, "angle": boxes[:, :1]}


BAD: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "no model": (lambda: 3, {}, "int is no detector: it is no module of PyTorch"),
    "another size": (OfUltralytics, {"image_size": (72, 64)}, "does not run on an image of 72x64"),
    "unknown channels": (Unknown, {}, "Unknown gives 2 results, and this is no form of a detector that is known"),
    "turned boxes": (Turned, {"nms": Suppression()}, "Turned finds turned boxes, whose overlap is no intersection"),
    "a classifier": (lambda: nn.Conv2d(3, 4, 8), {}, "Conv2d gives a tensor of 1x4x57x57, and this is no form"),
    "bytes": (OfUltralytics, {"image": True}, "takes other numbers than a 255th of the bytes"),
    "another image": (
        OfQueries, {"image": Preprocessing(resize=9)}, "leave resize= and crop= of Preprocessing out"),
    "unknown scores": (
        lambda: wrapped(OfQueries(), 9), {"nms": Suppression()}, "the model has 3 logits for 9 classes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_inputs(name: str) -> None:
    make, options, message = BAD[name]
    model, given = make(), {"image_size": (SIDE, SIDE), **options}
    with pytest.raises(PatcompError, match=message) as caught:
        convert_detector(model, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [({"overlap": 1.5}, "Suppression.overlap must be between 0 and 1, got 1.5"),
     ({"scores": -0.1}, "Suppression.scores must be between 0 and 1, got -0.1"),
     ({"boxes": 0}, "Suppression.boxes must be at least 1, got 0")],
)  # fmt: skip
def test_bad_suppressions(values: dict[str, Any], message: str) -> None:
    with pytest.raises(PatcompError, match=message):
        Suppression(**values)


def test_without_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(PatcompError, match="a suppression needs torchvision, which cannot be used: "):
        convert_detector(OfUltralytics(), (SIDE, SIDE), nms=Suppression())


# ---- the packages, where they are installed ----------------------------------------------------------


@pytest.fixture
def nms_of_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages call torchvision, whose operators are stood in for where they do not load."""
    torchvision_ops.know_the_shape_of_nms()
    if not torchvision_ops.OWN:
        monkeypatch.setattr("torchvision.ops.boxes._assert_has_ops", lambda: None)


def varied(model: nn.Module, heads: Any) -> None:
    """Weights of a model that finds something."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)  # type: ignore[union-attr,operator]
            module.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr,operator]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if parameter.ndim == 4:
            nn.init.normal_(parameter, 0, (2 / max(parameter[0].numel(), 8)) ** 0.5)
    for head in heads:
        head[-1].bias.normal_(-2.2, 0.8)


def boxes_of(program: AIProgram, native: Native, image: np.ndarray) -> list[dict[str, Tensor]]:
    return [
        {name: value[0] for name, value in found.items()}
        for found in runs(program, native, "main", {"image": torch.from_numpy(image)})
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["yolov8n", "yolo11n", "yolo12n", "yolo26n"])
def test_ultralytics(name: str, native: Native, nms_of_torchvision: None) -> None:
    """The boxes are those of `predict`, which fuses convolutions with their norms before."""
    ultralytics = pytest.importorskip("ultralytics")
    yolo = ultralytics.YOLO(f"{name}.yaml")
    varied(yolo.model, yolo.model.model[-1].cv3)
    image = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    program = convert_detector(yolo, (128, 128), nms=Suppression(0.25, 0.45, 50), image=True)
    options: dict[str, Any] = {"imgsz": 128, "conf": 0.25, "iou": 0.45, "max_det": 50, "device": "cpu", "rect": False}
    own = yolo.predict(image[..., ::-1].copy(), verbose=False, **options)[0].boxes
    assert len(own) > 5
    for found in boxes_of(program, native, image):
        assert torch.equal(found["labels"][: len(own)], own.cls.int())
        torch.testing.assert_close(found["scores"][: len(own)], own.conf, atol=1e-5, rtol=0)
        torch.testing.assert_close(found["boxes"][: len(own)] * 128, own.xyxy, atol=1e-3, rtol=0)
        assert not found["scores"][len(own) :].any()


def of_ultralytics(name: str, ends: bool, conf: float) -> tuple[Any, np.ndarray, Any]:
    """A model for a task, an image, and what `predict` finds in it, 7 objects."""
    ultralytics = pytest.importorskip("ultralytics")
    yolo = ultralytics.YOLO(f"{name}.yaml")
    head = yolo.model.model[-1]
    varied(yolo.model, head.one2one_cv3 if ends else head.cv3)
    if hasattr(head.dfl, "conv"):  # its weights are numbers of a grid, without which boxes have no area
        head.dfl.conv.weight.copy_(torch.arange(16.0).reshape(1, 16, 1, 1))
    if name.endswith("seg"):  # masks that are not empty
        for branch in head.cv4:
            nn.init.normal_(branch[-1].bias, 1, 3)
        head.proto.cv3.bn.bias.fill_(2)
    yolo.model.end2end = ends
    image = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    options: dict[str, Any] = {"imgsz": 128, "conf": conf, "iou": 0.45, "max_det": 7, "device": "cpu", "rect": False}
    if ends:
        options["nms"] = False
    return yolo, image, yolo.predict(image[..., ::-1].copy(), verbose=False, **options)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["yolov8n-seg", "yolo11n-seg", "yolo26n-seg", "yolo11n-pose", "yolo26n-pose"])
def test_tasks_of_ultralytics(name: str, native: Native, nms_of_torchvision: None) -> None:
    """Masks and poses are those of `predict`, where the app makes masks of coefficients and prototypes."""
    yolo, image, own = of_ultralytics(name, ends=False, conf=0.01)
    program = convert_detector(yolo, (128, 128), nms=Suppression(0.01, 0.45, 7), image=True)
    assert len(own.boxes)
    for found in boxes_of(program, native, image):
        if name.endswith("seg"):
            from ultralytics.utils.ops import process_mask

            boxes = found["boxes"] * 128
            masks = process_mask(found["prototypes"], found["mask_coefficients"], boxes, (128, 128), upsample=True)
            kept = masks.amax((1, 2)) > 0  # `predict` drops boxes with an empty mask
            found = {name: value[kept] for name, value in found.items() if name != "prototypes"}
            assert (masks[kept] != own.masks.data).float().mean() < 1e-3
        else:
            points = (found["keypoints"] * torch.tensor([128, 128, 1])).clamp(0, 128)  # as `predict`
            torch.testing.assert_close(points, own.keypoints.data, atol=2e-3, rtol=0)
        assert torch.equal(found["labels"], own.boxes.cls.int())
        torch.testing.assert_close(found["scores"], own.boxes.conf, atol=1e-5, rtol=0)
        torch.testing.assert_close(found["boxes"] * 128, own.boxes.xyxy, atol=1e-3, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["yolo11n-obb", "yolo26n-obb"])
def test_turned_boxes_of_ultralytics(name: str, native: Native, nms_of_torchvision: None) -> None:
    """Each box that `predict` keeps is among those of the program, with its angle."""
    yolo, image, own = of_ultralytics(name, ends=name.startswith("yolo26"), conf=0.01)
    assert len(own.obb)
    for found in boxes_of(convert_detector(yolo, (128, 128), image=True), native, image):
        # ultralytics turns boxes until their angle is less than a right one, and then exchanges width and height
        sides = [found["pred_boxes"] * 128, found["pred_boxes"][:, [0, 1, 3, 2]] * 128]
        scores = found["logits"].sigmoid()[:, own.obb.cls.int()].mT
        gaps = torch.minimum(*((each - own.obb.xywhr[:, None, :4]).abs().amax(-1) for each in sides))
        gaps = torch.maximum(gaps, (scores - own.obb.conf[:, None]).abs())
        assert gaps.amin(1).max() < 2e-3
        turned = (found["angles"][gaps.argmin(1), 0] - own.obb.xywhr[:, 4]).remainder(torch.pi / 2)
        assert torch.minimum(turned, torch.pi / 2 - turned).max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["yolo26n", "yolov10n", "rtdetr-resnet50"])
def test_ultralytics_without_suppression(name: str, native: Native) -> None:
    """Heads of one box for each object: the best scores of all have the boxes of `predict`."""
    ultralytics = pytest.importorskip("ultralytics")
    yolo = (ultralytics.RTDETR if name.startswith("rtdetr") else ultralytics.YOLO)(f"{name}.yaml")
    varied(yolo.model, getattr(yolo.model.model[-1], "one2one_cv3", ()))
    if not name.startswith("rtdetr"):
        yolo.model.end2end = True
    with pytest.raises(PatcompError, match="gives one box for each object, and needs no suppression; leave nms= out"):
        convert_detector(yolo, (128, 128), nms=Suppression())
    image = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    program = convert_detector(yolo, (128, 128), image=True)
    options: dict[str, Any] = {"imgsz": 128, "conf": 0.001, "max_det": 20, "device": "cpu", "rect": False, "nms": False}
    own = yolo.predict(image[..., ::-1].copy(), verbose=False, **options)[0].boxes
    assert len(own) == 20
    evaluated = {key: value[0] for key, value in program.run({"image": torch.from_numpy(image)}).items()}
    for found in [evaluated] if name.startswith("rtdetr") else boxes_of(program, native, image):
        scores, places = found["logits"].sigmoid().flatten().topk(len(own))
        middle, sides = found["pred_boxes"][places // found["logits"].shape[1]].split(2, 1)
        corners = torch.cat([middle - sides / 2, middle + sides / 2], 1).clamp(0, 1) * 128
        torch.testing.assert_close(scores, own.conf, atol=1e-5, rtol=0)
        nearest = (
            (corners[:, None] - own.xyxy[None].clamp(0, 128)).abs().amax(-1).amin(1)
        )  # equal scores may change places
        assert nearest.max() < 1e-3


@pytest.mark.slow
def test_libreyolo(native: Native, nms_of_torchvision: None) -> None:
    """The boxes are those of its own post-processing."""
    libreyolo = pytest.importorskip("libreyolo")
    yolo = libreyolo.LibreYOLO9(None, size="t")
    varied(yolo.model, yolo.model.head.cv3)
    yolo.model.eval()
    image = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    program = convert_detector(yolo, (128, 128), nms=Suppression(0.25, 0.45, 300), image=True)
    pixels, _, _, ratio = yolo._preprocess(image, "rgb", input_size=128)
    with torch.no_grad():
        own = yolo._postprocess(yolo.model(pixels), 0.25, 0.45, (128, 128), max_det=300, ratio=ratio, input_size=128)
    count = own["num_detections"]
    assert 5 < count < 300
    for found in boxes_of(program, native, image):
        assert found["labels"][:count].tolist() == own["classes"]
        torch.testing.assert_close(found["scores"][:count], torch.tensor(own["scores"]), atol=1e-5, rtol=0)
        torch.testing.assert_close(found["boxes"][:count] * 128, torch.tensor(own["boxes"]), atol=1e-3, rtol=0)
        assert not found["scores"][count:].any()


@pytest.mark.slow
def test_queries_of_libreyolo(native: Native) -> None:
    libreyolo = pytest.importorskip("libreyolo")
    detector = libreyolo.LibreDFINE(None, size="n")
    varied(detector.model, ())
    detector.model.eval()
    pixels = torch.rand(1, 3, 640, 640, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        own = detector.model(pixels)
    found = convert_detector(detector, (640, 640)).run(pixels)
    torch.testing.assert_close(found[0], own["pred_logits"], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[1], own["pred_boxes"], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_rfdetr(native: Native) -> None:
    rfdetr = pytest.importorskip("rfdetr")
    detector = rfdetr.RFDETRNano(pretrain_weights=None, device="cpu")
    pixels = torch.rand(1, 3, 384, 384, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        own = detector.model.model.eval()(pixels)
    found = convert_detector(detector, (384, 384)).run({"pixel_values": pixels})
    torch.testing.assert_close(found["logits"], own["pred_logits"], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found["pred_boxes"], own["pred_boxes"], atol=1e-5, rtol=1e-5)
    with pytest.raises(PatcompError, match="the model has 91 logits for an unknown number of classes"):
        convert_detector(detector, (384, 384), nms=Suppression())


@pytest.mark.slow
def test_masks_of_rfdetr() -> None:
    rfdetr = pytest.importorskip("rfdetr")
    detector = rfdetr.RFDETRSegNano(pretrain_weights=None, device="cpu")
    side = detector.model.resolution
    pixels = torch.rand(1, 3, side, side, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        own = detector.model.model.eval()(pixels)
    found = convert_detector(detector, (side, side)).run({"pixel_values": pixels})
    assert list(found) == ["logits", "pred_boxes", "pred_masks"]
    torch.testing.assert_close(found["logits"], own["pred_logits"], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found["pred_masks"], own["pred_masks"], atol=1e-3, rtol=1e-3)
