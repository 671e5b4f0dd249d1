"""Bundles of images, videos and sounds for other hosts that `generate_image` would refuse or misread, each by one
change, and folders that cannot become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.models.bundles.conftest import Pipelines
from tests.models.bundles.refusals import (
    Change,
    assert_departs,
    assert_refused,
    assets,
    block,
    edited,
    exchanged,
    unchanged,
    without,
)

LTX_VIDEO: Mapping[str, tuple[Change, str]] = {
    "an unknown type": (block(type="film"), "diffusion.type is 'film', and must be one of stable-diffusion-xl"),
    "a type of Swift": (block(type="flux2"), "diffusion.type is 'flux2', and must be one of stable-diffusion-xl"),
    "a kind of Swift": (
        edited(lambda m: m.update(kind="diffusion")), "diffusion.type is 'ltx-video', and must be one of stable-diff"),
    "no block": (edited(lambda m: m.pop("diffusion")), "diffusion is missing"),
    "no frames": (block(frames=None), "diffusion.frames is None, and must be a whole number above zero"),
    "half a frame": (block(frames=8.5), "diffusion.frames is 8.5, and must be a whole number above zero"),
    "no factor": (block(latent_factor=None), "diffusion.latent_factor is None, and must be a whole number"),
    "a factor of nothing": (block(latent_frame_factor=0), "latent_frame_factor is 0, and must be a whole number"),
    "more frames": (block(frames=17), "the input hidden_states of transformer is 2 x 4 x 8 of float32, and must"),
    "a wider video": (block(image_width=96), "hidden_states of transformer is 2 x 4 x 8 of float32, and must"),
    "other channels": (block(latent_channels=4), "hidden_states of transformer is 2 x 4 x 8 of float32, and must"),
    "another scale": (block(decoder_scale_factor=0.5), "decoder_scale_factor is 0.5, and the autoencoder's"),
    "steps as a text": (block(default_steps="50"), "diffusion.default_steps is '50', and must be a number"),
    "no statistics": (without("vae_latents_mean.npy"), "there is no vae_latents_mean.npy"),
    "no deviations": (without("vae_latents_std.npy"), "there is no vae_latents_std.npy"),
    "no decoder": (assets(vae_decoder=None), "assets.vae_decoder is missing"),
    "no text encoder": (assets(text_encoder=None), "assets.text_encoder is missing"),
    "exchanged assets": (
        exchanged("Transformer.aimodel", "TextEncoder.aimodel"), "the inputs of transformer are input_ids; they"),
    "a damaged asset": (lambda b: (b / "Transformer.aimodel" / "main.mlirb").write_bytes(b"ML"), "is damaged"),
    "no record of the transformer": (
        edited(lambda m: m["diffusers"]["models"].pop("transformer")), "diffusers.models has no transformer"),
    "a record of another pipeline": (
        edited(lambda m: m["diffusers"].update(pipeline="WanPipeline")), "diffusers.pipeline is 'WanPipeline', and"),
    "no tokenizer": (without("tokenizer"), "there is no folder tokenizer, which diffusers.tokenizers names"),
}  # fmt: skip
OTHERS: Mapping[str, tuple[str, Change, str]] = {
    "other means of latents": ("qwen_image", block(latents_mean=[0.0] * 16), "diffusion.latents_mean is [0.0, 0.0,"),
    "a larger image": ("qwen_image", block(image_size=64), "hidden_states of transformer is 1 x 4 x 64"),
    "another shift": ("z_image", block(decoder_shift_factor=0.0), "decoder_shift_factor is 0.0, and the autoencoder's"),
    "images of other sizes": ("z_image", block(image_size=64), "hidden_states of transformer is 1 x 16 x 6 x 6"),
    "another length of texts": ("sana", block(text_length=300), "the input input_ids of text_encoder is 1 x "),
    "no length of texts": ("sana", block(text_length=None), "text_length is None, and must be a whole number"),
    "another size": ("sana", block(image_size=64), "the input sample of transformer is 2 x 4 x 16 x 16"),
    "no second transformer": ("wan_2", assets(transformer_2=None), "assets.transformer_2 is missing"),
    "a boundary without a transformer": ("wan", block(boundary_ratio=0.9), "assets.transformer_2 is missing"),
    "times of patches": ("wan", block(expand_timesteps=True), "timestep of transformer is 1 of float32, and must"),
    "a time of a decoder": ("ltx_video", block(timestep_conditioning=True), "inputs of vae_decoder are z; they must"),
    "other deviations of latents": ("wan", block(latents_std=[1.0] * 16), "diffusion.latents_std is [1.0, 1.0,"),
    "fewer frames": ("wan", block(frames=1), "hidden_states of transformer is 1 x 16 x 2 x 2 x 4"),
    "another rate": ("stable_audio", block(sampling_rate=8), "sampling_rate is 8, and the autoencoder's"),
    "one channel": ("stable_audio", block(audio_channels=1), "sound of vae_decoder is 1 x 2 x 64 of float32"),
    "no projections": ("stable_audio", assets(projection_model=None), "assets.projection_model is missing"),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LTX_VIDEO)
def test_departures(name: str, pipelines: Pipelines, tmp_path: Path) -> None:
    assert_departs(pipelines("ltx_video")[1], tmp_path, *LTX_VIDEO[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_departures_of_others(name: str, pipelines: Pipelines, tmp_path: Path) -> None:
    pipeline, change, message = OTHERS[name]
    assert_departs(pipelines(pipeline)[1], tmp_path, change, message)


def of(part: str, **values: Any) -> Change:
    """Other values in the configuration of a part."""
    return edited(lambda content: content.update(values), f"{part}/config.json")


def index(**values: Any) -> Change:
    """Other values in the index of the pipeline."""
    return edited(lambda content: content.update(values), "model_index.json")


TRANSFORMER = ["diffusers", "WanTransformer3DModel"]
BAD_FOLDERS: Mapping[str, tuple[str, Change, dict[str, Any], str]] = {
    "a guidance inside": ("qwen_image", of("transformer", guidance_embeds=True), {}, "embeds the guidance (guid"),
    "edits": ("qwen_image", of("transformer", zero_cond_t=True), {}, "edits images (zero_cond_t), which QwenImagePip"),
    "other channels": ("qwen_image", of("vae", z_dim=8), {}, "the latents have 8 channels and the autoencoder divides"),
    "features of images": ("z_image", of("transformer", siglip_feat_dim=8), {}, "takes features of images (siglip"),
    "few positions": ("z_image", of("transformer", axes_lens=[64, 8, 8]), {}, "positions for 64 tokens and 8 patches"),
    "larger patches": ("z_image", of("transformer", all_patch_size=[4]), {}, "has patches of [4], and ZImagePipeline"),
    "an odd size": ("z_image", unchanged, {"image_size": 40}, "image_size is 40, and must be a multiple of 16"),
    "Sprint": ("sana", of("transformer", guidance_embeds=True), {}, "embeds the guidance (SANA-Sprint), and"),
    "no guidance inside": (
        "sana_sprint", of("transformer", guidance_embeds=False), {}, "embeds no guidance, and SanaSprintPipe"),
    "other latents": (
        "sana_sprint", edited(lambda c: c["encoder_block_out_channels"].pop(), "vae/config.json"), {},
        "the latents have 32 channels and the autoencoder divides by 16; Swift fills 32 channels of images divided"),
    "another autoencoder": ("sana", of("vae", latent_channels=8), {}, "takes 4 channels, and the latents have 8"),
    "no boundary": ("wan", index(transformer_2=TRANSFORMER), {}, "names a transformer_2 and no boundary_ratio"),
    "no second transformer": ("wan", index(boundary_ratio=0.9), {}, "has no folder transformer_2; give the whole"),
    "an image as an input": ("wan", of("transformer", in_channels=36), {}, "takes 36 channels and the latents have 16"),
    "halves of videos": ("wan", unchanged, {"half": True}, "half is an option for images, and WanPipeline makes a"),
    "an odd width": ("wan", unchanged, {"width": 40}, "width is 40, and must be a multiple of 16, in pixels"),
    "odd frames": ("wan", unchanged, {"frames": 6}, "frames is 6, and must be a multiple of 4 and one more"),
    "frames as a text": ("wan", unchanged, {"frames": "6"}, "frames is '6', and must be"),
    "no frames": ("wan", unchanged, {"frames": 0}, "frames is 0, and must be above zero"),
    "a decoder that draws": ("ltx_video", of("vae", decoder_inject_noise=[True]), {}, "the decoder draws noise (dec"),
    "other patches": ("ltx_video", of("transformer", patch_size=2), {}, "takes 8 channels in patches of 2, and must"),
    "a size of a sound": ("stable_audio", unchanged, {"image_size": 8}, "image_size is an option for images"),
    "another decoder": ("stable_audio", of("vae", decoder_input_channels=8), {}, "takes 4 channels, and the decoder 8"),
    "no length of texts": (
        "stable_audio",
        edited(lambda c: c.pop("model_max_length"), "tokenizer/tokenizer_config.json"), {},
        "the tokenizer says no length of texts; write model_max_length"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FOLDERS)
def test_bad_folders(name: str, further_folders: Callable[[str], Path], tmp_path: Path) -> None:
    pipeline, change, options, message = BAD_FOLDERS[name]
    assert_refused(further_folders(pipeline), change, options, message, tmp_path)
