"""Images, videos and sounds of bundles for hosts that are not Swift are those of diffusers."""

from __future__ import annotations

import shutil
import wave
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from patcomp_models.bundles import BundleError, check_bundle, convert_bundle, generate_image
from tests.helpers.command import Command
from tests.models.bundles.conftest import Pipelines
from tests.models.bundles.further_pipelines import OPTIONS, RUNS
from tests.models.bundles.pipelines import of_diffusers, signal_to_noise
from tests.models.bundles.refusals import edited

BY_DEFAULT = ("ltx_video",)
NAMES = [pytest.param(name, marks=() if name in BY_DEFAULT else pytest.mark.slow) for name in OPTIONS]


@pytest.mark.parametrize("name", NAMES)
def test_results(name: str, pipelines: Pipelines) -> None:
    pytest.importorskip("coreai")
    folder, bundle = pipelines(name)
    assert check_bundle(bundle) == ()
    results = []
    for given, own in RUNS[name]:
        wanted = of_diffusers(folder, seed=3, num_inference_steps=3, **given)
        texts = {key: given[key] for key in ("prompt", "negative_prompt") if key in given}
        made = generate_image(bundle, seed=3, steps=3, **texts, **own)
        assert wanted.std() > 0.03
        assert signal_to_noise(made, wanted) > 100
        results.append(wanted)
    assert signal_to_noise(results[0], results[1]) < 90  # the text counts


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_results_in_half_precision(name: str, further_folders: Callable[[str], Path], tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    folder = further_folders(name)
    bundle = convert_bundle(folder, out=tmp_path / "bundle", **OPTIONS[name])
    given, own = RUNS[name][0]
    wanted = of_diffusers(folder, seed=3, num_inference_steps=3, **given)
    texts = {key: given[key] for key in ("prompt", "negative_prompt")}
    assert signal_to_noise(generate_image(bundle, seed=3, steps=3, **texts, **own), wanted) > 45


@pytest.mark.slow
def test_results_in_bfloat16(further_folders: Callable[[str], Path], tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    folder, (given, own) = further_folders("ltx_video"), RUNS["ltx_video"][0]
    bundle = convert_bundle(folder, out=tmp_path / "bundle", dtype="bfloat16", **OPTIONS["ltx_video"])
    assert check_bundle(bundle) == ()
    wanted = of_diffusers(folder, seed=3, num_inference_steps=3, **given)
    texts = {key: given[key] for key in ("prompt", "negative_prompt")}
    assert signal_to_noise(generate_image(bundle, seed=3, steps=3, **texts, **own), wanted) > 40


@pytest.mark.slow
@pytest.mark.parametrize("length", [4, 600])
def test_a_long_text_of_qwen_image(length: int, pipelines: Pipelines) -> None:
    pytest.importorskip("coreai")
    folder, bundle = pipelines("qwen_image")
    size = {"height": 32, "width": 32}
    wanted = of_diffusers(folder, seed=1, num_inference_steps=2, prompt="ab" * length, true_cfg_scale=1.0, **size)
    assert signal_to_noise(generate_image(bundle, "ab" * length, seed=1, steps=2), wanted) > 100
    with pytest.raises(BundleError, match=r"the guidance 4\.0 has no effect without a negative prompt"):
        generate_image(bundle, "a", guidance=4.0)


def test_the_command_for_videos(patcomp: Command, pipelines: Pipelines, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    from PIL import Image

    bundle = pipelines("ltx_video")[1]
    options = ("--prompt", "a", "--steps", "1", "--guidance", "1", "--seed", "2")
    made = patcomp("generate-image", str(bundle), *options, "-o", "a.webp")
    assert (made.code, made.out) == (0, "")
    wanted = generate_image(bundle, "a", steps=1, guidance=1, seed=2)
    shown = Image.open(tmp_path / "a.webp")
    assert (shown.n_frames, shown.size) == (9, (64, 32))
    for number, frame in enumerate(wanted):
        shown.seek(number)
        assert np.abs(np.asarray(shown.convert("RGB")) / 255 - frame).max() < 0.5 / 255 + 1e-6
    assert shown.info["duration"] == 40
    assert "is a file .gif or .webp, got 'a.png'" in patcomp("generate-image", str(bundle), *options, "-o", "a.png").err


@pytest.mark.slow
def test_the_command_for_sounds(patcomp: Command, pipelines: Pipelines, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    bundle = pipelines("stable_audio")[1]
    options = ("--prompt", "a", "--steps", "1", "--guidance", "1", "--seed", "2")
    assert patcomp("generate-image", str(bundle), *options, "-o", "a.wav").code == 0
    wanted = generate_image(bundle, "a", steps=1, guidance=1, seed=2).clip(-1, 1)
    with wave.open(str(tmp_path / "a.wav")) as read:
        assert (read.getnchannels(), read.getframerate(), read.getnframes()) == (2, 16, 64)
        samples = np.frombuffer(read.readframes(64), "<i2").reshape(64, 2).T
    assert np.abs(samples / 32767 - wanted).max() < 0.5 / 32767 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NoScheduler", "has no class NoScheduler; install a newer one"),
        pytest.param(
            "CosineDPMSolverMultistepScheduler", "cannot be made: .* requires the torchsde library",
            marks=pytest.mark.skipif(find_spec("torchsde") is not None, reason="torchsde is installed"),
        ),
    ],
)  # fmt: skip
def test_a_scheduler_that_cannot_be_made(name: str, message: str, pipelines: Pipelines, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    bundle = tmp_path / "bundle"
    shutil.copytree(pipelines("stable_audio")[1], bundle)
    edited(lambda metadata: metadata["diffusers"]["scheduler"].update({"class": name}))(bundle)
    with pytest.raises(BundleError, match=message) as caught:
        generate_image(bundle, "a", steps=1)
    assert "\n" not in str(caught.value)


def test_modules_that_stay_in_float32(further_folders: Callable[[str], Path]) -> None:
    import torch
    from diffusers import WanTransformer3DModel

    from patcomp_models.bundles.loading import model_of

    folder, before = further_folders("wan") / "transformer", list(WanTransformer3DModel._keep_in_fp32_modules)
    model = model_of(folder, "diffusers", "WanTransformer3DModel", "float16")
    assert model.blocks[0].attn1.to_q.weight.dtype == torch.float16
    assert model.blocks[0].scale_shift_table.dtype == torch.float32
    assert model.condition_embedder.time_embedder.linear_1.weight.dtype == torch.float32
    assert WanTransformer3DModel._keep_in_fp32_modules == before
