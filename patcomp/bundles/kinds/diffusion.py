"""Pipelines of diffusers that make images: text encoders, the denoiser, and the two halves of the autoencoder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.bundle_folders.contract import FLOATS, Interface, function_of, problem
from patcomp.bundle_folders.errors import BundleError
from patcomp.bundle_folders.tokenizers import write_clip_files
from patcomp.bundles.kind import Component, Kind
from patcomp.errors import Problem

if TYPE_CHECKING:
    from patcomp.tasks.entries import Entry

_FILES = {
    "text_encoder": "TextEncoder.aimodel", "unet": "Unet.aimodel", "vae_decoder": "VAEDecoder.aimodel",
    "vae_encoder": "VAEEncoder.aimodel",
}  # fmt: skip
_PREDICTIONS = ("epsilon", "v_prediction")
_FACTOR = 8
"""Pixels of an image for a latent, in each direction; fixed in Swift."""


@dataclass(frozen=True)
class Diffusion(Kind):
    """Stable Diffusion 1 and 2.

    Attributes:
        image_size: the side of the image, in pixels; by default that of the pipeline.
    """

    image_size: int | None = None

    name: ClassVar[str] = "diffusion"
    holds: ClassVar[str] = "StableDiffusionPipeline of diffusers"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return config.get("_class_name") == "StableDiffusionPipeline"

    def components(self) -> Sequence[Component]:
        for part in ("text_encoder", "unet", "vae", "tokenizer", "scheduler"):
            if not (self.folder / part).is_dir():
                raise BundleError(
                    f"{str(self.folder)!r} has no folder {part}; give the whole pipeline, as diffusers saves it"
                )
        if self._size % _FACTOR:
            raise BundleError(f"image_size is {self._size}, and must be a multiple of {_FACTOR}")
        return [
            Component("text_encoder", _FILES["text_encoder"], self._text_encoder),
            Component("unet", _FILES["unet"], self._unet),
            Component("vae_decoder", _FILES["vae_decoder"], self._decoder, compressed=False),
            Component("vae_encoder", _FILES["vae_encoder"], self._encoder, compressed=False),
        ]

    def metadata(self) -> Mapping[str, Any]:
        scheduler, autoencoder = self._config("scheduler"), self._config("vae")
        names = ("num_train_timesteps", "beta_start", "beta_end", "beta_schedule")
        return {
            "diffusion": {
                "type": "stable-diffusion",
                "prediction_type": scheduler.get("prediction_type", _PREDICTIONS[0]),
                "image_size": self._size,
                "encoder_scale_factor": autoencoder["scaling_factor"],
                "decoder_scale_factor": autoencoder["scaling_factor"],
                "scheduler": dict(
                    zip(("training_steps", *names[1:]), (scheduler[name] for name in names), strict=True)
                ),
            }
        }

    def write_files(self, bundle: Path) -> None:
        shutil.copytree(self.folder / "tokenizer", bundle / "tokenizer")
        write_clip_files(bundle / "tokenizer")

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        block, assets = metadata.get("diffusion"), metadata["assets"]
        if not isinstance(block, Mapping):
            return [problem("diffusion is missing")]
        problems = [problem(f"assets.{role} is missing") for role in ("text_encoder", "unet", "vae_decoder")
                    if role not in assets]  # fmt: skip
        for name in ("vocab.json", "merges.txt"):
            if not (bundle / "tokenizer" / name).is_file():
                problems.append(problem(f"there is no tokenizer/{name}, which Swift's tokenizer of CLIP reads"))
        if problems:
            return problems
        size = int(block.get("image_size", 512)) // _FACTOR
        interfaces = {
            "text_encoder": Interface(
                {"input_ids": ((1, "*"), ("int32",))}, {"last_hidden_state": ((1, "*", "*"), FLOATS)}, False
            ),
            "unet": Interface(
                {"sample": ((2, 4, size, size), FLOATS), "timestep": ((2,), FLOATS),
                 "encoder_hidden_states": ((2, "*", "*"), FLOATS)},
                {"noise_pred": ((2, 4, size, size), FLOATS)}, False,
            ),
            "vae_decoder": Interface(
                {"z": ((1, 4, size, size), FLOATS)}, {"image": ((1, 3, size * _FACTOR, size * _FACTOR), FLOATS)}, False
            ),
        }  # fmt: skip
        for role, interface in interfaces.items():
            found, wrong = function_of(bundle / assets[role])
            problems += wrong or interface.problems(role, found)
        return problems

    def _config(self, part: str) -> dict[str, Any]:
        name = "scheduler_config.json" if part == "scheduler" else "config.json"
        found: dict[str, Any] = json.loads((self.folder / part / name).read_text())
        return found

    @property
    def _size(self) -> int:
        return self.image_size or int(self._config("unet")["sample_size"]) * _FACTOR

    def _model(self, part: str, library: str, name: str) -> Any:
        from patcomp.bundles.loading import model_of

        return model_of(self.folder / part, library, name, self.dtype)

    def _text_encoder(self) -> list[Entry]:
        import torch

        from patcomp.bundles.diffusion.modules import TextEncoder
        from patcomp.tasks.entries import Entry

        model = self._model("text_encoder", "transformers", "CLIPTextModel")
        ids = torch.arange(model.config.max_position_embeddings, dtype=torch.int32)[None] % model.config.vocab_size
        return [Entry("main", TextEncoder(model), {"input_ids": ids}, ("last_hidden_state",))]

    def _unet(self) -> list[Entry]:
        import torch

        from patcomp.bundles.diffusion.modules import Unet
        from patcomp.tasks.entries import Entry

        model, side = self._model("unet", "diffusers", "UNet2DConditionModel"), self._size // _FACTOR
        draw, length = torch.Generator().manual_seed(0), self._config("text_encoder")["max_position_embeddings"]
        width = model.config.cross_attention_dim
        inputs = {
            "sample": torch.randn(2, 4, side, side, generator=draw).to(model.dtype),
            "timestep": torch.full((2,), 500.0, dtype=model.dtype),
            "encoder_hidden_states": torch.randn(2, length, width, generator=draw).to(model.dtype),
        }
        return [Entry("main", Unet(model), inputs, ("noise_pred",))]

    def _decoder(self) -> list[Entry]:
        import torch

        from patcomp.bundles.diffusion.modules import Decoder
        from patcomp.tasks.entries import Entry

        model, side = self._model("vae", "diffusers", "AutoencoderKL"), self._size // _FACTOR
        z = torch.randn(1, 4, side, side, generator=torch.Generator().manual_seed(0)).to(model.dtype)
        return [Entry("main", Decoder(model), {"z": z}, ("image",))]

    def _encoder(self) -> list[Entry]:
        import torch

        from patcomp.bundles.diffusion.modules import Encoder
        from patcomp.tasks.entries import Entry

        model, side = self._model("vae", "diffusers", "AutoencoderKL"), self._size
        image = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0)).to(model.dtype)
        return [Entry("main", Encoder(model), {"image": image}, ("latent_params",))]
