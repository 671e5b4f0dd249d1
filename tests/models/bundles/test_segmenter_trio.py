"""SAM 3 in three functions, for the Neural Engine: the end result is upstream's; and what Swift would refuse."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.emit.asset import Asset
from patcomp.emit.reading import opened
from patcomp_models.bundle_folders.interfaces import Function, Interfaces, Tensor
from patcomp_models.bundles import check_bundle, convert_bundle
from patcomp_models.bundles.segmenter.contract import TRIO, trio_problems
from tests.models.bundles import segmenters


def found_by(call: Any, pixels: np.ndarray, ids: np.ndarray) -> dict[str, torch.Tensor]:
    """What a host makes of the three functions: it hands arrays on."""
    image, text = call("image_encode", {"pixel_values": pixels}), call("text_encode", {"input_ids": ids})
    return {
        name: torch.as_tensor(np.asarray(value)) for name, value in call("detect", {**image, **text}).items()
    }  # fmt: skip


@pytest.mark.slow
def test_texts(tmp_path: Path) -> None:
    from transformers import AutoImageProcessor, AutoTokenizer

    model = segmenters.sam3(tmp_path)
    bundle = convert_bundle(tmp_path / "sam3", out=tmp_path / "bundle", dtype="float32", target="cpu", functions=3)
    assert check_bundle(bundle) == ()
    asset = bundle / json.loads((bundle / "metadata.json").read_text())["assets"]["main"]
    processor = AutoImageProcessor.from_pretrained(tmp_path / "sam3")
    text = AutoTokenizer.from_pretrained(tmp_path / "sam3")(
        ["a cab"], padding="max_length", max_length=32, return_tensors="pt")  # fmt: skip
    pixels = processor(images=segmenters.photo(112), return_tensors="pt")["pixel_values"]
    given = {"input_ids": text["input_ids"], "attention_mask": text["attention_mask"]}
    with torch.no_grad():
        wanted = model(pixel_values=pixels, **given)
        exact = copy.deepcopy(model).double()(pixel_values=pixels.double(), **given)
    own = processor.post_process_instance_segmentation(wanted, threshold=0.1)[0]
    assert len(own["scores"])
    ids = text["input_ids"].int().numpy()
    with opened(asset) as native:
        both = [
            found_by(lambda name, inputs: Asset(asset).evaluate(inputs, {}, name), pixels.numpy(), ids),
            found_by(lambda name, inputs: native.call(asset, inputs, {}, name)[0], pixels.numpy(), ids),
        ]
    for found in both:
        for name, value in found.items():
            largest = float(wanted[name].abs().max())
            torch.testing.assert_close(value, wanted[name], atol=1e-5 * largest, rtol=0)
            # no further from the numbers of float64 than PyTorch's rounding explains
            rounding = float((wanted[name] - exact[name]).abs().max())
            assert float((value - exact[name]).abs().max()) < 4 * rounding + 1e-6 * largest, name
        made = processor.post_process_instance_segmentation(type(wanted)(**found), threshold=0.1)[0]
        assert torch.equal(made["masks"], own["masks"])


@pytest.mark.slow
def test_the_neural_engine(tmp_path: Path) -> None:
    """By default the functions are for the Neural Engine, in float16, and arrays between them have four dimensions."""
    segmenters.sam3(tmp_path)
    bundle = convert_bundle(tmp_path / "sam3", out=tmp_path / "bundle", functions=3)
    assert check_bundle(bundle) == ()
    described = json.loads((bundle / "metadata.json").read_text())
    found = Interfaces.of(bundle / described["assets"]["main"]).functions
    assert found.keys() == {*TRIO}
    assert list(found["detect"].inputs.values()) == [
        Tensor((1, 32, 1, 64), "float16"), Tensor((1, 33, 1, 32), "float16")]  # fmt: skip


# ---- what Swift would refuse -------------------------------------------------------------------------

_Values = dict[str, tuple[tuple[int, ...], str]]
_FORM: dict[str, tuple[_Values, _Values]] = {
    "image_encode": ({"pixel_values": ((1, 3, 64, 64), "float16")}, {"backbone_features": ((1, 8, 1, 16), "float16")}),
    "text_encode": ({"input_ids": ((1, 32), "int32")}, {"text_features": ((1, 9, 1, 32), "float16")}),
    "detect": (
        {"backbone_features": ((1, 8, 1, 16), "float16"), "text_features": ((1, 9, 1, 32), "float16")},
        {"pred_masks": ((1, 5, 16, 16), "float16"), "pred_boxes": ((1, 5, 4), "float16"),
         "pred_logits": ((1, 5), "float16"), "presence_logits": ((1, 1), "float16"),
         "semantic_seg": ((1, 1, 16, 16), "float16")},
    ),
}  # fmt: skip


def functions(name: str = "", changes: dict[str, tuple[tuple[int, ...], str] | None] | None = None) -> Any:
    """The descriptions of functions; those of one have some inputs or outputs less, or other ones."""
    form = copy.deepcopy(_FORM)
    for each, value in (changes or {}).items():
        ins, outs = form[name]
        is_output = each in outs and (each not in ins or name != "detect")
        where = outs if is_output or each.startswith("out_") else ins
        if value is None:
            del where[each]
        else:
            where[each] = value
    return {
        function: Function(*({key: Tensor(*value) for key, value in each.items()} for each in values), {})
        for function, values in form.items()
    }


def test_the_form_is_right() -> None:
    assert trio_problems(functions()) == []


DEPARTURES: dict[str, tuple[str, dict[str, Any] | None, str]] = {
    "no encoder of texts": ("text_encode", None, "the asset has no function text_encode; Swift calls "),
    "no detection": ("detect", None, "the asset has no function detect"),
    "no pixels": ("image_encode", {"pixel_values": None}, "the input pixel_values of image_encode is missing"),
    "no features": ("image_encode", {"backbone_features": None}, "the output backbone_features of image_encode is"),
    "features without a name": (
        "text_encode", {"text_features": None, "out_hidden": ((1, 9, 1, 32), "float16")},
        "the output text_features of text_encode is missing"),
    "no ids": ("text_encode", {"input_ids": None}, "the input input_ids of text_encode is missing"),
    "a mask beside the ids": (
        "text_encode", {"attention_mask": ((1, 32), "int32")}, "text_encode has the input attention_mask, which Swift"),
    "long ids": ("text_encode", {"input_ids": ((1, 32), "int64")}, "input_ids of text_encode is 1 x 32 of int64"),
    "an image that is no square": (
        "image_encode", {"pixel_values": ((1, 3, 64, 48), "float16")}, "must be 1 x 3 x 64 x 64 of float16 or float32"),
    "features of three dimensions": (
        "image_encode", {"backbone_features": ((1, 16, 8), "float16")}, "must be 1 x * x 1 x * of float16 or float32"),
    "features in a square": (
        "image_encode", {"backbone_features": ((1, 8, 4, 4), "float16")}, "backbone_features of image_encode is 1 x 8"),
    "detection of other features": (
        "detect", {"backbone_features": ((1, 8, 1, 25), "float16")}, "must be 1 x 8 x 1 x 16 of float16"),
    "detection of another type": (
        "detect", {"text_features": ((1, 9, 1, 32), "float32")}, "must be 1 x 9 x 1 x 32 of float16"),
    "detection of pixels": (
        "detect", {"pixel_values": ((1, 3, 64, 64), "float16")}, "detect has the input pixel_values, which Swift does"),
    "no presence": ("detect", {"presence_logits": None}, "the output presence_logits of detect is missing"),
    "no semantic masks": ("detect", {"semantic_seg": None}, "the output semantic_seg of detect is missing"),
    "boxes of other queries": ("detect", {"pred_boxes": ((1, 6, 4), "float16")}, "must be 1 x 5 x 4"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEPARTURES)
def test_departures(name: str) -> None:
    function, changes, message = DEPARTURES[name]
    found = functions(function, changes)
    if changes is None:
        del found[function]
    assert message in "\n".join(map(str, trio_problems(found)))
