"""Kokoro: durations from a text and a voice, then samples from these and noise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.errors import Problem, reason_of
from patcomp_models.bundle_folders.contract import FLOATS, Interface, problem
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.loading import allowed_now
from patcomp_models.bundles.synthesis.form import SynthesisForm, functions_of, mismatches, number_problems
from patcomp_models.checkpoints.agreement import STRICT
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

KOKORO, BLOCK = "Kokoro", "istftnet"
"""The configuration names no class, but has this block."""
_VOCABULARY, _VOICES = "vocab.json", "voices"
_BLOCKS = (BLOCK, "plbert", "vocab", "n_token", "hidden_dim", "style_dim", "n_layer", "max_dur", "dropout", "n_mels",
           "text_encoder_kernel_size")  # fmt: skip
_NUMBERS = ("sample_rate", "samples_per_frame", "noise_channels", "style_width", "most_tokens")
_RATE, _HARMONICS, _STYLE = 24000, 9, 256
"""Of all models of the package."""
_TOKENS, _FEWEST_TOKENS, _FEWEST_FRAMES, _MOST_FRAMES = 24, 4, 4, 2**14
_OF_NORMS = (".norm.weight", ".norm.bias")
"""Weights that Kokoro's own checkpoints lack: the package has them for exports only, as ones and zeros."""


@dataclass(frozen=True)
class Kokoro(SynthesisForm):
    """A checkpoint of Kokoro: `config.json`, a `.pth`, and `voices`."""

    def components(self) -> Sequence[Component]:
        if self.dtype != "float32":
            raise BundleError(f"dtype is {self.dtype!r}, and Kokoro computes in float32 only; leave the type out")
        if lacking := [name for name in _BLOCKS if name not in self.config]:
            raise BundleError(f"{str(self.folder / 'config.json')!r} has no {lacking[0]}, which Kokoro needs")
        if self._scale % 2:
            raise BundleError(
                f"upsample_rates and gen_istft_hop_size of {str(self.folder / 'config.json')!r} make {self._scale} "
                "samples of a pitch, and must make an even number"
            )
        _ = self._weights
        return [Component("main", "main.aimodel", self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        return {
            "architecture": "kokoro", "sample_rate": _RATE, "samples_per_frame": 2 * self._scale,
            "noise_channels": _HARMONICS, "style_width": _STYLE,
            "most_tokens": self.config["plbert"].get("max_position_embeddings", 512),
        }  # fmt: skip

    def write_files(self, bundle: Path) -> None:
        """The ids of phonemes, and the voices as arrays: a row for each number of phonemes."""
        import numpy as np
        import torch

        (bundle / _VOCABULARY).write_text(json.dumps(self.config["vocab"], ensure_ascii=False, indent=2))
        (bundle / _VOICES).mkdir()
        for path in sorted((self.folder / _VOICES).glob("*.pt")):
            try:
                voice = torch.load(path, map_location="cpu", weights_only=True)
                np.save(bundle / _VOICES / f"{path.stem}.npy", voice.float().reshape(-1, _STYLE).numpy())
            except Exception as error:  # a file can make PyTorch raise anything
                raise BundleError(f"{str(path)!r} is not a voice of Kokoro: {reason_of(error)}") from error

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        config, assets = metadata["config"], metadata["assets"]
        found = number_problems(config, _NUMBERS)
        found += [] if "main" in assets else [problem("assets.main is missing")]
        if not (bundle / _VOCABULARY).is_file():
            found.append(problem(f"there is no {_VOCABULARY}, which has the ids of phonemes"))
        if found:
            return found
        ids, style = ((1, None), ("int32",)), ((1, config["style_width"]), FLOATS)
        tokens, samples = ((1, None), FLOATS), ((1, None, config["noise_channels"]), FLOATS)
        interfaces = {
            "durations": Interface(
                {"input_ids": ids, "style": style, "speed": ((1,), FLOATS)}, {"durations": tokens}),
            "main": Interface(
                {"input_ids": ids, "style": style, "durations": tokens, "noise": samples}, {"waveform": tokens}),
        }  # fmt: skip
        functions, found = functions_of(bundle / assets["main"], interfaces)
        found += mismatches(functions, interfaces)
        return found

    @property
    def _scale(self) -> int:
        """The samples of a pitch, of which a frame has two."""
        told = self.config[BLOCK]
        return int(prod(told["upsample_rates"]) * told["gen_istft_hop_size"])

    @property
    def _weights(self) -> Path:
        found = sorted(self.folder.glob("*.pth"))
        if len(found) != 1:
            raise BundleError(f"{str(self.folder)!r} has {len(found)} files .pth, and must have one, the weights")
        return found[0]

    def _model(self) -> Any:
        """The model of the package, with all its weights."""
        import torch

        try:
            kind = import_module("kokoro.model").KModel
        except Exception as error:  # the package imports much, which may not fit the installed versions
            raise BundleError(
                f"{str(self.folder)!r} holds Kokoro, whose package cannot be used: {reason_of(error)}; "
                "pip install kokoro"
            ) from error
        try:
            model = kind(repo_id="", config=self.config, model=str(self._weights)).eval()
            saved = torch.load(self._weights, map_location="cpu", weights_only=True)
        except Exception as error:  # files can make the package raise anything
            raise BundleError(f"kokoro cannot load {str(self.folder)!r}: {reason_of(error)}") from error
        if allowed_now() != STRICT:
            raise BundleError("Kokoro needs all its weights; leave allow_missing and allow_unexpected out")
        lacking = [
            f"{part}.{name}" for part, module in model.named_children() for name in module.state_dict()
            if not _has(saved.get(part, {}), name)
        ]  # fmt: skip
        if lacking:  # the package goes on without them
            raise BundleError(f"{str(self._weights)!r} lacks weights of Kokoro, such as {lacking[0]}")
        for module in model.modules():
            if hasattr(module, "weight_g"):  # a hook computes the weight in each call, which no export keeps
                torch.nn.utils.remove_weight_norm(module)
        return model

    def _entries(self) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.synthesis.kokoro_modules import KokoroDurations, KokoroSpeech
        from patcomp_models.tasks.entries import Entry

        model, draw = self._model(), torch.Generator().manual_seed(0)
        tokens = Dim.DYNAMIC(min=_FEWEST_TOKENS, max=model.context_length)
        ids = torch.arange(_TOKENS, dtype=torch.int32)[None] % self.config["n_token"]
        style, durations = torch.randn(1, _STYLE, generator=draw) * 0.1, KokoroDurations(model)
        with torch.no_grad():
            found = durations(ids, style, torch.ones(1))
        size = 2 * self._scale
        noise = torch.randn(1, int(found.sum()) * size, _HARMONICS, generator=draw)
        samples = size * Dim("frames", min=_FEWEST_FRAMES, max=_MOST_FRAMES)
        return [
            Entry("durations", durations, {"input_ids": ids, "style": style, "speed": torch.ones(1)}, ("durations",),
                  {"input_ids": {1: tokens}}),
            Entry("main", KokoroSpeech(model), {"input_ids": ids, "style": style, "durations": found, "noise": noise},
                  ("waveform",), {"input_ids": {1: tokens}, "durations": {1: tokens}, "noise": {1: samples}}),
        ]  # fmt: skip


def _has(saved: Mapping[str, Any], name: str) -> bool:
    """Whether a part of a checkpoint has a weight, as the package reads it: `module.` is in front of all or none."""
    if any(not key.startswith("module.") for key in saved):
        return name in saved
    return f"module.{name}" in saved or name.endswith(_OF_NORMS)
