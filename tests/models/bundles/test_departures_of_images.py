"""Bundles of images that are not in the form of Apple's Swift package, each by one change, and folders that cannot
become one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from patcomp_models.bundles import check_bundle
from tests.models.bundles.conftest import Pipelines
from tests.models.bundles.refusals import Change, assert_refused, assets, block, edited, exchanged, without


def renamed(role: str, file: str) -> Change:
    """A change of an asset's name."""

    def change(bundle: Path) -> None:
        old = json.loads((bundle / "metadata.json").read_text())["assets"][role]
        (bundle / old).rename(bundle / file)
        assets(**{role: file})(bundle)

    return change


def scheduler(**values: Any) -> Change:
    """A change of the noise's schedule."""
    return edited(lambda metadata: metadata["diffusion"]["scheduler"].update(values))


STABLE_DIFFUSION: Mapping[str, tuple[Change, str]] = {
    "an unknown type": (block(type="paint"), "diffusion.type is 'paint', and must be one of stable-diffusion, stable"),
    "XL as a type": (block(type="stable-diffusion-xl"), "diffusion.type is 'stable-diffusion-xl', and must be one of"),
    "another prediction": (block(prediction_type="sample"), "prediction_type is 'sample', and must be one of epsilon"),
    "a size as a text": (block(image_size="64"), "diffusion.image_size is '64', and must be a number of pixels"),
    "steps as a text": (block(default_steps="50"), "diffusion.default_steps is '50', and must be a number"),
    "half a scheduler": (
        edited(lambda m: m["diffusion"]["scheduler"].pop("beta_end")), "scheduler has no beta_end"),
    "another schedule": (scheduler(beta_schedule="linear"), "beta_schedule is 'linear', and Swift computes"),
    "another scale": (block(decoder_scale_factor=1.0), "decoder_scale_factor is 1.0, and the autoencoder's"),
    "no decoder": (assets(vae_decoder=None), "assets.vae_decoder is missing"),
    "no vocabulary": (without("tokenizer/vocab.json"), "there is no tokenizer/vocab.json, which Swift"),
    "the encoder for the text": (
        assets(text_encoder="VAEEncoder.aimodel"), "of text_encoder is 1 x 3 x 64 x 64 of float32, and must be 1 x *"),
    "a decoder for the UNet": (
        assets(unet="VAEDecoder.aimodel"), "the inputs of unet are z; they must be sample, timestep, encoder_hidden"),
    "a damaged asset": (lambda bundle: (bundle / "Unet.aimodel" / "main.mlirb").write_bytes(b"ML"), "is damaged"),
    "another pipeline": (
        edited(lambda m: m["diffusers"].update(pipeline="StableDiffusion3Pipeline")),
        "diffusers.pipeline is 'StableDiffusion3Pipeline', and diffusion.type 'stable-diffusion'"),
    "half a record": (edited(lambda m: m["diffusers"].pop("models")), "diffusers must have pipeline"),
    "a tokenizer that is not there": (
        edited(lambda m: m["diffusers"]["tokenizers"].update(tokenizer_9="CLIPTokenizer")),
        "there is no folder tokenizer_9"),
}  # fmt: skip
STABLE_DIFFUSION_3: Mapping[str, tuple[Change, str]] = {
    "of another version": (block(type="stable-diffusion"), "assets.unet is missing"),
    "no second text encoder": (assets(text_encoder_2=None), "assets.text_encoder_2 is missing"),
    "noise instead of a flow": (block(prediction_type="epsilon"), "must be one of flow, flow_matching"),
    "another shift": (block(decoder_shift_factor=0.0), "decoder_shift_factor is 0.0, and the autoencoder's"),
    "no second merges": (without("tokenizer_2/merges.txt"), "there is no tokenizer_2/merges.txt"),
    "another size": (block(image_size=64), "the input sample of transformer is 2 x 16 x 4 x 4"),
    "no transformer": (assets(transformer=None), "assets.transformer is missing"),
    "no vocabulary": (without("tokenizer/vocab.json"), "there is no tokenizer/vocab.json, which Swift"),
    "no decoder": (assets(vae_decoder=None), "assets.vae_decoder is missing"),
    "a guidance as a text": (block(default_guidance_scale="7"), "default_guidance_scale is '7', and must be a number"),
    "the first text encoder for the transformer": (
        assets(transformer="TextEncoder.aimodel"), "the inputs of transformer are input_ids; they must be sample"),
    "exchanged halves": (
        exchanged("VAEDecoder.aimodel", "VAEEncoder.aimodel"), "of vae_decoder is 1 x 3 x 32 x 32"),
    "a damaged asset": (lambda bundle: (bundle / "MMDiT.aimodel" / "main.mlirb").write_bytes(b"ML"), "is damaged"),
    "a record of another pipeline": (
        edited(lambda m: m["diffusers"].update(pipeline="StableDiffusionPipeline")),
        "diffusers.pipeline is 'StableDiffusionPipeline', and diffusion.type 'stable-diffusion-3'"),
    "a record without a text encoder": (
        edited(lambda m: m["diffusers"]["models"].pop("text_encoder_2")), "diffusers.models has no text_encoder_2"),
}  # fmt: skip
FLUX2: Mapping[str, tuple[Change, str]] = {
    "no statistics": (without("vae_bn_mean.npy"), "there is no vae_bn_mean.npy, which Swift reads"),
    "no variances": (without("vae_bn_var.npy"), "there is no vae_bn_var.npy, which Swift reads"),
    "another name": (renamed("transformer", "MMDiT.aimodel"), "Swift finds it by the name Transformer.aimodel"),
    "a decoder by another name": (renamed("vae_decoder", "Decoder.aimodel"), "by the name VAEDecoder.aimodel"),
    "no tokenizer.json": (without("tokenizer/tokenizer.json"), "there is no tokenizer/tokenizer.json"),
    "no config of the tokenizer": (without("tokenizer/config.json"), "there is no tokenizer/config.json"),
    "other tables": (block(rope_axes_dims=[4, 4, 4, 4]), "rotary_emb_cos of transformer is 516 x 8"),
    "a larger image": (block(image_size=64), "hidden_states of transformer is 1 x 4 x 128"),
    "an epsilon as a text": (block(batch_norm_eps="1e-4"), "diffusion.batch_norm_eps is '1e-4'"),
    "no transformer": (assets(transformer=None), "assets.transformer is missing"),
    "no text encoder": (assets(text_encoder=None), "assets.text_encoder is missing"),
    "a decoder for a transformer": (
        lambda b: (shutil.rmtree(b / "Transformer.aimodel"),
                   shutil.copytree(b / "VAEDecoder.aimodel", b / "Transformer.aimodel")),
        "the inputs of transformer are z; they must be hidden_states"),
    "exchanged halves": (
        lambda b: (shutil.rmtree(b / "VAEDecoder.aimodel"),
                   shutil.copytree(b / "VAEEncoder.aimodel", b / "VAEDecoder.aimodel")),
        "of vae_decoder is 1 x 3 x 32 x 32"),
    "another type": (block(type="flux"), "diffusion.type is 'flux', and must be one of"),
    "another kind": (
        edited(lambda m: m.update(kind="diffusion_for_other_hosts")),
        "diffusion.type is 'flux2', and must be one of stable-diffusion-xl"),
}  # fmt: skip
CASES = [
    *(("stable_diffusion", name, STABLE_DIFFUSION) for name in STABLE_DIFFUSION),
    *(("stable_diffusion_3", name, STABLE_DIFFUSION_3) for name in STABLE_DIFFUSION_3),
    *(pytest.param("flux2_klein", name, FLUX2, marks=pytest.mark.slow) for name in FLUX2),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("pipeline", "name", "table"), CASES)
def test_departures(
    pipeline: str, name: str, table: Mapping[str, tuple[Change, str]], pipelines: Pipelines, tmp_path: Path
) -> None:
    change, message = table[name]
    right, bundle = pipelines(pipeline)[1], tmp_path / "bundle"
    shutil.copytree(right, bundle)
    change(bundle)
    assert message in "\n".join(map(str, check_bundle(bundle)))


@pytest.mark.parametrize(
    "pipeline", ["stable_diffusion_3", pytest.param("flux2_klein", marks=pytest.mark.slow)]
)  # fmt: skip
def test_a_bundle_as_it_is_written(pipeline: str, pipelines: Pipelines) -> None:
    assert check_bundle(pipelines(pipeline)[1]) == ()


BAD_FOLDERS: Mapping[str, tuple[Change, dict[str, Any], str]] = {
    "a UNet for inpainting": (
        edited(lambda c: c.update(in_channels=9), "unet/config.json"), {}, "takes 9 channels and the autoencoder"),
    "an unknown prediction": (
        edited(lambda c: c.update(prediction_type="sample"), "scheduler/scheduler_config.json"), {},
        "prediction_type is sample; Swift knows epsilon and v_prediction"),
    "a guidance as an input": (
        edited(lambda c: c.update(time_cond_proj_dim=4), "unet/config.json"), {}, "takes the guidance as an input"),
    "a type that Swift does not fill": (lambda f: None, {"dtype": "bfloat16"}, "got the dtype bfloat16"),
    "a size that is no number": (lambda f: None, {"image_size": "large"}, "image_size is 'large', and must be"),
    "a size of nothing": (lambda f: None, {"image_size": 0}, "image_size is 0, and must be a multiple of 8"),
    "an odd half": (lambda f: None, {"image_size": 72, "half": True}, "must be a multiple of 16"),
    "a broken configuration": (lambda f: (f / "unet" / "config.json").write_text("{"), {}, "is not JSON"),
    "no tokenizer": (lambda f: shutil.rmtree(f / "tokenizer"), {}, "has no folder tokenizer"),
    "another kind": (lambda f: None, {"kind": "diffusion_for_other_hosts"}, "holds StableDiffusionPipeline; bundles"),
    "a pipeline that is not done": (
        edited(lambda c: c.update(_class_name="HunyuanVideoPipeline"), "model_index.json"), {},
        "holds HunyuanVideoPipeline, which becomes no bundle"),
    "a pipeline of the earlier revision": (
        lambda f: None, {"revision": "34ab73d"}, "revision 34ab73d of Apple's package would refuse the bundle"),
    "an unknown revision": (lambda f: None, {"revision": "main"}, "revision is 'main', and must be '86b363d' or"),
    "a width of an image": (lambda f: None, {"width": 64}, "width is an option for videos, and Stable"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FOLDERS)
def test_bad_folders(name: str, stable_diffusion_folder: Path, tmp_path: Path) -> None:
    change, options, message = BAD_FOLDERS[name]
    assert_refused(stable_diffusion_folder, change, options, message, tmp_path)
