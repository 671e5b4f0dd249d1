"""Find the problems of an image bundle: files and values that Apple's Swift package or `generate_image` would refuse or
misread."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import function_of, problem
from patcomp_models.bundle_folders.interfaces import Function
from patcomp_models.bundle_folders.revisions import OLD
from patcomp_models.bundles.diffusion.variant import PipelineVariant, is_tokenizer
from patcomp_models.bundles.diffusion.variants import VARIANTS, variant_of

NO_RECORD = "its metadata.json has no block diffusers, which patcomp writes for hosts that are not Swift"
_NUMBERS = (
    "encoder_scale_factor", "decoder_scale_factor", "decoder_shift_factor", "default_guidance_scale", "default_steps",
    "batch_norm_eps", "rope_theta",
)  # fmt: skip
_OF_THE_AUTOENCODER = {
    "decoder_scale_factor": "scaling_factor", "decoder_shift_factor": "shift_factor", "latents_mean": "latents_mean",
    "latents_std": "latents_std", "sampling_rate": "sampling_rate",
}  # fmt: skip
"""Values of the block `diffusion`, and those of the autoencoder's configuration that they repeat."""
_SCHEDULER = ("training_steps", "beta_start", "beta_end", "beta_schedule")
_PREDICTIONS = {
    "stable-diffusion": ("epsilon", "v_prediction"), "stable-diffusion-3": ("flow", "flow_matching"),
    "flux2": ("flow", "flow_matching"), "sana-sprint": ("flow", "flow_matching"),
}  # fmt: skip


def contract_problems(
    bundle: Path, metadata: Mapping[str, Any], *, for_swift: bool, revision: str = OLD
) -> list[Problem]:
    """What is wrong with the block `diffusion`, the assets and the files.

    Args:
        bundle: its folder.
        metadata: its `metadata.json`, whose assets exist.
        for_swift: whether Swift has to know the type.
        revision: of Apple's Swift package.
    """
    block, assets = metadata.get("diffusion"), metadata["assets"]
    if not isinstance(block, Mapping):
        return [problem("diffusion is missing")]
    types = {each.type: each for each in VARIANTS if each.for_swift == for_swift}
    variant = types.get(block.get("type", "stable-diffusion"))
    if variant is None:
        return [problem(f"diffusion.type is {block.get('type')!r}, and must be one of {', '.join(types)}")]
    found = [
        *_block_problems(block, variant), *variant.block_problems(block, revision), *_file_problems(bundle, variant)
    ]  # fmt: skip
    roles = [part for part in (*(variant.assets or variant.parts), *variant.further_parts(block))
             if not _is_there(part, assets)]  # fmt: skip
    found += [problem(f"assets.{role} is missing") for role in roles]
    if not {"vae_decoder", "vae_decoder_half"} & set(assets):
        found.append(problem("assets.vae_decoder is missing"))
    found += [
        problem(f"assets.{role} is {assets[role]}, and Swift finds it by the name {file}.aimodel")
        for role, file in variant.by_name.items() if role in assets and assets[role] != f"{file}.aimodel"
    ]  # fmt: skip
    if found:
        return found
    functions: dict[str, Function] = {}
    for role, forms in variant.functions(block, revision).items():
        for name, interface in forms.items() if role in assets else ():
            made, wrong = function_of(bundle / assets[role], name)
            if name == "main":
                functions[role] = made
            elif made is None:
                continue  # further functions need not be there
            form = interface if for_swift else interface.with_bfloat16()
            found += wrong or form.problems(role if name == "main" else f"{name} of {role}", made)
    return found or _width_problems(variant.type, functions)


def record_problems(bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the block `diffusers`, if there is one."""
    record, block = metadata.get("diffusers"), metadata["diffusion"]
    if record is None:
        return []
    wanted = ("pipeline", "settings", "scheduler", "tokenizers", "models")
    if not isinstance(record, Mapping) or not all(name in record for name in wanted):
        return [problem(f"diffusers must have {', '.join(wanted)}")]
    variant = variant_of(record["pipeline"])
    if variant is None or variant.type != block.get("type", variant.type):
        return [problem(f"diffusers.pipeline is {record['pipeline']!r}, and diffusion.type {block.get('type')!r}")]
    parts = (*variant.parts, *variant.further_parts(block), "vae")
    if wrong := [name for name in wanted[1:] if not isinstance(record[name], Mapping)]:
        return [problem(f"diffusers.{name} is no object") for name in wrong]
    found = [problem(f"diffusers.models has no {part}") for part in parts if part not in record["models"]]
    found += [problem(f"diffusers.models.{part} must have library, class and config")
              for part, model in record["models"].items() if not _is_model(model)]  # fmt: skip
    found += [problem(f"there is no folder {name}, which diffusers.tokenizers names") for name in record["tokenizers"]
              if not is_tokenizer(name) or not (bundle / name).is_dir()]  # fmt: skip
    if found:
        return found
    config = record["models"]["vae"].get("config", {})
    for own, name in _OF_THE_AUTOENCODER.items():
        if own in block and block[own] != (config.get(name) or 0.0):
            found.append(
                problem(f"diffusion.{own} is {block[own]}, and the autoencoder's {name} is {config.get(name)}")
            )
    return found


def _is_model(model: object) -> bool:
    """Whether an entry of the record says a class and its configuration."""
    return isinstance(model, Mapping) and {"library", "class", "config"} <= model.keys() and (
        isinstance(model["config"], Mapping)
    )  # fmt: skip


def _is_there(part: str, assets: Mapping[str, str]) -> bool:
    return part in assets or (part == "transformer" and "transformer_512" in assets)


def _block_problems(block: Mapping[str, Any], variant: type[PipelineVariant]) -> list[Problem]:
    """What is wrong with the values of the block."""
    found = [problem(f"diffusion.{name} is {block[name]!r}, and must be a number") for name in _NUMBERS
             if not _is_number(block.get(name, 0))]  # fmt: skip
    size = block.get("image_size", 512)
    if not _is_number(size) or not isinstance(size, int) or size <= 0:
        found.append(problem(f"diffusion.image_size is {size!r}, and must be a number of pixels"))
    predictions = _PREDICTIONS.get(block.get("type", "stable-diffusion"))
    if predictions and block.get("prediction_type", predictions[0]) not in predictions:
        found.append(problem(
            f"diffusion.prediction_type is {block['prediction_type']!r}, and must be one of {', '.join(predictions)}"
        ))  # fmt: skip
    found += [problem(f"diffusion.{name} is {block.get(name)!r}, and must be a whole number above zero")
              for name in variant.block_counts
              if not (_is_number(count := block.get(name)) and isinstance(count, int) and count > 0)]  # fmt: skip
    scheduler = block.get("scheduler")
    if scheduler is not None:
        lacking = [name for name in _SCHEDULER if not isinstance(scheduler, Mapping) or name not in scheduler]
        found += [problem(f"diffusion.scheduler has no {name}; Swift reads all four or no block") for name in lacking]
        if not lacking and (schedule := scheduler["beta_schedule"]) != "scaled_linear":
            found.append(problem(
                f"diffusion.scheduler.beta_schedule is {schedule!r}, and Swift computes scaled_linear",
                "run the bundle with another scheduler",
            ))  # fmt: skip
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _file_problems(bundle: Path, variant: type[PipelineVariant]) -> list[Problem]:
    """The files that Swift reads and that are not there."""
    wanted = [f"{folder}/{name}" for folder in variant.clip_tokenizers for name in ("vocab.json", "merges.txt")]
    if variant.type == "flux2":
        wanted = [f"tokenizer/{name}" for name in ("tokenizer.json", "tokenizer_config.json", "config.json")]
    elif variant.type == "sana-sprint":
        wanted = [f"tokenizer/{name}" for name in ("tokenizer.json", "tokenizer_config.json")]
    return [
        *(problem(f"there is no {name}, which Swift's tokenizer reads") for name in wanted
          if not (bundle / name).is_file()),
        *(problem(f"there is no {name}, which Swift reads") for name in variant.sidecars
          if not (bundle / name).is_file()),
    ]  # fmt: skip


def _width_problems(kind: str, functions: Mapping[str, Function]) -> list[Problem]:
    """A text encoder whose width the denoiser does not take."""
    denoiser = next((functions[role] for role in ("unet", "transformer", "transformer_512") if role in functions), None)
    if denoiser is None or kind not in ("stable-diffusion", "flux2"):
        return []
    wanted = list(denoiser.inputs.values())[2 if kind == "stable-diffusion" else 1].shape[1:]
    given = next(iter(functions["text_encoder"].outputs.values())).shape[1:]
    if wanted == given:
        return []
    shown = [" x ".join(map(str, sizes)) for sizes in (given, wanted)]
    return [problem(f"text_encoder gives {shown[0]} for a text, and the denoiser takes {shown[1]}")]
