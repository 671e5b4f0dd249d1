"""Images for vision-language bundles: prepared as the image processors of transformers prepare them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.errors import ConversionWarning
from patcomp_models.language import LanguageModelError
from patcomp_models.language.vision.generating import expanded_prompt
from patcomp_models.language.vision.images import pixels_of
from patcomp_models.language.vision.settings import ImageSettings, processor_of
from patcomp_models.language.vision.towers import tower_of
from tests.models.language.vision_checkpoints import SIZE, SQUARE, checkpoint, picture

MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.3, 0.25]


def block(settings: ImageSettings, size: int = SIZE) -> dict[str, Any]:
    """The block `vision` of a bundle."""
    return {"image_size": size, "image_mean": [*settings.mean], "image_std": [*settings.std],
            "rescale_factor": settings.rescale, "image_strategy": settings.strategy,
            "resample": settings.resample}  # fmt: skip


PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "stretched": ("SiglipImageProcessorPil", {"size": SQUARE, "image_mean": MEAN, "image_std": STD}),
    "cropped": (
        "CLIPImageProcessorPil",
        {"size": {"shortest_edge": SIZE}, "crop_size": SQUARE, "image_mean": MEAN, "image_std": STD, "resample": 2},
    ),
    "padded": (
        "LlavaImageProcessorPil",
        {"size": {"shortest_edge": SIZE}, "crop_size": SQUARE, "do_pad": True, "image_mean": MEAN, "image_std": STD},
    ),
    "neither normalized nor resampled": (
        "SiglipImageProcessorPil",
        {"size": SQUARE, "do_normalize": False, "resample": 0, "rescale_factor": 1 / 127.5},
    ),
    "not rescaled": (
        "SiglipImageProcessorPil",
        {"size": SQUARE, "do_rescale": False, "image_mean": [100.0, 90.0, 80.0], "image_std": [50.0, 60.0, 70.0]},
    ),
    "gemma3": ("Gemma3ImageProcessorPil", {"size": SQUARE}),
    "internvl": ("GotOcr2ImageProcessorPil", {"size": SQUARE}),
}


@pytest.mark.parametrize("sizes", [(SIZE, SIZE), (71, 40), (40, 77), (20, 25)])
@pytest.mark.parametrize("name", PROCESSORS)
def test_as_the_processor(name: str, sizes: tuple[int, int]) -> None:
    import transformers

    kind, options = PROCESSORS[name]
    processor = getattr(transformers, kind)(**options)
    wanted = processor(picture(*sizes), return_tensors="np")["pixel_values"]
    settings = ImageSettings.of(processor.to_dict())
    assert settings.size == SIZE
    made = pixels_of(picture(*sizes), block(settings))
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, np.asarray(wanted), atol=1e-5 * max(1.0, float(np.abs(wanted).max())))


@pytest.mark.parametrize(
    ("kind", "processor", "options"),
    [
        ("qwen2_5_vl", "Qwen2VLImageProcessorPil", {"patch_size": 4}),
        ("qwen3_vl", "Qwen2VLImageProcessorPil", {"patch_size": 4}),
        ("smolvlm", "SmolVLMImageProcessorPil", {"do_image_splitting": False}),
        ("idefics3", "Idefics3ImageProcessorPil", {"do_image_splitting": False}),
        ("lfm2_vl", "Lfm2VlImageProcessor", {"encoder_patch_size": 8, "tile_size": SIZE, "do_image_splitting": False}),
    ],
)
def test_the_model_is_given_what_its_processor_makes(kind: str, processor: str, options: dict[str, Any]) -> None:
    """An image of the bundle's size, which no processor resizes."""
    import transformers

    sizes = {"qwen": {"shortest_edge": 16, "longest_edge": 10**6}, "lfm2": SQUARE}.get(kind[:4], {"longest_edge": SIZE})
    most = {"max_image_size": {"longest_edge": SIZE}} if "longest_edge" in sizes and len(sizes) == 1 else {}
    few = {"min_image_tokens": 1, "max_image_tokens": 4} if kind == "lfm2_vl" else {}
    made = getattr(transformers, processor)(size=sizes, **options, **most, **few)
    found = made(images=picture(SIZE, SIZE), return_tensors="pt")
    settings = ImageSettings.of(made.to_dict())
    pixels = torch.from_numpy(pixels_of(picture(SIZE, SIZE), block(settings)))
    given = tower_of(checkpoint(kind), SIZE).given(pixels, torch.tensor([[1, 90]]))
    for name in ("pixel_values", "image_grid_thw", "spatial_shapes"):
        assert (name in given) == (name in found)
        if name in given:
            torch.testing.assert_close(given[name], found[name].to(given[name].dtype), rtol=0, atol=1e-5)


def test_a_crop_with_a_margin_is_a_warning() -> None:
    processor = {"do_center_crop": True, "size": {"shortest_edge": 40}, "crop_size": SQUARE, "image_mean": MEAN,
                 "image_std": STD}  # fmt: skip
    with pytest.warns(ConversionWarning, match="resizes the shorter side to 40 before it crops 32"):
        assert ImageSettings.of(processor).size == SIZE


@pytest.mark.parametrize("key", ["do_image_splitting", "crop_to_patches", "do_pan_and_scan"])
def test_tiles_are_noticed(key: str) -> None:
    assert [ImageSettings.of({**GOOD, key: value}).makes_tiles for value in (True, False, None)] == [True, False, False]


GOOD = {"image_mean": MEAN, "image_std": STD}


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        ({}, "the image processor has no image_mean, so it is not known how images are prepared"),
        ({"image_mean": MEAN}, "the image processor has no image_std"),
        ({**GOOD, "image_mean": [1, 2]}, r"image_mean of the image processor is \[1, 2\]; it must be three numbers"),
        ({**GOOD, "image_std": ["a"] * 3}, "it must be three numbers"),
        ({**GOOD, "image_std": [0.5, 0, 0.5]}, "its numbers must not be 0"),
        ({**GOOD, "rescale_factor": math.inf}, "rescale_factor of the image processor is inf, and must be a number"),
        ({**GOOD, "size": {"height": 32, "width": 64}}, "makes images of 64 x 32, and the images of a bundle are squ"),
    ],
)
def test_settings_that_a_bundle_cannot_have(processor: dict[str, Any], message: str) -> None:
    with pytest.raises(LanguageModelError, match=message):
        ImageSettings.of(processor)


def test_where_settings_are_found(tmp_path: Path) -> None:
    with pytest.raises(LanguageModelError, match=r"has no settings of an image processor \(preprocessor_config"):
        processor_of(tmp_path)
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_seq_len": 4}))
    with pytest.raises(LanguageModelError, match="has no settings of an image processor"):
        processor_of(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 2}))
    assert processor_of(tmp_path) == {"size": 2}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": {"size": 1}}))
    assert processor_of(tmp_path) == {"size": 1}
    (tmp_path / "processor_config.json").write_text("{")
    with pytest.raises(LanguageModelError, match=r"processor_config\.json' is not JSON"):
        processor_of(tmp_path)


def test_files(tmp_path: Path) -> None:
    settings = block(ImageSettings.of(GOOD))
    path = tmp_path / "image.png"
    picture(50, 40).save(path)
    assert np.array_equal(pixels_of(path, settings), pixels_of(picture(50, 40), settings))
    prepared = pixels_of(str(path), settings)
    assert np.array_equal(pixels_of(prepared, settings), prepared)
    for given, message in (
        (tmp_path / "none.png", r"there is no file .*none\.png'; give the path of an image"),
        (tmp_path, "there is no file"),
        (np.zeros((3, 32, 32)), r"the pixels are of shape \[3, 32, 32\]; they must be 1 x 3 x 32 x 32"),
    ):
        with pytest.raises(LanguageModelError, match=message):
            pixels_of(given, settings)
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(LanguageModelError, match="is not an image that Pillow reads"):
        pixels_of(path, settings)


def test_a_turned_photograph(tmp_path: Path) -> None:
    """The orientation of a camera, in EXIF, is followed, as transformers does."""
    image = pytest.importorskip("PIL.Image")
    exif = image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    picture(SIZE, SIZE).save(tmp_path / "turned.png", exif=exif)
    settings = block(ImageSettings.of(GOOD))
    turned = pixels_of(tmp_path / "turned.png", settings)
    plain = pixels_of(picture(SIZE, SIZE), settings)
    assert np.array_equal(turned, np.rot90(plain, -1, (2, 3)))


VISION = {"image_token_id": 9, "image_token_count": 3}


@pytest.mark.parametrize(
    ("tokens", "images", "wanted"),
    [
        ([1, 9, 2], 1, [1, 9, 9, 9, 2]),
        ([1, 9, 9, 9, 2], 1, [1, 9, 9, 9, 2]),
        ([9, 1, 9], 2, [9, 9, 9, 1, 9, 9, 9]),
        ([1, *[9] * 6], 2, [1, *[9] * 6]),
        ([1, 2], 0, [1, 2]),
        ([1, 2], 1, r"the prompt has the image token '<image>' \(token 9\) 0 times; put it once where"),
        ([1, 9, 9, 9], 2, r"has the image token '<image>' \(token 9\) 3 times; put it 2 times, where"),
        ([1, 9, 9], 1, r"the prompt has the image token '<image>' \(token 9\) 2 times; put it once where"),
        ([1, 9], 0, r"the prompt has the image token '<image>' \(token 9\), and there is no image"),
    ],
)
def test_prompts(tokens: list[int], images: int, wanted: list[int] | str) -> None:
    if isinstance(wanted, str):
        with pytest.raises(LanguageModelError, match=wanted):
            expanded_prompt(tokens, VISION, counts=[3] * images, shown="<image>")
    else:
        assert expanded_prompt(tokens, VISION, counts=[3] * images) == wanted
