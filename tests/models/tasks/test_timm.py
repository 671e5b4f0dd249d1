"""Image models of timm, from folders and by name; with a stand-in where timm is not installed."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from patcomp.emit.native import Native
from patcomp.errors import ConversionWarning, PatcompError
from patcomp_models.tasks import convert_folder
from tests.helpers.command import Command
from tests.models.tasks.comparing import image, runs, same


@pytest.mark.slow
def test_timm(tmp_path: Path, native: Native) -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("resnet18", num_classes=5).eval()
    timm.models.save_for_hf(model, tmp_path / "model", safe_serialization=True)
    program = convert_folder(tmp_path / "model")
    with torch.no_grad():
        wanted = model(image(224))
    for found in runs(program, native, "main", {"pixel_values": image(224)}):
        same(found["logits"], wanted)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_timm_by_name(suffix: str, tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = timm.create_model("resnet18", num_classes=5).eval()
    file = tmp_path / f"weights{suffix}"
    save_file(model.state_dict(), file) if suffix == ".safetensors" else torch.save(model.state_dict(), file)
    with torch.no_grad():
        same(convert_folder("timm:resnet18", weights=file).run(image(224)), model(image(224)))
    with pytest.raises(PatcompError, match="does not fit resnet34"):
        convert_folder("timm:resnet34", weights=file)


@pytest.mark.slow
def test_a_folder_of_timm_without_a_weight(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    from safetensors.torch import load_file, save_file

    timm.models.save_for_hf(timm.create_model("resnet18", num_classes=5), tmp_path, safe_serialization=True)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["layer1.0.conv1.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(
        PatcompError, match=r"timm cannot load .*Missing key\(s\) in state_dict: \"layer1.0.conv1.weight"
    ):
        convert_folder(tmp_path)


SIZES = {"resnet18": (300, 333), "vit_tiny_patch16_224": (224, 260), "convnext_atto": (256, 256)}
"""Images that are resized, or not (the last one), and cropped."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_bytes_of_an_image(name: str, tmp_path: Path, native: Native) -> None:
    """Pixels are those of timm's transform, up to 2 of 255 in a hundredth of the resized ones."""
    timm = pytest.importorskip("timm")
    from PIL import Image

    from patcomp_models.tasks.timm_images import timm_transform

    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=5).eval()
    timm.models.save_for_hf(model, tmp_path / "model", safe_serialization=True)
    program = convert_folder(tmp_path / "model", image=SIZES[name])
    bytes_ = torch.randint(0, 256, (*SIZES[name], 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    config = timm.data.resolve_model_data_config(model)
    own = timm.data.create_transform(**config)(Image.fromarray(bytes_.numpy()))[None]
    pixels = timm_transform(timm, config, SIZES[name])(bytes_.permute(2, 0, 1))["pixel_values"]
    apart = (pixels - own).abs() > 1e-5
    assert apart.float().mean() < (0.01 if name != "convnext_atto" else 1e-9)
    with torch.no_grad():
        wanted, upstream = model(pixels), model(own)
    for found in runs(program, native, "main", {"image": bytes_}):
        torch.testing.assert_close(found["logits"], wanted, atol=1e-5 * float(wanted.abs().max()), rtol=0)
        torch.testing.assert_close(found["logits"], upstream, atol=1e-3 * float(wanted.abs().max()), rtol=0)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """A module `timm` with one architecture, whose head has as many classes as it is asked for."""

    def create_model(name: str, *, pretrained: bool, num_classes: int = 1000) -> nn.Module:
        assert (name, pretrained) == ("small", False)
        return nn.Sequential(OrderedDict(body=nn.Flatten(), head=nn.Linear(3 * 8 * 8, num_classes)))

    timm = ModuleType("timm")
    timm.create_model, timm.is_model = create_model, "small".__eq__  # type: ignore[attr-defined]
    timm.list_models = lambda: ["small"]  # type: ignore[attr-defined]
    timm.get_pretrained_cfg = lambda name: SimpleNamespace(classifier="head")  # type: ignore[attr-defined]
    timm.data = SimpleNamespace(  # type: ignore[attr-defined]
        resolve_model_data_config=lambda model: {"input_size": (3, 8, 8)}
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    return create_model("small", pretrained=False, num_classes=5).eval()


def test_a_name_of_timm_with_weights(patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    model = stand_in(monkeypatch)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    torch.save({"state_dict": model.state_dict()}, tmp_path / "weights.pth")
    for file in ("weights.safetensors", "weights.pth"):
        program = convert_folder("timm:small", weights=tmp_path / file)
        x = torch.rand(1, 3, 8, 8)
        same(program.run(x), model(x).detach())
    done = patcomp("convert", "timm:small", "--weights", str(tmp_path / "weights.pth"), "--text", "-", "--quiet")
    assert done.code == 0, done.err
    assert "tensor<1x5xf32>" in done.out


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("harm",)


def test_bad_names_of_timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)
    torch.save({"x": torch.ones(1)}, tmp_path / "other.pth")
    torch.save({"x": Harmful()}, tmp_path / "harmful.pth")
    torch.save([1], tmp_path / "list.pth")
    (tmp_path / "damaged.safetensors").write_bytes(b"?")
    for name, weights, message in (
        ("timm:smal", "other.pth", "timm has no model 'smal'; it has small"),
        ("timm:small", None, "timm:small needs a file of weights; pass weights="),
        ("timm:small", "missing.pth", "there is no file .*missing.pth"),
        (
            "timm:small",
            "other.pth",
            "does not fit small: missing head.bias, head.weight; unexpected x",
        ),
        ("timm:small", "harmful.pth", "harmful.pth' is not a file of weights"),
        ("timm:small", "list.pth", "holds other things than weights by name"),
        ("timm:small", "damaged.safetensors", "damaged.safetensors' is not a file of weights"),
        (str(tmp_path), "other.pth", "goes with a model by name, timm:resnet18"),
    ):
        with pytest.raises(PatcompError, match=message):
            convert_folder(name, weights=weights and tmp_path / weights)


def test_a_weight_of_timm_that_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    model = stand_in(monkeypatch)
    file = tmp_path / "weights.safetensors"
    save_file({"head.weight": model.state_dict()["head.weight"][:, :9].clone(), "x": torch.ones(1)}, file)
    message = "head.weight is 5x9 and must be 1000x192; missing head.bias; unexpected x; complete"
    with pytest.raises(PatcompError, match=message):
        convert_folder("timm:small", weights=file)
    with pytest.warns(ConversionWarning, match="are drawn at random: head.bias, head.weight$") as warned:
        convert_folder("timm:small", weights=file, allow_missing="head.*", allow_unexpected=["x"])
    assert any(str(each.message).endswith("are left out: x") for each in warned)


def test_folders_of_timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """timm draws a head at random where its configuration names two numbers of classes, and loads all else or fails."""
    from safetensors.torch import save_file

    stand_in(monkeypatch)
    save_file({"x": torch.ones(1)}, tmp_path / "model.safetensors")
    config: dict[str, Any] = {"architecture": "small", "num_classes": 5, "pretrained_cfg": {"input_size": [3, 8, 8]}}

    def create_model(name: str, *, pretrained: bool) -> nn.Module:
        assert (name, pretrained) == (f"local-dir:{tmp_path.resolve()}", True)
        raise RuntimeError("Error(s) in loading state_dict:\n\tMissing key(s)")

    monkeypatch.setattr(sys.modules["timm"], "create_model", create_model)
    for changes, options, message in (
        ({}, {}, r"timm cannot load .*: Error\(s\) in loading state_dict: Missing key\(s\)"),
        ({"model_args": {"num_classes": 7}}, {}, "config.json' says 5 classes, and 7 in its model_args"),
        (
            {},
            {"allow_missing": "head.*"},
            "a model of timm, which loads all weights or none; allow_missing= and allow_un",
        ),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(PatcompError, match=message):
            convert_folder(tmp_path, **options)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(PatcompError, match="has its weights in pickled files of PyTorch"):
        convert_folder(tmp_path)


class MaybeToTensor:
    """timm's step that makes a tensor of an image."""

    def __call__(self, image: Any) -> torch.Tensor:
        from torchvision.transforms import functional

        return functional.to_tensor(image)


class ResizeToSequence:
    """A step of timm that is of no class of torchvision."""


def transform(mode: str, *others: Any) -> Any:
    from torchvision import transforms

    return transforms.Compose([
        transforms.Resize(10, interpolation=transforms.InterpolationMode(mode)), transforms.CenterCrop((8, 8)),
        MaybeToTensor(), transforms.Normalize(mean=torch.tensor([0.4] * 3), std=torch.tensor([0.5] * 3)), *others,
    ])  # fmt: skip


def test_bytes_of_an_image_with_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: Native) -> None:
    from PIL import Image
    from safetensors.torch import save_file

    model = stand_in(monkeypatch)
    timm = sys.modules["timm"]
    timm.data.resolve_model_data_config = lambda model: {"input_size": (3, 8, 8), "std": (0.5,) * 3}
    timm.data.create_transform = lambda **config: transform("bicubic")
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    program = convert_folder("timm:small", weights=tmp_path / "weights.safetensors", image=(30, 21))
    bytes_ = torch.randint(0, 256, (30, 21, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        wanted = model(transform("bicubic")(Image.fromarray(bytes_.numpy()))[None])
    for found in runs(program, native, "main", {"image": bytes_}):
        torch.testing.assert_close(found["logits"], wanted, atol=0.05, rtol=0)  # a few pixels differ by 1 of 255


@pytest.mark.parametrize(
    ("made", "size", "message"),
    [(lambda: transform("bicubic"), (0, 9), "an image of 0x9 has no pixels"),
     (lambda: transform("lanczos"), (30, 21), "images are resized by .* here, and not by lanczos"),
     (lambda: transform("bilinear", ResizeToSequence()), (30, 21), "the step ResizeToSequence has no place here"),
     (lambda: transform("bilinear"), (30, 21), "computes other pixels than PyTorch")],
)  # fmt: skip
def test_transforms_without_an_equal(
    made: Any, size: tuple[int, int], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import save_file

    model = stand_in(monkeypatch)
    timm = sys.modules["timm"]
    timm.data.resolve_model_data_config = lambda model: {"input_size": (3, 8, 8), "std": (0.5,) * 3}
    timm.data.create_transform = lambda **config: made()
    if "other pixels" in message:
        monkeypatch.setattr(MaybeToTensor, "__call__", lambda self, image: _tensor(image) * 0.9)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    with pytest.raises(PatcompError, match=message) as caught:
        convert_folder("timm:small", weights=tmp_path / "weights.safetensors", image=size)
    assert "\n" not in str(caught.value)


def _tensor(image: Any) -> torch.Tensor:
    from torchvision.transforms import functional

    return image if isinstance(image, torch.Tensor) else functional.to_tensor(image)
