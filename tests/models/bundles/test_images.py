"""Images of bundles are those of diffusers; what is left out is said; what cannot be done is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp_models.bundle_folders.revisions import NEW
from patcomp_models.bundles import BundleError, check_bundle, convert_bundle, generate_image
from patcomp_models.bundles.diffusion.tiles import decoded_in_tiles, starts
from patcomp_models.bundles.diffusion.variants import VARIANTS
from tests.helpers.command import Command
from tests.models.bundles.conftest import Pipelines
from tests.models.bundles.pipelines import of_diffusers, signal_to_noise

SLOW = ("stable_diffusion_xl", "flux2_klein", "flux")
NAMES = ["stable_diffusion", "stable_diffusion_3", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


def image_of_diffusers(folder: Path, prompt: str, size: int, seed: int, **options: Any) -> np.ndarray:
    """The image that the pipeline of diffusers makes."""
    return of_diffusers(folder, prompt=prompt, height=size, width=size, seed=seed, **options)


@pytest.mark.parametrize("name", NAMES)
def test_images(name: str, pipelines: Pipelines) -> None:
    pytest.importorskip("coreai")
    folder, bundle = pipelines(name)
    size = json.loads((bundle / "metadata.json").read_text())["diffusion"]["image_size"]
    negative = {} if name.startswith("flux") else {"negative_prompt": "c"}
    wanted = image_of_diffusers(
        folder, "ab a", size, seed=3, guidance_scale=4.0, num_inference_steps=3, **negative
    )  # fmt: skip
    made = generate_image(bundle, "ab a", seed=3, guidance=4.0, steps=3, **negative)
    assert wanted.std() > 0.05
    assert signal_to_noise(made, wanted) > 100


@pytest.mark.slow
@pytest.mark.parametrize(("prompt", "steps", "guidance"), [("ab a", 2, 4.5), ("b", 2, 4.5), ("ab a", 3, 1.0)])
def test_images_of_sana_sprint(prompt: str, steps: int, guidance: float, pipelines: Pipelines) -> None:
    """Two steps have a time between them in diffusers, and all other numbers have none."""
    pytest.importorskip("coreai")
    folder, bundle = pipelines("sana_sprint")
    times = {} if steps == 2 else {"intermediate_timesteps": None}
    wanted, other = (
        image_of_diffusers(
            folder, text, 64, seed=3, guidance_scale=guidance, num_inference_steps=steps, use_resolution_binning=False,
            **times,
        )
        for text in (prompt, "c" * 40)
    )  # fmt: skip
    made = generate_image(bundle, prompt, seed=3, steps=steps, guidance=guidance)
    assert wanted.std() > 0.05
    assert signal_to_noise(made, wanted) > 100 > signal_to_noise(other, wanted)
    assert [each.message for each in check_bundle(bundle, NEW)] == []
    assert "diffusion.type is 'sana-sprint'" in check_bundle(bundle)[0].message
    with pytest.raises(BundleError, match="SanaSprintPipeline takes no negative prompt"):
        generate_image(bundle, prompt, negative_prompt="c")


def test_images_without_guidance(stable_diffusion_folder: Path, stable_diffusion_bundle: Path) -> None:
    pytest.importorskip("coreai")
    wanted = image_of_diffusers(
        stable_diffusion_folder, "b", 64, seed=4, guidance_scale=1.0, num_inference_steps=2
    )  # fmt: skip
    assert signal_to_noise(generate_image(stable_diffusion_bundle, "b", seed=4, guidance=1, steps=2), wanted) > 100


@pytest.mark.slow
def test_references(tmp_path: Path) -> None:
    """FLUX.2 in the later form makes the images of diffusers, without and with an image that they follow; and a coarser
    grid of it is what the unmodified transformer computes of as many tokens."""
    pytest.importorskip("coreai")
    from diffusers import Flux2Transformer2DModel
    from PIL import Image

    from patcomp.emit.reading import opened
    from patcomp_models.bundles.diffusion.flux2 import Flux2Klein
    from tests.models.bundles.pipelines import flux2_klein

    folder = flux2_klein(tmp_path)
    options = {"dtype": "float32", "image_size": 64, "revision": NEW}
    bundle = convert_bundle(folder, out=tmp_path / "bundle", verify=False, **options)
    assert [each.message for each in check_bundle(bundle, NEW)] == []
    assert "the input img_ids of transformer is 1 x 16 x 4" in check_bundle(bundle)[0].message
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    made = []
    for image in (None, pixels):
        given = {} if image is None else {"image": Image.fromarray(image)}
        wanted = image_of_diffusers(folder, "ab a", 64, seed=3, guidance_scale=4.0, num_inference_steps=2, **given)
        found = generate_image(
            bundle, "ab a", seed=3, guidance=4.0, steps=2, image=None if image is None else image / 255
        )
        assert signal_to_noise(found, wanted) > 100
        made.append(found)
    assert signal_to_noise(*made) < 90
    plain = Flux2Transformer2DModel.from_pretrained(folder / "transformer").eval()
    entries = {each.name: each for each in Flux2Klein(folder, "float32", 64, revision=NEW).components()[1].entries()}
    assert [*entries] == ["main", "img2img_full", "img2img_half", "img2img_quarter"]
    with opened(bundle / "Transformer.aimodel") as native:
        for name in ("img2img_half", "img2img_quarter"):
            inputs = entries[name].inputs
            with torch.no_grad():
                wanted = plain(**inputs, return_dict=False)[0]
            given = {each: value.numpy() for each, value in inputs.items()}
            found = native.call(bundle / "Transformer.aimodel", given, {}, name)[0]["output"]
            torch.testing.assert_close(torch.as_tensor(np.asarray(found)), wanted, atol=2e-5, rtol=0)


@pytest.mark.slow
def test_images_that_follow_others(pipelines: Pipelines) -> None:
    pytest.importorskip("coreai")
    folder, bundle = pipelines("stable_diffusion_controlnet")
    image = np.random.default_rng(0).random((64, 64, 3), dtype=np.float32)
    given = torch.from_numpy(image).permute(2, 0, 1)[None]
    wanted = image_of_diffusers(folder, "a", 64, seed=1, guidance_scale=4.0, num_inference_steps=2, image=given)
    made, other = (generate_image(bundle, "a", seed=1, guidance=4, steps=2, image=each) for each in (image, 1 - image))
    assert signal_to_noise(made, wanted) > 100
    assert signal_to_noise(other, wanted) < 60
    with pytest.raises(BundleError, match="takes an image of 64 x 64 pixels, which its ControlNet follows"):
        generate_image(bundle, "a")
    with pytest.raises(BundleError, match="the image is 32 x 64 x 3, and must be 64 x 64 x 3"):
        generate_image(bundle, "a", image=image[::2])


def test_a_tokenizer_that_says_no_length(stable_diffusion_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    bundle = tmp_path / "bundle"
    shutil.copytree(stable_diffusion_bundle, bundle)
    config = bundle / "tokenizer" / "tokenizer_config.json"
    content = json.loads(config.read_text())
    assert content.pop("model_max_length") == 77
    config.write_text(json.dumps(content))
    given, wanted = (generate_image(place, "b" * 90, steps=1) for place in (bundle, stable_diffusion_bundle))
    np.testing.assert_array_equal(given, wanted)


def test_the_command(patcomp: Command, stable_diffusion_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    from PIL import Image

    options = ("--prompt", "a", "--steps", "1", "--guidance", "3", "--negative-prompt", "b", "--seed", "2")
    made = patcomp("generate-image", str(stable_diffusion_bundle), *options, "-o", "a.png")
    assert (made.code, made.out) == (0, "")
    wanted = generate_image(stable_diffusion_bundle, "a", steps=1, guidance=3, negative_prompt="b", seed=2)
    assert np.abs(np.asarray(Image.open(tmp_path / "a.png")) / 255 - wanted).max() < 0.5 / 255 + 1e-6


BAD_REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "no steps": ({"steps": 0}, "steps is 0, and must be at least 1"),
    "a guidance below zero": ({"guidance": -1}, "guidance is -1, and must be at least 0"),
    "a negative prompt in vain": ({"guidance": 1, "negative_prompt": "b"}, "has no effect with the guidance 1"),
    "tiles without a decoder": ({"tiled": True}, "no decoder for tiles; convert the pipeline with --set half=true"),
    "an image in vain": ({"image": np.zeros((64, 64, 3))}, "StableDiffusionPipeline takes no image; leave it out"),
    "an empty folder": ({"bundle": "empty"}, "there is no metadata.json"),
    "another kind": ({"metadata": {"kind": "llm"}}, "is of the kind 'llm'"),
    "no record": ({"metadata": {"diffusers": None}}, "has no block diffusers"),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_requests(name: str, stable_diffusion_bundle: Path, tmp_path: Path) -> None:
    options, message = BAD_REQUESTS[name]
    given = dict(options)
    bundle = stable_diffusion_bundle
    if "bundle" in given:
        bundle = tmp_path / str(given.pop("bundle"))
        bundle.mkdir()
    if "metadata" in given:
        bundle = tmp_path / "edited"
        shutil.copytree(stable_diffusion_bundle, bundle)
        changed = {**json.loads((bundle / "metadata.json").read_text()), **given.pop("metadata")}
        without = {name: value for name, value in changed.items() if value is not None}
        (bundle / "metadata.json").write_text(json.dumps(without))
    with pytest.raises(BundleError) as caught:
        generate_image(bundle, "a", **given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_files(patcomp: Command, stable_diffusion_bundle: Path) -> None:
    bundle = str(stable_diffusion_bundle)
    assert "is a file .png" in patcomp("generate-image", bundle, "--prompt", "a", "-o", "a.jpg").err
    assert "no folder 'there'" in patcomp("generate-image", bundle, "--prompt", "a", "-o", "there/a.png").err


# ---- halves and tiles --------------------------------------------------------------------------------


@pytest.mark.parametrize(("height", "width"), [(8, 8), (12, 9), (21, 30)])
def test_tiles_of_a_decoder_that_sees_single_latents(height: int, width: int) -> None:
    z = torch.randn(1, 3, height, width)

    def decode(part: torch.Tensor) -> torch.Tensor:
        assert part.shape[2:] == (8, 8)
        return torch.nn.functional.interpolate(part, scale_factor=2)

    torch.testing.assert_close(decoded_in_tiles(z, 8, decode), torch.nn.functional.interpolate(z, scale_factor=2))


def test_tiles_share_latents_and_end_with_the_image() -> None:
    assert starts(128, 64, 4) == [0, 60, 64]
    assert starts(64, 64, 4) == [0]


@pytest.mark.slow
def test_halves(tmp_path: Path, stable_diffusion_folder: Path, pipelines: Pipelines) -> None:
    pytest.importorskip("coreai")
    from tests.models.bundles.pipelines import flux2_klein

    place = convert_bundle(stable_diffusion_folder, out=tmp_path / "sd", dtype="float32", half=True)
    assert (place / "VAEDecoder_half.aimodel").is_dir()
    whole, tiled = (generate_image(place, "a", steps=2, tiled=tiled) for tiled in (False, True))
    assert tiled.shape == whole.shape
    assert 10 < signal_to_noise(tiled, whole) < 80  # norms and attention of a tile see the tile only
    flux = convert_bundle(flux2_klein(tmp_path), out=tmp_path / "flux", image_size=64, half=True, verify=False)
    assert sorted(path.name for path in flux.iterdir()) == [
        "TextEncoder.aimodel", "Transformer.aimodel", "Transformer_512.aimodel", "VAEDecoder.aimodel",
        "VAEDecoder_half.aimodel", "VAEEncoder.aimodel", "VAEEncoder_half.aimodel", "metadata.json", "tokenizer",
        "vae_bn_mean.npy", "vae_bn_var.npy",
    ]  # fmt: skip


def test_models_that_are_left_out_are_named(patcomp: Command, stable_diffusion_folder: Path, tmp_path: Path) -> None:
    from patcomp_models.bundles.kinds.diffusion import Diffusion

    folder = tmp_path / "folder"
    shutil.copytree(stable_diffusion_folder, folder)
    index = json.loads((folder / "model_index.json").read_text())
    index["safety_checker"] = ["stable_diffusion", "StableDiffusionSafetyChecker"]
    (folder / "model_index.json").write_text(json.dumps(index))
    (note,) = Diffusion.of(folder, "float16", {}).metadata()["notes"]
    assert note.startswith("safety_checker: left out")


def test_an_autoencoder_is_never_compressed(stable_diffusion_folder: Path) -> None:
    from patcomp_models.bundles.kinds.diffusion import Diffusion

    parts = Diffusion.of(stable_diffusion_folder, "float16", {"half": True}).components()
    assert {each.role for each in parts if not each.compressed} == {
        "vae_decoder", "vae_decoder_half", "vae_encoder", "vae_encoder_half"
    }  # fmt: skip


def test_each_pipeline_has_one_variant() -> None:
    names = [name for each in VARIANTS for name in each.pipelines]
    assert len(set(names)) == len(names)
