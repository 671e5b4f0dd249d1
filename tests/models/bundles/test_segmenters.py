"""Segmenters: masks of upstream's own models, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.emit.asset import Asset
from patcomp.emit.reading import opened
from patcomp.errors import PatcompError
from patcomp_models.bundle_folders.interfaces import Function, Tensor
from patcomp_models.bundles import check_bundle, convert_bundle
from patcomp_models.bundles.segmenter.contract import asset_problems, clip_tokenizer_problems
from patcomp_models.tasks import convert_folder
from tests.models.bundles import segmenters
from tests.models.bundles.refusals import assert_refused


@pytest.fixture(scope="module")
def sam(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Path]:
    """A model, its folder, its bundle."""
    place = tmp_path_factory.mktemp("segmenter")
    model = segmenters.sam(place / "sam")
    return model, place / "sam", convert_bundle(place / "sam", out=place / "bundle", dtype="float32", points=4)


def outputs_of(bundle: Path, inputs: dict[str, np.ndarray]) -> list[dict[str, torch.Tensor]]:
    """The outputs of a bundle, on the evaluator and on the runtime."""
    asset = bundle / "Segmenter.aimodel"
    with opened(asset) as native:
        found = [Asset(asset).evaluate(inputs, {}, "main"), native.call(asset, inputs, {}, "main")[0]]
    return [{name: torch.as_tensor(np.asarray(value)) for name, value in each.items()} for each in found]


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-5 * float(wanted.abs().max()), rtol=0)


def check_points(model: Any, processor: Any, bundle: Path, points: list[list[int]], labels: list[int]) -> None:
    """The masks of a photo are those of upstream's model behind its processor, before and after its post-processing."""
    image = segmenters.photo(64)
    given = processor(images=image, return_tensors="pt")
    asked = torch.tensor([[points]], dtype=torch.float32), torch.tensor([[labels]])
    with torch.no_grad():
        wanted = model(pixel_values=given["pixel_values"], input_points=asked[0], input_labels=asked[1])
    inputs = {
        "batched_images": (image.transpose(2, 0, 1)[None] / 255).astype(np.float32),
        "batched_points": asked[0].numpy(), "batched_point_labels": asked[1].float().numpy(),
    }  # fmt: skip
    for found in outputs_of(bundle, inputs):
        close(found["iou_scores"], wanted.iou_scores)
        close(found["pred_masks"], wanted.pred_masks)
        sizes = [[each.tolist() for each in given[name]] for name in ("original_sizes", "reshaped_input_sizes")
                 if name in given]  # fmt: skip
        ours, own = (processor.post_process_masks(each, *sizes) for each in (found["pred_masks"], wanted.pred_masks))
        assert all(torch.equal(*pair) for pair in zip(ours, own, strict=True))


def test_points(sam: tuple[Any, Path, Path]) -> None:
    from transformers import AutoImageProcessor

    model, folder, bundle = sam
    assert check_bundle(bundle) == ()
    assert json.loads((bundle / "metadata.json").read_text())["kind"] == "segmenter"
    points = [[10, 20], [40, 8], [0, 0], [0, 0]]
    check_points(model, AutoImageProcessor.from_pretrained(folder), bundle, points, [1, 0, -1, -1])


def test_an_asset_would_have_no_points(sam: tuple[Any, Path, Path]) -> None:
    with pytest.raises(PatcompError, match="SamModel answers points, and becomes a bundle"):
        convert_folder(sam[1])


@pytest.mark.slow
def test_corners_of_boxes(sam: tuple[Any, Path, Path]) -> None:
    """Points with the labels 2 and 3 are embedded as upstream's boxes."""
    from patcomp_models.bundles.segmenter.modules import WithCorners

    encoder = sam[0].prompt_encoder
    corners = torch.tensor([[[[5.0, 6.0], [30.0, 40.0]]]])
    with torch.no_grad():
        found, _ = WithCorners(encoder)(corners, torch.tensor([[[2, 3]]]), input_boxes=None, input_masks=None)
        close(found[:, :, :2], encoder._embed_boxes(corners.reshape(1, 1, 4)))


@pytest.mark.slow
def test_points_of_sam2(tmp_path: Path) -> None:
    from transformers import AutoImageProcessor

    model = segmenters.sam2(tmp_path / "sam2")
    bundle = convert_bundle(tmp_path / "sam2", out=tmp_path / "bundle", dtype="float32", points=4)
    assert check_bundle(bundle) == ()
    points, processor = [[10, 20], [40, 50], [0, 0], [0, 0]], AutoImageProcessor.from_pretrained(tmp_path / "sam2")
    for labels in ([1, 0, -1, -1], [2, 3, -1, -1]):
        check_points(model, processor, bundle, points, labels)


@pytest.mark.slow
def test_texts(tmp_path: Path) -> None:
    """Masks, boxes and scores of a text are those of upstream's model behind its processor, which masks padding."""
    from transformers import AutoImageProcessor, AutoTokenizer

    model = segmenters.sam3(tmp_path)
    bundle = convert_bundle(tmp_path / "sam3", out=tmp_path / "bundle", dtype="float32")
    assert check_bundle(bundle) == ()
    processor = AutoImageProcessor.from_pretrained(tmp_path / "sam3")
    text = AutoTokenizer.from_pretrained(tmp_path / "sam3")(
        ["a cab"], padding="max_length", max_length=32, return_tensors="pt")  # fmt: skip
    pixels = processor(images=segmenters.photo(112), return_tensors="pt")["pixel_values"]
    assert 0 < text["attention_mask"].sum() < 32
    with torch.no_grad():
        wanted = model(pixel_values=pixels, input_ids=text["input_ids"], attention_mask=text["attention_mask"])
    inputs = {"pixel_values": pixels.numpy(), "input_ids": text["input_ids"].int().numpy()}
    own = processor.post_process_instance_segmentation(wanted, threshold=0.1)[0]
    assert len(own["scores"])
    for found in outputs_of(bundle, inputs):
        for name, value in found.items():
            close(value, wanted[name])
        made = processor.post_process_instance_segmentation(type(wanted)(**found), threshold=0.1)[0]
        assert torch.equal(made["masks"], own["masks"])
        torch.testing.assert_close(made["boxes"], own["boxes"], atol=1e-5, rtol=0)


# ---- what Swift would refuse -------------------------------------------------------------------------

_Values = dict[str, tuple[tuple[int, ...], str]]
_POINTS: tuple[_Values, _Values] = (
    {"batched_images": ((1, 3, 64, 64), "float32"), "batched_points": ((1, 2, 4, 2), "float32"),
     "batched_point_labels": ((1, 2, 4), "float32")},
    {"pred_masks": ((1, 2, 3, 16, 16), "float16"), "iou_scores": ((1, 2, 3), "float16")},
)  # fmt: skip
_TEXT: tuple[_Values, _Values] = (
    {"pixel_values": ((1, 3, 64, 64), "float32"), "input_ids": ((1, 32), "int32")},
    {"pred_masks": ((1, 5, 16, 16), "float32"), "pred_boxes": ((1, 5, 4), "float32"),
     "pred_logits": ((1, 5), "float32"), "presence_logits": ((1, 1), "float32"),
     "semantic_seg": ((1, 1, 16, 16), "float32")},
)  # fmt: skip


def function(form: tuple[_Values, _Values], changes: dict[str, tuple[tuple[int, ...], str] | None]) -> Function:
    """The description of a function in which some inputs or outputs are missing, or other ones."""
    ins, outs = (dict(each) for each in form)
    for name, value in changes.items():
        where = outs if name in outs or name.startswith("out_") else ins
        if value is None:
            del where[name]
        else:
            where[name] = value

    tensors = [{name: Tensor(*value) for name, value in each.items()} for each in (ins, outs)]
    return Function(tensors[0], tensors[1], {})


def test_the_forms_are_right() -> None:
    for form in (_POINTS, _TEXT):
        assert asset_problems(function(form, {})) == []


FUNCTIONS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no images": (_POINTS, {"batched_images": None}, "the input batched_images of main is missing"),
    "no labels": (_POINTS, {"batched_point_labels": None}, "the input batched_point_labels of main is missing"),
    "no scores": (_POINTS, {"iou_scores": None}, "the output iou_scores of main is missing"),
    "two images": (_POINTS, {"image_before": ((1, 3, 64, 64), "float32")}, "is one of batched_images, image_before"),
    "a text beside points": (_POINTS, {"text": ((1, 32), "int32")}, "main has the input text, which Swift does not"),
    "integer labels": (_POINTS, {"batched_point_labels": ((1, 2, 4), "int32")}, "must be 1 x 2 x 4 of float16 or"),
    "points of three numbers": (_POINTS, {"batched_points": ((1, 2, 4, 3), "float32")}, "must be 1 x 2 x 4 x 2"),
    "fewer labels": (_POINTS, {"batched_point_labels": ((1, 2, 3), "float32")}, "must be 1 x 2 x 4"),
    "images with alpha": (_POINTS, {"batched_images": ((1, 4, 64, 64), "float32")}, "must be 1 x 3 x 64 x 64"),
    "masks of other queries": (_POINTS, {"pred_masks": ((1, 1, 3, 16, 16), "float16")}, "must be 1 x 2 x 3 x * x *"),
    "no presence": (_TEXT, {"presence_logits": None}, "the output presence_logits of main is missing"),
    "no semantic masks": (_TEXT, {"semantic_seg": None}, "the output semantic_seg of main is missing"),
    "another output": (_TEXT, {"out_depth": ((1, 1), "float32")}, "main has the output out_depth"),
    "long ids": (_TEXT, {"input_ids": ((1, 32), "int64")}, "must be 1 x * of int32"),
    "an image that is no square": (_TEXT, {"pixel_values": ((1, 3, 64, 48), "float32")}, "must be 1 x 3 x 64 x 64"),
    "boxes of other queries": (_TEXT, {"pred_boxes": ((1, 6, 4), "float32")}, "must be 1 x 5 x 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_departures_of_functions(name: str) -> None:
    form, changes, message = FUNCTIONS[name]
    assert message in "\n".join(map(str, asset_problems(function(form, changes))))


TOKENIZERS: dict[str, tuple[str | None, str]] = {
    "none": (None, "there is no tokenizer/tokenizer.json"),
    "no model": ("{}", "has no model with vocab and merges"),
    "no words": ('{"model": {"vocab": {}, "merges": []}}', "vocab of tokenizer/tokenizer.json is no object"),
    "merges in texts": ('{"model": {"vocab": {"a": 0}, "merges": ["a b"]}}', "are not all pairs"),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_departures_of_tokenizers(name: str, tmp_path: Path) -> None:
    content, message = TOKENIZERS[name]
    (tmp_path / "tokenizer").mkdir()
    if content is not None:
        (tmp_path / "tokenizer" / "tokenizer.json").write_text(content)
    assert message in "\n".join(map(str, clip_tokenizer_problems(tmp_path)))


def test_a_bundle_without_main(sam: tuple[Any, Path, Path], tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(sam[2], bundle)
    metadata = json.loads((bundle / "metadata.json").read_text())
    (bundle / "metadata.json").write_text(json.dumps({**metadata, "assets": {"other": "Segmenter.aimodel"}}))
    assert "assets.main is missing" in "\n".join(map(str, check_bundle(bundle)))


# ---- bad inputs --------------------------------------------------------------------------------------


def _edited(name: str, **values: Any) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        file = folder / name
        found = json.loads(file.read_text()) | values
        file.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))

    return edit


BAD: dict[str, tuple[Callable[[Path], object], dict[str, Any], str]] = {
    "no weights": (lambda f: (f / "model.safetensors").unlink(), {}, "lacks model.safetensors, the file of its"),
    "no image processor": (lambda f: (f / "preprocessor_config.json").unlink(), {}, "no preprocessor_config.json"),
    "no mean": (_edited("preprocessor_config.json", image_mean=None), {}, "has no image_mean"),
    "another model": (_edited("config.json", model_type="vit"), {"kind": "segmenter"}, "is no segmenter: sam"),
    "an unknown option": (lambda f: None, {"size": 64}, "have no option 'size'; they have queries, points, length"),
    "no points": (lambda f: None, {"points": 0}, "points is 0, and must be a number of at least 1"),
    "three functions of points": (lambda f: None, {"functions": 3}, "functions is 3, and must be 1 for"),
    "two functions of a text": (
        _edited("config.json", model_type="sam3"), {"functions": 2}, "functions is 2, and must be 1 or 3"),
    "SAM 3 without its tokenizer": (
        lambda f: [_edited("config.json", model_type="sam3")(f),
                   _edited("preprocessor_config.json", image_mean=[0.5] * 3, image_std=[0.5] * 3)(f)],
        {}, "has no tokenizer.json"),
    "SAM 3 with another mean": (
        _edited("config.json", model_type="sam3"), {}, "and Swift does it by 0.5"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_inputs(name: str, sam: tuple[Any, Path, Path], tmp_path: Path) -> None:
    change, options, message = BAD[name]
    assert_refused(sam[1], change, options, message, tmp_path)
