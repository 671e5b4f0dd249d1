"""What bundles of all kinds have in common, with the smallest of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patcomp_models.bundles import check_bundle, convert_bundle
from patcomp_models.bundles import components as converting
from tests.helpers.command import Command
from tests.models.bundles.refusals import assert_refused


def test_a_bundle(stable_diffusion_bundle: Path) -> None:
    assert check_bundle(stable_diffusion_bundle) == ()
    assert sorted(path.name for path in stable_diffusion_bundle.iterdir()) == [
        "TextEncoder.aimodel", "Unet.aimodel", "VAEDecoder.aimodel", "VAEEncoder.aimodel", "metadata.json", "tokenizer",
    ]  # fmt: skip


def test_a_conversion_that_was_killed_goes_on(
    stable_diffusion_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def write(component: Any, *others: Any) -> None:
        seen.append(component.role)
        if len(seen) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(converting, "_write", write)
    with pytest.raises(KeyboardInterrupt):
        convert_bundle(stable_diffusion_folder, out=tmp_path / "out")
    convert_bundle(stable_diffusion_folder, out=tmp_path / "out")
    assert seen == ["text_encoder", "unet", "vae_decoder", "vae_decoder", "vae_encoder"]
    assert (tmp_path / "out").is_dir()


def test_a_conversion_begins_again_for_other_weights(
    stable_diffusion_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of weights in a folder of the folder."""
    seen: list[str] = []

    def write(component: Any, *others: Any) -> None:
        seen.append(component.role)
        if len(seen) == 2:
            raise KeyboardInterrupt

    folder = tmp_path / "folder"
    shutil.copytree(stable_diffusion_folder, folder)
    monkeypatch.setattr(converting, "_write", write)
    with pytest.raises(KeyboardInterrupt):
        convert_bundle(folder, out=tmp_path / "out")
    (weights,) = (folder / "text_encoder").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes())
    convert_bundle(folder, out=tmp_path / "out")
    assert seen[:3] == ["text_encoder", "unet", "text_encoder"]


def _edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(bundle: Path) -> None:
        file = bundle / "metadata.json"
        metadata = json.loads(file.read_text())
        change(metadata)
        file.write_text(json.dumps(metadata))

    return edit


DEPARTURES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no metadata": (lambda b: (b / "metadata.json").unlink(), "there is no metadata.json"),
    "no JSON": (lambda b: (b / "metadata.json").write_text("{"), "is not JSON"),
    "another version": (_edited(lambda m: m.update(metadata_version="1")), "metadata_version is '1'"),
    "another kind": (_edited(lambda m: m.update(kind="painter")), "kind is 'painter', and must be one of diffusion"),
    "no name": (_edited(lambda m: m.pop("name")), "name is missing"),
    "no assets": (_edited(lambda m: m.pop("assets")), "assets is missing"),
    "a file that is not there": (
        _edited(lambda m: m["assets"].update(unet="U.aimodel")), "assets.unet is U.aimodel, which does not exist"),
    "no unet": (_edited(lambda m: m["assets"].pop("unet")), "assets.unet is missing"),
    "no block": (_edited(lambda m: m.pop("diffusion")), "diffusion is missing"),
    "another size": (
        _edited(lambda m: m["diffusion"].update(image_size=128)),
        "the input sample of unet is 2 x 4 x 8 x 8 of float32, and must be 2 x 4 x 16 x 16"),
    "no merges": (lambda b: (b / "tokenizer" / "merges.txt").unlink(), "there is no tokenizer/merges.txt"),
    "exchanged assets": (
        _edited(lambda m: m["assets"].update(vae_decoder="VAEEncoder.aimodel")), "of vae_decoder is 1 x 3 x 64 x 64"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEPARTURES)
def test_departures(name: str, stable_diffusion_bundle: Path, tmp_path: Path) -> None:
    change, message = DEPARTURES[name]
    bundle = tmp_path / "bundle"
    shutil.copytree(stable_diffusion_bundle, bundle)
    change(bundle)
    assert message in "\n".join(map(str, check_bundle(bundle)))


def _without(*names: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for name in names:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def _config(architectures: list[str], **config: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"architectures": architectures, **config}))

    return write


BAD: dict[str, tuple[Callable[[Path], object], dict[str, Any], str]] = {
    "nothing": (lambda f: shutil.rmtree(f), {}, "there is no folder"),
    "no index": (_without("model_index.json"), {}, "has no model_index.json and no config.json"),
    "a broken index": (lambda f: (f / "model_index.json").write_text("["), {}, "is not JSON"),
    "another pipeline": (
        lambda f: (f / "model_index.json").write_text('{"_class_name": "PaintPipeline"}'), {},
        "holds PaintPipeline, which becomes no bundle"),
    "no class": (_config([]), {}, "holds no class that it names, which becomes no bundle"),
    "a type that is no text": (_config(["Painter"], model_type=["x"]), {}, "holds Painter, which becomes no bundle"),
    "a class that is no text": (_config([7]), {}, "holds 7, which becomes no bundle"),
    "a classifier": (
        _config(["ViTForImageClassification"]), {}, "becomes one asset; name the output NAME.aimodel"),
    "no scheduler": (_without("scheduler"), {}, "has no folder scheduler"),
    "no weights": (_without("unet/diffusion_pytorch_model.safetensors"), {}, "diffusers cannot load UNet2DCondition"),
    "an unknown kind": (lambda f: None, {"kind": "painter"}, "there is no kind 'painter'; the kinds are"),
    "an unknown option": (lambda f: None, {"steps": 4}, "have no option 'steps'; they have image_size"),
    "an option of another type": (lambda f: None, {"image_size": "512"}, "image_size is '512', and must be a whole n"),
    "a name that is no text": (lambda f: None, {"name": 7}, "name is 7, and must be a text"),
    "an unknown type": (lambda f: None, {"dtype": "int4"}, "dtype is one of float16"),
    "a size that does not divide": (lambda f: None, {"image_size": 65}, "must be a multiple of 8"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_inputs(name: str, stable_diffusion_folder: Path, tmp_path: Path) -> None:
    change, options, message = BAD[name]
    assert_refused(stable_diffusion_folder, change, options, message, tmp_path)


def test_the_command(
    patcomp: Command, stable_diffusion_bundle: Path, stable_diffusion_folder: Path, tmp_path: Path
) -> None:
    shown = patcomp("inspect", str(stable_diffusion_bundle))
    assert "unet, function main" in shown.out
    assert "sample: 2x4x8x8xf32" in shown.out
    refused = patcomp("convert", str(stable_diffusion_folder), "-o", str(tmp_path / "sd"), "--text", "sd.mlir")
    assert refused.code == 2
    assert "--text is for a single asset, and this conversion makes a bundle" in refused.err
