"""FLUX.2 klein: a transformer with rotary tables or places as inputs, and texts of Qwen3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, Interface, problem
from patcomp_models.bundle_folders.revisions import OLD
from patcomp_models.bundles.diffusion import modules
from patcomp_models.bundles.diffusion.examples import example_text, half_mask, noise, tables_like
from patcomp_models.bundles.diffusion.flux2_modules import Flux2ByPlaces, Flux2Denoiser
from patcomp_models.bundles.diffusion.stable_diffusion import FACTOR, autoencoder
from patcomp_models.bundles.diffusion.variant import Make, PipelineVariant
from patcomp_models.bundles.kind import Component
from patcomp_models.checkpoints.untrusted import array_in
from patcomp_models.errors import BundleError
from patcomp_models.tasks.entries import Entry

_LENGTH = 512
"""Tokens of a text."""
LAYERS = (9, 18, 27)
"""The layers of the text encoder on which the transformer conditions."""
_CHANNELS, _PATCH = 32, 2
_GRIDS = {"full": 1, "half": 2, "quarter": 4}
"""By how much the patches of an image that a new one follows are fewer, along the side: the host averages them.

The names and what the functions take were read in FlowTransformerPipeline+Resources.swift, a2c7c68, and
FlowTransformerPipeline+Flux2.swift, 13b60ae, of https://github.com/apple/coreai-models."""
_TIME_OF_REFERENCES = 10.0
"""The first place of the patches of such an image, which tells them from those of the noise."""
_SIDECARS = {"vae_bn_mean.npy": "running_mean", "vae_bn_var.npy": "running_var"}
"""The statistics by which Swift scales latents, and the buffers of the autoencoder that hold them."""


class Flux2Klein(PipelineVariant):
    """FLUX.2 klein, which Qwen3 conditions; an asset of half the size is named `_512` or `_half`."""

    pipelines = ("Flux2KleinPipeline",)
    type = "flux2"
    for_swift = True
    parts = ("text_encoder", "transformer")
    layers = LAYERS
    negative_prompt = False
    patch = _PATCH
    usual_size = 1024
    clip_tokenizers = ()
    reference = "img2img_full"
    sidecars = tuple(_SIDECARS)
    by_name: ClassVar[Mapping[str, str]] = {
        "transformer": "Transformer", "transformer_512": "Transformer_512", "vae_decoder": "VAEDecoder",
        "vae_decoder_half": "VAEDecoder_half", "vae_encoder": "VAEEncoder", "vae_encoder_half": "VAEEncoder_half",
    }  # fmt: skip

    def check(self) -> None:
        super().check()
        channels, layers = self.config("vae")["latent_channels"], self.config("text_encoder")["num_hidden_layers"]
        if channels != _CHANNELS or self.factor != FACTOR:
            raise BundleError(
                f"the latents have {channels} channels and the autoencoder divides by {self.factor}; Swift fills "
                f"{_CHANNELS} channels of images divided by {FACTOR}"
            )
        if self.config("transformer").get("guidance_embeds", True):
            raise BundleError("the transformer embeds the guidance, and Flux2KleinPipeline gives it none")
        if layers < LAYERS[-1]:
            raise BundleError(
                f"the text encoder has {layers} layers, and FLUX.2 conditions on the layers "
                f"{', '.join(map(str, LAYERS))}"
            )

    def components(self) -> Sequence[Component]:
        made = [self.component("text_encoder", "text_encoder", joined_layers(_LENGTH, LAYERS))]
        if self.revision != OLD:
            made.append(Component("transformer", "Transformer.aimodel", self._by_places))
            return [*made, *self.autoencoder(_CHANNELS)]
        made.append(self.component("transformer", "transformer", self._transformer(self.size)))
        if self.half:
            made.append(
                self.component("transformer_512", "transformer", self._transformer(self.size // 2), "Transformer_512")
            )
        return [*made, *self.autoencoder(_CHANNELS)]

    def _transformer(self, size: int) -> Make:
        def make(model: Any) -> Any:
            count = _tokens(size)
            tables = tables_like(_LENGTH + count, model.config.axes_dims_rope)
            return Flux2Denoiser(model), {**_inputs(model, count), **tables}, ("output",)

        return make

    def _by_places(self) -> list[Entry]:
        """The functions of the later form, which share their weights."""
        from patcomp_models.bundles.loading import model_of

        model = model_of(self.folder / "transformer", *self.class_of("transformer"), self.dtype)
        module, axes, made = Flux2ByPlaces(model).eval(), len(model.config.axes_dims_rope), []
        for name, (new, followed) in _sides(self.size, self.half).items():
            rows = [_places(new, axes), _places(followed, axes, _TIME_OF_REFERENCES)]
            count = new**2 + followed**2
            words = torch.zeros(1, _LENGTH, axes)
            words[0, :, -1] = torch.arange(_LENGTH)
            places = {"img_ids": torch.cat(rows)[None], "txt_ids": words}
            made.append(Entry(name, module, {**_inputs(model, count), **places}, ("output",)))
        return made

    def block(self) -> Mapping[str, Any]:
        config, vae = self.config("transformer"), self.config("vae")
        is_distilled = bool(self.index.get("is_distilled", False))
        return {
            "type": self.type,
            "prediction_type": "flow_matching",
            "image_size": self.size,
            "default_guidance_scale": 1.0 if is_distilled else 4.0,
            "default_steps": 4 if is_distilled else 50,
            "batch_norm_eps": vae.get("batch_norm_eps", 1e-4),
            "guidance_embeds": config.get("guidance_embeds", True),
            "rope_axes_dims": list(config.get("axes_dims_rope", (32,) * 4)),
            "rope_theta": config.get("rope_theta", 2000),
            **({} if self.revision == OLD else {"encoder_scale_factor": 1.0}),
        }

    @classmethod
    def block_problems(cls, block: Mapping[str, Any], revision: str) -> list[Problem]:
        if revision == OLD or block.get("encoder_scale_factor") == 1.0:
            return []
        factor = block.get("encoder_scale_factor", "missing, and Swift takes 0.18215")
        return [problem(f"diffusion.encoder_scale_factor is {factor}; FLUX.2 scales latents of images by 1.0")]

    @classmethod
    def given_image(cls, image: np.ndarray) -> Any:
        from PIL import Image

        return Image.fromarray((np.asarray(image) * 255).round().astype(np.uint8))

    @classmethod
    def inputs(cls, arguments: Mapping[str, Any], config: Any) -> Mapping[str, Tensor]:
        from diffusers.models.transformers.transformer_flux2 import Flux2PosEmbed

        embed = Flux2PosEmbed(theta=config.rope_theta, axes_dim=config.axes_dims_rope)
        tables = [embed(arguments[name][0]) for name in ("txt_ids", "img_ids")]
        joined = [torch.cat(parts) for parts in zip(*tables, strict=True)]
        given = dict(super().inputs(arguments, config))
        guidance = given.get("guidance", torch.ones(1))  # the graph does not read it
        return given | {"guidance": guidance, "rotary_emb_cos": joined[0], "rotary_emb_sin": joined[1]}

    @classmethod
    def statistics(cls, bundle: Path) -> Mapping[str, Tensor]:
        return {name: torch.from_numpy(array_in(bundle / file)) for file, name in _SIDECARS.items()}

    def write_files(self, bundle: Path) -> None:
        from patcomp_models.bundles.loading import model_of

        norm = model_of(self.folder / "vae", *self.class_of("vae"), "float32").bn
        for file, name in _SIDECARS.items():
            np.save(bundle / file, getattr(norm, name).numpy().astype(np.float32))

    @classmethod
    def interfaces(cls, block: Mapping[str, Any]) -> Mapping[str, Interface]:
        pixels, found = int(block.get("image_size", 1024)), {}
        width = sum(block.get("rope_axes_dims", (32,) * 4))
        for role, size in (("transformer", pixels), ("transformer_512", pixels // 2)):
            count, channels = _tokens(size), _CHANNELS * _PATCH**2
            table = ((_LENGTH + count, width), FLOATS)
            found[role] = Interface(
                {"hidden_states": ((1, count, channels), FLOATS), "encoder_hidden_states": ((1, _LENGTH, "*"), FLOATS),
                 "timestep": ((1,), FLOATS), "guidance": ((1,), FLOATS), "rotary_emb_cos": table,
                 "rotary_emb_sin": table},
                {"output": ((1, count, channels), FLOATS)}, False,
            )  # fmt: skip
        return {"text_encoder": joined_interface(_LENGTH), **found, **autoencoder(_CHANNELS, pixels, FACTOR)}

    @classmethod
    def functions(cls, block: Mapping[str, Any], revision: str) -> Mapping[str, Mapping[str, Interface]]:
        found = dict(super().functions(block, revision))
        if revision == OLD:
            return found
        pixels, axes = int(block.get("image_size", 1024)), len(block.get("rope_axes_dims", (32,) * 4))
        found["transformer"] = {name: _interface(*sides, axes) for name, sides in _sides(pixels, True).items()}
        found["transformer_512"] = {"main": _interface(_side(pixels // 2), 0, axes)}
        return found


def joined_layers(length: int, layers: Sequence[int]) -> Make:
    """A text encoder that gives hidden states of some layers, for texts of a length with a mask."""
    return lambda model: (
        modules.JoinedTextEncoder(model, layers),
        {"input_ids": example_text(model, length), "attention_mask": half_mask(length)},
        ("hidden_states",),
    )


def joined_interface(length: int) -> Interface:
    """What such a text encoder takes and gives."""
    ids = ((1, length), ("int32",))
    return Interface({"input_ids": ids, "attention_mask": ids}, {"hidden_states": ((1, length, "*"), FLOATS)}, False)


def _inputs(model: Any, count: int) -> dict[str, Tensor]:
    """Example inputs of the transformer that both forms have, for a number of patches."""
    config, dtype = model.config, model.dtype
    return {
        "hidden_states": noise(1, count, config.in_channels).to(dtype),
        "encoder_hidden_states": noise(1, _LENGTH, config.joint_attention_dim).to(dtype),
        "timestep": torch.full((1,), 0.5, dtype=dtype),
        "guidance": torch.full((1,), 4.0, dtype=dtype),
    }


def _side(size: int) -> int:
    """Patches along the side of an image of this side in pixels."""
    return size // FACTOR // _PATCH


def _tokens(size: int) -> int:
    """Patches of an image of this side in pixels."""
    return _side(size) ** 2


def _sides(size: int, half: bool) -> dict[str, tuple[int, int]]:
    """The functions of the later form: the patches along the side of the new image, and of the one that it follows.

    Args:
        size: of the image, in pixels.
        half: whether there are functions for images of half the size.
    """
    found = {}
    for name, prefix, side in (("main", "img2img_", _side(size)), ("half", "img2img_512_", _side(size // 2))):
        if name == "main" or half:
            found[name] = (side, 0)
            found |= {f"{prefix}{grid}": (side, side // by) for grid, by in _GRIDS.items() if side % by == 0}
    return found


def _places(side: int, axes: int, time: float = 0.0) -> Tensor:
    """The places of the patches of an image, (side * side, axes): time, row, column, word."""
    found = torch.zeros(side, side, axes)
    found[..., 0], found[..., 1], found[..., 2] = time, torch.arange(side)[:, None], torch.arange(side)
    return found.flatten(0, 1)


def _interface(new: int, followed: int, axes: int) -> Interface:
    """What a function of the later form takes and gives."""
    count, channels = new**2 + followed**2, _CHANNELS * _PATCH**2
    return Interface(
        {"hidden_states": ((1, count, channels), FLOATS), "encoder_hidden_states": ((1, _LENGTH, "*"), FLOATS),
         "timestep": ((1,), FLOATS), "guidance": ((1,), FLOATS), "img_ids": ((1, count, axes), FLOATS),
         "txt_ids": ((1, _LENGTH, axes), FLOATS)},
        {"output": ((1, count, channels), FLOATS)}, False,
    )  # fmt: skip
