"""Images, videos and sounds: the pipeline of diffusers, with a bundle's assets in place of its models."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from patcomp.emit.asset import load
from patcomp.errors import Problem, reason_of
from patcomp_models.bundle_folders.contract import general_problems
from patcomp_models.bundle_folders.interfaces import Interfaces
from patcomp_models.bundle_folders.revisions import NEW, REVISIONS
from patcomp_models.bundles.diffusion.checking import NO_RECORD, contract_problems, record_problems
from patcomp_models.bundles.diffusion.stand_ins import (
    AssetFunction,
    Autoencoder,
    DenoiserStandIn,
    ListDenoiser,
    ProjectionsStandIn,
    StandIn,
    TextEncoderStandIn,
    control_net,
)
from patcomp_models.bundles.diffusion.variant import PipelineVariant
from patcomp_models.bundles.diffusion.variants import variant_of
from patcomp_models.checkpoints.json_files import metadata_in
from patcomp_models.checkpoints.tokenizers import check_ids, tokenizing
from patcomp_models.checkpoints.untrusted import inside, named_class, reading
from patcomp_models.errors import BundleError


def generate_image(
    bundle: str | Path,
    prompt: str,
    *,
    negative_prompt: str | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    seed: int = 0,
    tiled: bool = False,
    image: np.ndarray | None = None,
) -> np.ndarray:
    """An image of a text, by a bundle's assets on this machine's Core AI runtime; for checks, not for speed.

    A bundle of videos or of sounds makes one of these. The loop, the scheduler and the tokenizers are those of
    diffusers and transformers: with `generator=torch.Generator().manual_seed(seed)` they make the same image.

    Args:
        bundle: the folder of a bundle of the kind diffusion, or diffusion_for_other_hosts.
        prompt: the text.
        negative_prompt: what the image is to be unlike; only with guidance.
        steps: of the scheduler; by default as many as `metadata.json` says.
        guidance: how much the text counts; by default what `metadata.json` says, and 1 is none.
        seed: of the noise.
        tiled: whether the image is decoded in tiles, by the decoder for images of half the size; that is also done if
            the bundle has no other decoder.
        image: that a ControlNet or the functions `img2img_*` follow, of the size of the bundle's images:
            (size, size, 3), from 0 to 1.

    Returns:
        (height, width, 3) of float32, from 0 to 1; of a video (frames, height, width, 3); of a sound
        (channels, samples), from -1 to 1, at the `sampling_rate` of the block `diffusion` of `metadata.json`.

    Raises:
        BundleError: the folder is no such bundle, lacks a file, or an option does not fit it.
        MissingToolchainError: `coreai-core` is not installed.
    """
    folder = Path(bundle)
    metadata = metadata_in(folder)
    kind = metadata.get("kind")
    if kind not in ("diffusion", "diffusion_for_other_hosts"):
        raise BundleError(f"{str(folder)!r} is of the kind {kind!r}; images are made by bundles of the kind diffusion")
    with reading(folder):
        wrong = general_problems(folder, metadata) or _of_no_revision(folder, metadata, kind == "diffusion")
        wrong = wrong or record_problems(folder, metadata)
    if wrong:
        raise BundleError(f"{str(folder)!r} cannot be used: {wrong[0].message}")
    if "diffusers" not in metadata:
        raise BundleError(f"{str(folder)!r} cannot be used: {NO_RECORD}")
    block, record = metadata["diffusion"], metadata["diffusers"]
    for name, value, least in (("steps", steps, 1), ("guidance", guidance, 0)):
        if value is not None and value < least:
            raise BundleError(f"{name} is {value}, and must be at least {least}")
    variant = variant_of(record["pipeline"])
    assert variant is not None, "a problem says so before"
    further = {**variant.call(block), **_image(variant, image, folder, metadata)}
    with _pipeline(folder, metadata, tiled) as pipeline:
        if variant.guidance == "true_cfg_scale" and negative_prompt is None:
            if guidance is not None and guidance > 1:
                raise BundleError(
                    f"the guidance {guidance} has no effect without a negative prompt; give one, even ' '"
                )
            guidance = 1.0
        guidance = float(block.get("default_guidance_scale", 1.0)) if guidance is None else guidance
        count = steps or block["default_steps"]
        options = {"prompt": prompt, variant.guidance: guidance, "num_inference_steps": count}
        further |= variant.of_steps(block, count)
        if negative_prompt is not None:
            if not variant.negative_prompt:
                raise BundleError(f"{record['pipeline']} takes no negative prompt; leave it out")
            if guidance <= variant.no_guidance:
                raise BundleError(
                    f"a negative prompt has no effect with the guidance {guidance}; choose more than "
                    f"{variant.no_guidance:g}"
                )
            options["negative_prompt"] = negative_prompt
        made = pipeline(**options, **further, output_type="np", generator=torch.Generator().manual_seed(seed))
    found: np.ndarray = next(iter(made.values()))[0]  # images, frames or audios
    return found


def _of_no_revision(folder: Path, metadata: Mapping[str, Any], for_swift: bool) -> list[Problem]:
    """What the first revision of Apple's package would refuse, of a bundle that is in the form of none."""
    wrong = [contract_problems(folder, metadata, for_swift=for_swift, revision=each) for each in REVISIONS]
    return wrong[0] if all(wrong) else []


def _image(variant: type[PipelineVariant], image: np.ndarray | None, folder: Path, metadata: Any) -> dict[str, Any]:
    """The argument of a pipeline that takes an image."""
    size, pipeline = metadata["diffusion"].get("image_size", 0), metadata["diffusers"]["pipeline"]
    if image is None:
        if variant.takes_image:
            raise BundleError(f"{pipeline} takes an image of {size} x {size} pixels, which its ControlNet follows")
        return {}
    if not variant.takes_image and variant.reference is None:
        raise BundleError(f"{pipeline} takes no image; leave it out")
    if variant.reference is not None:
        names = Interfaces.of(folder / metadata["assets"].get("transformer", "")).names
        if variant.reference not in names:
            raise BundleError(
                f"the transformer of the bundle has no function {variant.reference}; convert the pipeline with "
                f"--set revision={NEW}"
            )
    if image.shape != (size, size, 3):
        shown = " x ".join(map(str, image.shape))
        raise BundleError(f"the image is {shown}, and must be {size} x {size} x 3")
    return {"image": variant.given_image(image)}


@contextmanager
def _pipeline(folder: Path, metadata: Mapping[str, Any], tiled: bool) -> Iterator[Any]:
    """The pipeline of a bundle, until its assets are closed."""
    record = metadata["diffusers"]
    kind = named_class("diffusers", record["pipeline"], "pipeline")
    assets = {role: load(folder / file) for role, file in metadata["assets"].items()}
    try:
        with reading(folder):
            pipeline = _made(kind, folder, record, assets, tiled)
        yield pipeline
    finally:
        for asset in assets.values():
            asset.close()


def _made(kind: Any, folder: Path, record: Mapping[str, Any], assets: Mapping[str, Any], tiled: bool) -> Any:
    """A pipeline of diffusers with assets in the place of models."""
    variant = variant_of(record["pipeline"])
    takes_images = variant is not None and variant.reference is not None
    functions = {role: _functions(role, asset) for role, asset in assets.items()
                 if takes_images or not role.startswith("vae_encoder")}  # fmt: skip
    found: dict[str, Any] = {
        part: _stand_in(part, folder, record, functions, tiled) for part in record["models"]
    }  # fmt: skip
    for name, tokenizer in record["tokenizers"].items():
        place = inside(folder, name, "a tokenizer of metadata.json")
        made = _tokenizer(place, named_class("transformers", tokenizer, "tokenizer"))
        asset = functions[name.replace("tokenizer", "text_encoder")].description
        length = asset.input_descriptor(next(iter(asset.input_names))).shape[-1]
        made.model_max_length = min(made.model_max_length, length)  # the folder need not say it
        found[name] = made
    scheduler = record["scheduler"]
    found["scheduler"] = _scheduler(scheduler["class"], scheduler["config"])
    found |= {**record["settings"], "requires_safety_checker": False}  # assets are not checked
    taken = inspect.signature(kind.__init__).parameters
    lacking = [name for name, each in taken.items() if name != "self" and name not in found
               and each.default is inspect.Parameter.empty]  # fmt: skip
    found |= dict.fromkeys(lacking)  # models that are left out
    pipeline = kind(**{name: value for name, value in found.items() if name in taken})
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _functions(role: str, asset: Any) -> AssetFunction:
    """The functions of an asset as one, for inputs of different sizes."""
    names = sorted(asset.function_names, key=lambda name: name != "main")
    made = [AssetFunction(role, asset.described(name), partial(asset.run, entrypoint=name)) for name in names]
    return replace(made[0], others=tuple(made[1:]))


def _tokenizer(place: Path, kind: Any) -> Any:
    check_ids(place)
    with tokenizing(f"transformers cannot load the tokenizer of {str(place)!r}"):
        return kind.from_pretrained(place, local_files_only=True)


def _scheduler(name: str, config: Mapping[str, Any]) -> Any:
    kind = named_class("diffusers", name, "scheduler")
    _check_settings(name, config)
    try:
        return kind.from_config(config)
    except Exception as error:  # diffusers names a package, such as torchsde, or says what is wrong with a setting
        raise BundleError(f"the scheduler {name} cannot be made: {reason_of(error)}") from error


def _stand_in(
    part: str, folder: Path, record: Mapping[str, Any], functions: Mapping[str, AssetFunction], tiled: bool
) -> StandIn:
    variant = variant_of(record["pipeline"])
    assert variant is not None, "a problem says so before"
    config = _config(record["models"][part])
    if part.startswith("text_encoder"):
        return TextEncoderStandIn(config, functions[part], variant.layers, variant.cuts_texts)
    if part == "projection_model":
        return ProjectionsStandIn(config, functions[part])
    if part == "controlnet":
        return control_net(config)
    if part != "vae":
        kind = ListDenoiser if variant.takes_lists else DenoiserStandIn
        return kind(config, functions[part], variant.inputs, variant.positional)
    whole, half = functions.get("vae_decoder"), functions.get("vae_decoder_half")
    chosen = half if tiled or whole is None else whole
    if chosen is None:
        raise BundleError("the bundle has no decoder for tiles; convert the pipeline with --set half=true")
    encoder = functions.get("vae_encoder" if chosen is whole else "vae_encoder_half")
    return Autoencoder(config, chosen, variant.statistics(folder), variant.ratios(config), encoder)


def _check_settings(name: str, config: object) -> None:
    """Check that the settings of a class in `metadata.json` are settings: anything else names a folder, or the hub.

    Raises:
        BundleError: they are not.
    """
    if not isinstance(config, Mapping):
        raise BundleError(f"the settings of {name} in metadata.json are no object; convert the pipeline again")


def _config(model: Mapping[str, Any]) -> Any:
    """The configuration of a model, with the defaults of its class for what the file does not say.

    Raises:
        BundleError: the class does not take its settings.
    """
    kind = named_class(model["library"], model["class"], "model")
    _check_settings(model["class"], model["config"])
    if model["library"] == "transformers":
        try:
            return kind.config_class.from_dict(model["config"])
        except Exception as error:  # transformers checks settings by exceptions of many classes
            raise BundleError(
                f"the settings of {model['class']} in metadata.json do not fit it: {reason_of(error)}"
            ) from error
    from diffusers.configuration_utils import FrozenDict

    defaults = {name: each.default for name, each in inspect.signature(kind.__init__).parameters.items()
                if each.default is not inspect.Parameter.empty}  # fmt: skip
    return FrozenDict({**defaults, **model["config"]})
