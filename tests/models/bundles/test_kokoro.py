"""Kokoro: the samples of a bundle are those of its package with the same noise, where the package is installed."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import TorchConverter
from patcomp.emit.asset import load
from patcomp_models.bundles import BundleError, check_bundle, convert_bundle
from tests.models.bundles.refusals import (
    Change,
    assert_departs,
    assert_refused,
    config,
    edited,
    unchanged,
    without,
)
from tests.models.bundles.speech_models import drawn_model

pytest.importorskip("coreai")

CONFIG: dict[str, Any] = {
    "n_token": 20, "hidden_dim": 512, "style_dim": 128, "n_layer": 1, "max_dur": 6, "dropout": 0.2, "n_mels": 80,
    "text_encoder_kernel_size": 5, "vocab": {letter: number for number, letter in enumerate("abcdefgh", 1)},
    "plbert": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64,
               "num_hidden_layers": 2, "embedding_size": 16},
    "istftnet": {"upsample_kernel_sizes": [8, 4], "upsample_rates": [4, 2], "gen_istft_hop_size": 2,
                 "gen_istft_n_fft": 8, "resblock_dilation_sizes": [[1, 3, 5]], "resblock_kernel_sizes": [3],
                 "upsample_initial_channel": 512},
}  # fmt: skip
"""With 32 samples a frame; the package fixes the widths 512 and 128."""


class Nothing(ModuleType):
    """A module whose names are all there, and mean nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}", object)


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, also without what turns texts into phonemes."""
    pytest.importorskip("loguru")
    for name in ("misaki", "misaki.en", "misaki.espeak"):
        monkeypatch.setitem(sys.modules, name, Nothing(name))
    try:
        return import_module("kokoro.model")
    except Exception as error:  # it imports much, which may not fit the installed versions
        pytest.skip(f"kokoro cannot be imported: {error}")


def kokoro(folder: Path, package: Any, *, is_published: bool = False) -> Any:
    """A small Kokoro with drawn weights, in a folder.

    Args:
        is_published: whether the names of weights are those of Kokoro's own checkpoints.
    """
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    torch.save({}, folder / "kokoro.pth")
    torch.manual_seed(0)
    model = package.KModel(repo_id="", config=CONFIG, model=str(folder / "kokoro.pth"))
    drawn_model(model)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.InstanceNorm1d):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
        for name, weight in model.named_parameters():
            if name.endswith("weight_g"):
                weight.abs_().add_(0.5)
            if "alpha" in name:
                weight.abs_().add_(0.5)
        model.predictor.duration_proj.linear_layer.weight.mul_(40)
        model.decoder.generator.conv_post.weight_g.mul_(0.2)
        model.predictor.F0_proj.bias.fill_(90)  # a pitch in Hz
        model.predictor.F0_proj.weight.mul_(10)
    parts = {name: part.state_dict() for name, part in model.named_children()}
    if is_published:
        ends = (".norm.weight", ".norm.bias")
        parts = {
            name: {f"module.{key}": value for key, value in part.items() if not key.endswith(ends)}
            for name, part in parts.items()
        }
    torch.save(parts, folder / "kokoro.pth")
    (folder / "voices").mkdir()
    torch.save(torch.randn(20, 1, 256, generator=torch.Generator().manual_seed(4)) * 0.3, folder / "voices" / "af.pt")
    return model.eval()


def upstream(
    model: Any, ids: Tensor, style: Tensor, speed: float, noise: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The durations of the package, its noise, and its samples, in the type of the style.

    Phases of -pi in the first window are pi: the window is its own mirror, so that rounding decides between the two.

    Args:
        noise: by default drawn.
    """
    drawn: list[Tensor] = [] if noise is None else [noise]
    own, spectrum, used = torch.randn_like, model.decoder.generator.stft, torch.get_default_dtype()
    transform = spectrum.transform

    def turned(samples: Tensor) -> tuple[Tensor, Tensor]:
        magnitudes, phases = transform(samples)
        phases[..., 0] = torch.where(phases[..., 0] < -3.1415, -phases[..., 0], phases[..., 0])
        return magnitudes, phases

    def kept(given: Tensor) -> Tensor:
        if noise is None:
            drawn.append(own(given))
        return drawn[0].to(given) if given.shape == drawn[0].shape else own(given)  # further noise is left out

    torch.manual_seed(0)
    torch.set_default_dtype(style.dtype)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "randn_like", kept)
            patch.setattr(spectrum, "transform", turned)
            samples, durations = model.forward_with_tokens(ids, style, speed)
    finally:
        torch.set_default_dtype(used)
    return durations[None], drawn[0], samples[None]


@pytest.mark.slow
def test_kokoro(package: Any, tmp_path: Path) -> None:
    """The samples are nearer to those of the package in float64 than the package in float32 is: it counts the turns of
    its sines, and takes the phases of small numbers."""
    model = kokoro(tmp_path / "model", package)
    exact = kokoro(tmp_path / "twin", package).double()
    exact.decoder.generator.stft.window = exact.decoder.generator.stft.window.double()
    bundle = convert_bundle(tmp_path / "model", out=tmp_path / "out")
    assert check_bundle(bundle) == ()
    voice = np.load(bundle / "voices" / "af.npy")
    told = json.loads((bundle / "metadata.json").read_text())["config"]
    asset, different = load(bundle / "main.aimodel"), set[float]()
    for count, speed in ((5, 1.0), (17, 0.8)):
        ids, style = torch.arange(count)[None] * 7 % 20, torch.from_numpy(voice[count - 3][None].copy())
        wanted, noise, rounded = upstream(model, ids, style, speed)
        durations_of_exact, _, samples = upstream(exact, ids, style.double(), speed, noise)
        given = {"input_ids": ids.int().numpy(), "style": style.numpy()}
        durations = asset.run({**given, "speed": np.array([speed], np.float32)}, entrypoint="durations")["durations"]
        np.testing.assert_array_equal(durations, wanted)
        np.testing.assert_array_equal(durations, durations_of_exact)
        assert durations.sum() * told["samples_per_frame"] == samples.shape[1]
        made = asset.run({**given, "durations": durations, "noise": noise.numpy()})["waveform"]
        ours, theirs = (
            (torch.as_tensor(each).double() - samples).abs() / samples.abs().max() for each in (made, rounded)
        )
        assert ours.max() < 2e-5
        assert ours.mean() < 5e-6
        assert ours.max() < theirs.max() / 2
        different |= set(durations.flatten().tolist())
    asset.close()
    assert len(different) > 1


@pytest.mark.slow
def test_published_names_and_missing_weights(package: Any, tmp_path: Path) -> None:
    """Kokoro's own files have other names and lack weights that are ones and zeros; no others may be missing."""
    from patcomp_models.bundles.synthesis.kokoro import Kokoro

    folder = tmp_path / "model"
    model = kokoro(folder, package, is_published=True)
    read = Kokoro(folder, "float32")._model()
    own = torch.nn.utils.remove_weight_norm(model.decoder.generator.conv_post)
    torch.testing.assert_close(read.decoder.generator.conv_post.weight, own.weight)
    torch.testing.assert_close(read.bert_encoder.weight, model.bert_encoder.weight)
    parts = torch.load(folder / "kokoro.pth", weights_only=True)
    del parts["predictor"]["module.F0_proj.bias"]
    torch.save(parts, folder / "kokoro.pth")
    assert_refused(folder, unchanged, {}, "lacks weights of Kokoro, such as predictor.F0_proj.bias", tmp_path / "place")


class Durations(nn.Module):
    def forward(self, input_ids: Tensor, style: Tensor, speed: Tensor) -> Tensor:
        return input_ids.float() + style.sum() + speed


class Speech(nn.Module):
    def forward(self, input_ids: Tensor, style: Tensor, durations: Tensor, noise: Tensor) -> Tensor:
        return noise.sum(2) + input_ids.float().sum() + style.sum() + durations.sum()


def asset_of(functions: tuple[str, ...] = ("durations", "main"), outputs: Mapping[str, str] = {}, **sizes: int) -> Any:
    """The asset of a bundle, of the interface alone."""
    style, bands = torch.zeros(1, sizes.get("style", 256)), sizes.get("bands", 9)
    ids, tokens = torch.zeros(1, 5, dtype=torch.int32), {1: torch.export.Dim("tokens", min=2)}
    given: dict[str, tuple[nn.Module, dict[str, Tensor], dict[str, Any], str]] = {
        "durations": (Durations(), {"input_ids": ids, "style": style, "speed": torch.ones(1)}, {"input_ids": tokens},
                      "durations"),
        "main": (Speech(), {"input_ids": ids, "style": style, "durations": torch.ones(1, 5),
                            "noise": torch.zeros(1, 40, bands)},
                 {"input_ids": tokens, "durations": tokens, "noise": {1: torch.export.Dim("samples", min=2)}},
                 "waveform"),
    }  # fmt: skip
    converter = TorchConverter()
    for name in functions:
        module, inputs, dynamic, output = given[name]
        exported = torch.export.export(
            module, tuple(inputs.values()), dynamic_shapes=tuple(dynamic.get(each) for each in inputs)
        )
        converter.add_exported_program(exported, [*inputs], [outputs.get(output, output)], entrypoint_name=name)
    return converter.to_coreai()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that a host can load, with other numbers."""
    folder = tmp_path_factory.mktemp("kokoro") / "bundle"
    folder.mkdir()
    asset_of().save_asset(folder / "main.aimodel")
    (folder / "vocab.json").write_text("{}")
    told = {"architecture": "kokoro", "sample_rate": 24000, "samples_per_frame": 8, "noise_channels": 9,
            "style_width": 256, "most_tokens": 64}  # fmt: skip
    (folder / "metadata.json").write_text(json.dumps({
        "metadata_version": "0.2", "kind": "text_to_speech", "name": "k", "assets": {"main": "main.aimodel"},
        "config": told}))  # fmt: skip
    assert check_bundle(folder) == ()
    return folder


def other(**options: Any) -> Change:
    """The asset has another interface."""

    def replace(folder: Path) -> None:
        shutil.rmtree(folder / "main.aimodel")
        asset_of(**options).save_asset(folder / "main.aimodel")

    return replace


DEPARTURES: dict[str, tuple[Change, str]] = {
    "no config": (edited(lambda m: m.pop("config")), "config is missing"),
    "no architecture": (config(architecture=None), "config.architecture is None, and must be one of"),
    "another architecture": (config(architecture="vits"), "config.number_of_speakers is None, and must be an integer"),
    "no rate": (config(sample_rate=None), "config.sample_rate is None, and must be an integer"),
    "no frames": (edited(lambda m: m["config"].pop("samples_per_frame")), "config.samples_per_frame is None"),
    "half a band": (config(noise_channels=4.5), "config.noise_channels is 4.5, and must be an integer"),
    "no longest text": (config(most_tokens="x"), "config.most_tokens is 'x', and must be an integer"),
    "other bands": (config(noise_channels=8), "noise of main is 1 x ? x 9 of float32, and must be 1 x ? x 8"),
    "other voices": (config(style_width=128), "style of durations is 1 x 256 of float32, and must be 1 x 128"),
    "no phonemes": (without("vocab.json"), "there is no vocab.json, which has the ids of phonemes"),
    "no asset": (without("main.aimodel"), "assets.main is main.aimodel, which does not exist"),
    "another role": (edited(lambda m: m.update(assets={"voice": "main.aimodel"})), "assets.main is missing"),
    "a damaged asset": (without("main.aimodel/main.mlirb"), "is not an asset"),
    "no durations": (other(functions=("main",)), "main.aimodel has no function 'durations'"),
    "no samples": (other(functions=("durations",)), "main.aimodel has no function 'main'"),
    "another output": (other(outputs={"waveform": "audio"}), "waveform"),
    "a narrow voice": (other(style=64), "style of main is 1 x 64 of float32, and must be 1 x 256"),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", DEPARTURES)
def test_departures(name: str, bundle: Path, tmp_path: Path) -> None:
    assert_departs(bundle, tmp_path, *DEPARTURES[name])


def settings(**values: Any) -> Change:
    return edited(lambda c: c.update(values), "config.json")


BAD: dict[str, tuple[Change, dict[str, Any], str]] = {
    "no weights": (without("kokoro.pth"), {}, "has 0 files .pth, and must have one, the weights"),
    "two files": (lambda folder: (folder / "b.pth").write_bytes(b""), {}, "has 2 files .pth, and must have one"),
    "no vocabulary": (edited(lambda c: c.pop("vocab"), "config.json"), {}, "has no vocab, which Kokoro needs"),
    "float16": (unchanged, {"dtype": "float16"}, "dtype is 'float16', and Kokoro computes in float32 only"),
    "odd samples": (
        settings(istftnet={"upsample_rates": [5, 3], "gen_istft_hop_size": 1}), {}, "make 15 samples of a pitch, and"),
    "a vocoder": (unchanged, {"vocoder": "x"}, "Kokoro has no option 'vocoder'; it is for SpeechT5"),
    "damaged weights": (unchanged, {}, "holds Kokoro"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_folders(name: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(CONFIG))
    (source / "kokoro.pth").write_bytes(b"?")
    place = tmp_path / "place"
    if name == "damaged weights":  # without the package, this is said first
        with pytest.raises(BundleError, match=r"whose package cannot be used|kokoro cannot load"):
            convert_bundle(source, out=place)
        assert not place.exists()
    else:
        assert_refused(source, *BAD[name], place)
