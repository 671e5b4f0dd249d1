"""Preprocessing before a model that is given as an object: the pixels are those of the transforms of its library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import patcomp
import patcomp.torchvision  # the first, because the settings come from torchvision
from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import Preprocessing
from tests.helpers.command import Command
from tests.models.tasks.comparing import runs

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def photo(height: int, width: int) -> np.ndarray:
    """Edges, gradients and noise."""
    random = np.random.default_rng(3)
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / 5 + c) * np.cos(y / (7 + c)) for c in range(3)], -1)
    return np.clip(128 + 90 * waves + 20 * random.standard_normal((height, width, 3)), 0, 255).astype(np.uint8)


def test_transforms_of_torchvision(native: Native) -> None:
    """Those of the weights of a classifier: of an image of Pillow few bytes differ, by 1 of 255.

    Of a tensor, torchvision resizes in floats, so that more bytes differ by 1.
    """
    from PIL import Image
    from torchvision.transforms import _presets

    transforms = _presets.ImageClassification(crop_size=32, resize_size=40)
    settings = Preprocessing.of(transforms)
    assert settings == Preprocessing(resize=40, crop=(32, 32), mean=MEAN, std=STD)
    model = nn.Conv2d(3, 2, 3).eval()
    image = torch.from_numpy(photo(70, 93))
    program = patcomp.convert(
        settings.before(nn.Identity(), (70, 93)), image, input_names=["image"], output_names=["x"]
    )  # fmt: skip
    of_tensor = transforms(image.permute(2, 0, 1))[None]
    of_pillow = transforms(Image.fromarray(image.numpy()))[None]
    deviations = torch.tensor(STD).reshape(3, 1, 1) * 255
    for found in runs(program, native, "main", {"image": image}):
        torch.testing.assert_close(found["x"], settings(image.permute(2, 0, 1))["pixel_values"], atol=1e-6, rtol=1e-6)
        gaps = [((found["x"] - wanted) * deviations).abs() for wanted in (of_pillow, of_tensor)]
        assert all(gap.max() < 1.01 for gap in gaps)
        assert (gaps[0] > 0.5).float().mean() < 0.03
    whole = settings.before(model, (70, 93))
    torch.testing.assert_close(whole(image), model(settings(image.permute(2, 0, 1))["pixel_values"]))
    patcomp.convert(whole, image, verify=True)


def test_a_compose() -> None:
    from torchvision import transforms as t

    steps = [t.Resize((24, 20), t.InterpolationMode.BICUBIC), t.CenterCrop(16), t.ToTensor(), t.Normalize(MEAN, STD)]
    assert Preprocessing.of(t.Compose(steps)) == Preprocessing((24, 20), "bicubic", (16, 16), MEAN, STD)
    assert Preprocessing.of(t.Compose([t.ToTensor()])) == Preprocessing()


def _refused(name: str) -> tuple[Any, str]:
    from torchvision import transforms as t
    from torchvision.transforms import _presets

    return {
        "flip": (
            t.Compose([t.RandomHorizontalFlip(), t.ToTensor()]),
            "the step RandomHorizontalFlip has no place here",
        ),
        "order": (t.Compose([t.ToTensor(), t.Resize(8)]), "the step Resize has no place here"),
        "bytes": (t.Compose([t.Resize(8)]), "have no step ToTensor"),
        "longest side": (t.Compose([t.Resize(8, max_size=9), t.ToTensor()]), "Resize with max_size"),
        "lanczos": (t.Compose([t.Resize(8, t.InterpolationMode.LANCZOS), t.ToTensor()]), "and not by lanczos"),
        "flow": (_presets.OpticalFlow(), "the transforms OpticalFlow of torchvision do more than"),
        "aliases": (_presets.ImageClassification(crop_size=8, antialias=False), "without antialiasing"),
        "a function": (lambda image: image, "function does not list its steps"),
    }[name]


@pytest.mark.parametrize("name", ["flip", "order", "bytes", "longest side", "lanczos", "flow", "aliases", "a function"])
def test_what_has_no_place(name: str) -> None:
    transforms, message = _refused(name)
    with pytest.raises(PatcompError, match=message):
        Preprocessing.of(transforms)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"filter": "lanczos"}, "Preprocessing.filter must be one of bilinear, bicubic, nearest, got 'lanczos'"),
     ({"mean": (0.5,)}, "Preprocessing.mean must have a number for each of three channels"),
     ({"std": (0, 1, 1)}, "Preprocessing.std divides, and must not be 0")],
)  # fmt: skip
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PatcompError, match=message):
        Preprocessing(**settings)


NETS = """
import torch
from torch import nn
from torchvision.transforms import _presets

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 28 * 28, 3))
pixels = torch.rand(1, 3, 32, 32)


def net():
    return model, (pixels,)


def named():
    return model, {"input": pixels}


def with_transforms():
    return model, (pixels,), _presets.ImageClassification(crop_size=32, resize_size=40)


def with_sizes():
    return model, (pixels,), {"input": None}


def exported():
    return torch.export.export(model.eval(), (pixels,))


def of_texts():
    return nn.Embedding(4, 3), (torch.zeros(1, 2, dtype=torch.int64),)


def two():
    return nn.Bilinear(3, 3, 2), (torch.rand(1, 3), torch.rand(1, 3))
"""
SETTINGS = ["mean=0.485,0.456,0.406", "std=0.229,0.224,0.225"]


@pytest.mark.parametrize(
    ("function", "options", "size"),
    [("with_transforms", ["--preprocess", "image", "--image", "70x93"], (70, 93)),
     ("named", [each for value in (*SETTINGS, "resize=40", "crop=32") for each in ("--preprocess", value)], (32, 32))],
)  # fmt: skip
def test_a_function_of_a_python_file(
    function: str, options: list[str], size: tuple[int, int], patcomp: Command, tmp_path: Path, one_child: None
) -> None:
    """`--preprocess` puts what torchvision does for a picture before the model, as its transforms or as settings."""
    from PIL import Image
    from torchvision.transforms import _presets

    (tmp_path / "nets.py").write_text(NETS)
    done = patcomp("convert", f"nets.py:{function}", *options, "-o", "net.aimodel", "--verify")
    assert done.code == 0, done.err
    image = photo(*size)
    Image.fromarray(image).save(tmp_path / "photo.png")
    done = patcomp("run", "net.aimodel", "--input", "image=photo.png", "-o", "made.npz")
    assert done.code == 0, done.err
    (made,) = np.load(tmp_path / "made.npz").values()
    held: dict[str, Any] = {}
    exec(NETS, held)
    pixels = _presets.ImageClassification(crop_size=32, resize_size=40)(Image.fromarray(image))[None]
    with torch.no_grad():
        wanted, other = (held["model"].eval()(each).numpy() for each in (pixels, pixels.flip(1)))
    np.testing.assert_allclose(made, wanted, atol=0.02)  # a few bytes differ from Pillow's by 1 of 255
    assert np.abs(made - other).max() > 0.1  # with red for blue it is something else


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [("net", "--preprocess image", "nothing says how the bytes of an image are normalised: let the function return"),
     ("net", "--image 32x32", "nothing says how the bytes of an image are normalised"),
     ("with_transforms", "", "returns transforms behind the inputs; give --preprocess image"),
     ("with_sizes", "--preprocess image", "returns dynamic shapes, and --preprocess image takes images of one size"),
     ("exported", "--preprocess image", "--preprocess must be known when a module is exported"),
     ("with_transforms", "--preprocess image --image 40x40 --preprocess crop=30", "do not run on an image of 40x40"),
     ("of_texts", "--preprocess mean=0 --preprocess std=1", "(pixels 1x2), and only one image or video of three"),
     ("two", "--preprocess mean=0 --preprocess std=1", "Bilinear takes input1, input2, and preprocessing goes before")],
)  # fmt: skip
def test_functions_without_an_image(
    function: str, options: str, message: str, patcomp: Command, tmp_path: Path
) -> None:  # fmt: skip
    (tmp_path / "nets.py").write_text(NETS)
    done = patcomp("convert", f"nets.py:{function}", *options.split(), "--text", "-")
    assert done.code != 0
    assert message in done.err


def test_the_mode_of_a_model_stays() -> None:
    """The parts of a model may be in other modes than the whole."""
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2).eval())
    whole = Preprocessing().before(model, (8, 8))
    assert (whole.training, model.training, model[0].training, model[1].training) == (True, True, True, False)
