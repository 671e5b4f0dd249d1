"""Images of several shapes: a function of the vision tower for each, and the tokens of transformers' `generate`."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.emit.asset import load
from patcomp.errors import ConversionWarning
from patcomp_models.language import TOWERS, LanguageModelError, check_bundle, convert_vision_language_model
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.vision.images import pixels_of
from patcomp_models.language.vision.pictures import images_made, loaded_processor, patch_rows, pixels_of_patches
from patcomp_models.language.vision.shapes import SHAPE_KEYS, check_one_shape, nearest_shape, shapes_in
from patcomp_models.language.vision.towers import tower_of
from tests.models.language.checkpoints import edited
from tests.models.language.shaped_processors import PICTURES, SHAPES_OF, SPECIAL, converted, of_type
from tests.models.language.vision_checkpoints import (
    IMAGE_TOKEN,
    PROCESSOR,
    SHAPES,
    SIZE,
    checkpoint,
    picture,
)

NEW = 6
KINDS = [kind for kind, tower in TOWERS.items() if tower.takes_shapes]
UNTRIED = ("emu3", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker")
"""Emu 3 needs more than the processors that are made here; `test_sounds.py` tries the others."""
PATCH_KINDS = [kind for kind in KINDS if TOWERS[kind].takes_patches]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Bundle]:
    return converted("qwen3_vl", tmp_path_factory.mktemp("made"), image_size=SIZE, image_shapes=["32x48", (48, 16)])


def generated(model: Any, bundle: Bundle, images: list[Any]) -> tuple[str, list[int]]:
    """A prompt with images, and the tokens of the model's own generation.

    Its words are special tokens, because some types build a tokenizer of their own from the words of a folder.
    """
    make = loaded_processor(bundle.path.parent / "folder")
    start, end = SPECIAL.get(model.config.model_type, ["", "", "<start>", "<end>"])[2:]
    text = f"{start}{make.image_token}{end}" * len(images) + f"{start}{end}"
    # Cosmos 3 Edge needs the kinds of tokens, and its processor gives them when it is asked to
    kinds = {"return_mm_token_type_ids": True} if model.config.model_type == "cosmos3_edge" else {}
    given = make(text=[text], images=[images], return_tensors="pt", **kinds)
    with torch.no_grad():
        wanted = model.generate(**given, max_new_tokens=NEW, do_sample=False, pad_token_id=0, eos_token_id=-1)
    return text, wanted[0, given["input_ids"].shape[1] :].tolist()


def check_two_shapes(model: Any, bundle: Bundle) -> None:
    """Each picture alone, and both in one prompt."""
    pictures = [picture(width, height) for height, width in of_type(PICTURES, model.config.model_type, SHAPES)]
    for images in ([pictures[0]], [pictures[1]], pictures):
        text, wanted = generated(model, bundle, images)
        assert bundle.generate(text, NEW, images, ignore_eos=True) == wanted


def test_two_shapes(made: tuple[Any, Bundle]) -> None:
    pytest.importorskip("coreai")
    check_two_shapes(*made)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*Apple's engines:patcomp.errors.ConversionWarning")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in UNTRIED])
def test_two_shapes_of_each(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    shapes = SHAPES_OF.get(kind, SHAPES)
    check_two_shapes(*converted(kind, tmp_path, image_size=SIZE, image_shapes=shapes, check=False))


def test_a_picture_of_another_shape(made: tuple[Any, Bundle]) -> None:
    """It is resized to the nearest shape, with a warning, and then it is what the model sees of such a picture."""
    pytest.importorskip("coreai")
    model, bundle = made
    wide = picture(90, 50)
    text, wanted = generated(model, bundle, [wide.resize((48, 32), 3)])
    with pytest.warns(ConversionWarning, match="resized to 32x48 .convert the model with image_shapes='40x80'"):
        assert bundle.generate(text, NEW, wide, ignore_eos=True) == wanted
    tokens = [5, IMAGE_TOKEN, 7]
    with pytest.warns(ConversionWarning, match="50x90 is stretched to 32x48, the nearest shape of the bundle"):
        found = bundle.generate(tokens, NEW, wide)
    pixels = pixels_of(wide.resize((48, 32), 3), bundle.metadata["vision"])
    assert found == bundle.generate(tokens, NEW, pixels) == bundle.generate([5, *[IMAGE_TOKEN] * 24, 7], NEW, pixels)
    with pytest.raises(LanguageModelError, match="must be 1 x 3 x 32 x 32 or 1 x 3 x 32 x 48 or 1 x 3 x 48 x 16"):
        bundle.generate(tokens, NEW, pixels.transpose(0, 1, 3, 2))


def test_metadata(made: tuple[Any, Bundle], tmp_path: Path) -> None:
    model, bundle = made
    vision = bundle.metadata["vision"]
    assert vision["image_shapes"] == {
        "main_32x48": {"height": 32, "width": 48, "image_token_count": 24},
        "main_48x16": {"height": 48, "width": 16, "image_token_count": 12},
    }
    assert vision["patches"] == {"merged": 2, "channels_last": False}
    found = [each.message for each in check_bundle(bundle.path)]  # which wants halves, as Apple's package does
    assert [each for each in found if "main_" in each] == [
        f"main_{shape}: image_features is 1 x {count} x 100 of float32, and must be 1 x {count} x 100 of float16"
        for shape, count in (("32x48", 24), ("48x16", 12))
    ]
    asset = load(bundle.path / "vision.aimodel")
    assert sorted(asset.function_names) == ["main", "main_32x48", "main_48x16"]
    weights = sum(each.numel() * 4 for each in model.model.visual.parameters())
    assert sum(blob.data.nbytes for blob in asset.module.blobs) < 1.2 * weights
    for change, message in (
        ({"height": 40}, "main_32x48: pixel_values is 1 x 3 x 32 x 48 of float32, and must be 1 x 3 x 40 x 48"),
        ({"image_token_count": 5}, "main_32x48: image_features is 1 x 24 x 100 of float32, and must be 1 x 5 x 100"),
        ({"image_token_count": 5000}, "an image takes 5000 tokens, and language.max_context_length is 1024"),
        ({"width": "48"}, "vision.image_shapes.main_32x48 is {'height': 32, 'width': '48'"),
    ):
        shutil.rmtree(tmp_path / "wrong", ignore_errors=True)
        shutil.copytree(bundle.path, tmp_path / "wrong")
        edited(lambda it, change=change: it["vision"]["image_shapes"]["main_32x48"].update(change))(tmp_path / "wrong")
        assert any(message in each.message for each in check_bundle(tmp_path / "wrong")), message


@pytest.mark.parametrize("kind", PATCH_KINDS)
def test_patches_become_pixels_again(kind: str) -> None:
    tower = tower_of(checkpoint(kind), SHAPES[0])
    pixels = torch.randn(1, 3, *tower.shape)
    given = patch_rows(tower.given(pixels, torch.tensor([[1]]))["pixel_values"].numpy())
    rows = given.reshape(math.prod(tower.patch_grid), -1)
    made = pixels_of_patches(rows, tower.patch_grid, tower.patch_size, **tower.layout)
    assert np.array_equal(made, pixels.numpy())
    with pytest.raises(LanguageModelError, match="the processor is another model's"):
        pixels_of_patches(rows[:, 1:], tower.patch_grid, tower.patch_size, **tower.layout)


def test_images_that_the_processor_pads() -> None:
    first, second = torch.randn(3, 16, 24), torch.randn(3, 32, 8)
    padded = torch.zeros(2, 3, 32, 24)
    padded[0, :, :16], padded[1, :, :, :8] = first, second
    made = {"pixel_values": padded, "image_sizes": torch.tensor([[16, 24], [32, 8]])}
    for found, wanted in zip(images_made(made, {"image_shapes": {}}), (first, second), strict=True):
        assert np.array_equal(found[0], wanted.numpy())


def test_images_of_one_shape() -> None:
    check_one_shape([(32, 48)] * 2, {"one_shape": True})
    check_one_shape([(32, 48), (48, 16)], {})
    with pytest.raises(LanguageModelError, match="the images are of 32x48, 48x16, and the model pads each"):
        check_one_shape([(32, 48), (48, 16)], {"one_shape": True})


def test_nearest() -> None:
    """By height to width first, then by size."""
    shapes = {
        name: dict(zip(SHAPE_KEYS, (height, width, 1), strict=True))
        for name, height, width in (("a", 64, 64), ("b", 32, 48), ("c", 48, 16))
    }
    vision = {"image_size": 32, "image_token_count": 1, "image_shapes": shapes}
    for shape, wanted in (((30, 30), (32, 32)), ((90, 100), (64, 64)), ((48, 80), (32, 48)), ((99, 40), (48, 16))):
        assert nearest_shape(vision, shape) == wanted


@pytest.mark.parametrize("given", ["448", "448x", "0x5x", [(1, 2, 3)], [448], ["axb"], [(-1, 2)]])
def test_no_shapes(given: Any) -> None:
    with pytest.raises(LanguageModelError, match="a shape is height x width, such as '448x672'"):
        shapes_in(given)


def test_shapes_that_a_tower_does_not_take(tmp_path: Path) -> None:
    for kind, shape, message in (
        ("smolvlm", (32, 16), "the image size is 32x16, and smolvlm takes squares only"),
        ("qwen3_vl", (32, 36), "the image size is 32x36, and qwen3_vl takes multiples of 8 pixels"),
    ):
        with pytest.raises(LanguageModelError, match=message):
            convert_vision_language_model(
                checkpoint(kind), out=tmp_path / "bundle", image_processor=PROCESSOR, image_shapes=[shape]
            )
