"""Adapters of peft that add products of low rank to the weights of a model (LoRA; Hu et al. 2021, arXiv:2106.09685).

The two files of an adapter's folder are read here, so that peft need not be installed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from patcomp.errors import reason_of
from patcomp_models.checkpoints.contents import ADAPTER, ADAPTER_WEIGHTS
from patcomp_models.checkpoints.untrusted import check_folder, object_in, tensors_in
from patcomp_models.errors import LanguageModelError

_READ = {
    "peft_type", "base_model_name_or_path", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora",
    "use_dora", "lora_bias", "init_lora_weights",
}  # fmt: skip
_IDLE = {
    "task_type", "inference_mode", "revision", "auto_mapping", "peft_version", "target_modules", "exclude_modules",
    "layers_to_transform", "layers_pattern", "modules_to_save", "bias", "fan_in_fan_out", "lora_dropout",
    "loftq_config", "eva_config", "corda_config", "lora_ga_config", "runtime_config", "megatron_core",
    "qalora_group_size",
}  # fmt: skip
"""Options that say how an adapter was trained, or what the names and shapes of its weights say, too."""
_INITS = (None, True, False, "gaussian", "orthogonal", "eva")
"""The values of `init_lora_weights` that leave the weights of the base model as they are."""
_PART = re.compile(r"^(.*)\.(lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)(\.weight|\.bias)?$")


@dataclass(frozen=True)
class LowRank:
    """What an adapter adds to one module, in float32."""

    a: Tensor
    """(r, in), or of a table of embeddings (r, rows)."""
    b: Tensor
    """(out, r), times the scale."""
    magnitude: Tensor | None = None
    """(out), the norms of the columns of the sum (DoRA; Liu et al. 2024, arXiv:2402.09353)."""
    bias: Tensor | None = None
    """(out), what is added to the bias, times the scale."""


@dataclass(frozen=True)
class Adapter:
    """An adapter that was read.

    Attributes:
        folder: of its two files.
        base: the model that it is for, by a path or an id of the hub, if it says so.
        products: by the name of the module.
        weights: those that take the place of the model's, by name: biases, and `modules_to_save`.
    """

    folder: Path
    base: str | None
    products: Mapping[str, LowRank]
    weights: Mapping[str, Tensor] = field(default_factory=dict)


def read_adapter(folder: Path) -> Adapter:
    """The adapter in a folder.

    Raises:
        LanguageModelError: a file is missing or damaged, or the adapter is of a form that is not known.
    """
    if not (folder / ADAPTER).is_file():
        raise LanguageModelError(f"{str(folder)!r} has no {ADAPTER}, so it is not the folder of an adapter of peft")
    check_folder(folder, LanguageModelError)
    config = object_in(folder / ADAPTER, LanguageModelError)
    _check_options(folder, config)
    stored = _stored(folder)
    parts: dict[str, dict[str, Tensor]] = {}
    weights: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        own = name.removeprefix("base_model.model.")
        own = own.replace(".base_layer.", ".").replace(".modules_to_save.", ".").replace(".default", "")
        if match := _PART.match(own):
            kind = match[2].replace("embedding_", "") + (".bias" if match[3] == ".bias" else "")
            parts.setdefault(match[1], {})[kind] = tensor
        elif "lora_" in own or "token_adapter" in own:
            raise LanguageModelError(f"the adapter {str(folder)!r} has the weight {name}, whose meaning is not known")
        else:
            weights[own] = tensor
    products = {name: _product(folder, config, name, found) for name, found in parts.items()}
    if not products and not weights:
        raise LanguageModelError(f"the adapter {str(folder)!r} has no weights")
    base = config.get("base_model_name_or_path")
    return Adapter(folder, base if isinstance(base, str) and base else None, products, weights)


def _stored(folder: Path) -> dict[str, Tensor]:
    file = folder / ADAPTER_WEIGHTS
    if not file.is_file():
        raise LanguageModelError(f"{str(folder)!r} lacks {ADAPTER_WEIGHTS}, the file of the adapter's weights")
    try:
        with tensors_in(file) as opened:
            return {name: opened.get_tensor(name).float() for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise LanguageModelError(f"{str(file)!r} is not a whole file of safetensors: {reason_of(error)}") from None


def _check_options(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse what an adapter asks for and nobody here does."""
    if (kind := config.get("peft_type")) != "LORA":
        raise LanguageModelError(f"{str(folder)!r} holds an adapter of the type {kind!r}, and only LORA is read")
    if others := sorted(name for name, value in config.items() if name not in _READ | _IDLE and value):
        raise LanguageModelError(
            f"{ADAPTER} of {str(folder)!r} has the option {', '.join(others)}, which is not known here; merge the "
            "adapter into its model (merge_and_unload of peft) and give the folder of the result"
        )
    if (init := config.get("init_lora_weights")) not in _INITS:
        raise LanguageModelError(
            f"the adapter {str(folder)!r} began with init_lora_weights={init!r}, which changes the weights of its base "
            "model, too; save it with path_initial_model_for_weight_conversion= of peft, which makes a plain LoRA of it"
        )


def _product(folder: Path, config: Mapping[str, Any], name: str, found: Mapping[str, Tensor]) -> LowRank:
    """What an adapter adds to the module of a name."""
    if "lora_A" not in found or "lora_B" not in found:
        raise LanguageModelError(f"the adapter {str(folder)!r} has {' and '.join(sorted(found))} of {name} only")
    a, b, magnitude = found["lora_A"], found["lora_B"], found.get("lora_magnitude_vector")
    rank = _by_pattern(folder, config, "rank_pattern", "r", name)
    alpha = _by_pattern(folder, config, "alpha_pattern", "lora_alpha", name)
    if a.ndim != 2 or b.ndim != 2 or not a.shape[0] == b.shape[1] == rank:
        raise LanguageModelError(
            f"the adapter {str(folder)!r} has matrices of {list(a.shape)} and {list(b.shape)} for {name}, whose rank "
            f"is {rank} by {ADAPTER}"
        )
    if bool(config.get("use_dora")) != (magnitude is not None):
        raise LanguageModelError(
            f"{ADAPTER} of {str(folder)!r} says use_dora={bool(config.get('use_dora'))}, and {name} has "
            f"{'no' if magnitude is None else 'a'} lora_magnitude_vector"
        )
    scale = alpha / (rank**0.5 if config.get("use_rslora") else rank)
    bias = found.get("lora_B.bias")
    return LowRank(a, scale * b, magnitude, None if bias is None else scale * bias)


def _by_pattern(folder: Path, config: Mapping[str, Any], table: str, default: str, name: str) -> float:
    """A number of a module: that of the first pattern of a table that its name ends with, or the adapter's."""
    patterns = config.get(table) or {}
    if not isinstance(patterns, dict):
        raise LanguageModelError(f"{table} in {ADAPTER} of {str(folder)!r} is no object")
    if long := [key for key in patterns if len(re.findall(r"[*+?{]", key)) > 1]:
        raise LanguageModelError(
            f"{table} in {ADAPTER} of {str(folder)!r} has the pattern {long[0]!r} with several repetitions, which a "
            "stranger's file may not have, because they can take for ever"
        )
    try:
        found = next((each for key, each in patterns.items() if re.match(rf"(.*\.)?({key})$", name)), None)
    except re.error as error:
        raise LanguageModelError(
            f"{table} in {ADAPTER} of {str(folder)!r} has a pattern that is none: {error}"
        ) from None
    value = config.get(default) if found is None else found
    if isinstance(value, bool) or not isinstance(value, int | float) or (default == "r" and value < 1):
        raise LanguageModelError(f"{default} of {name} in {ADAPTER} of {str(folder)!r} is {value!r}, and no number")
    return value


def summed(weight: Tensor, product: LowRank, share: float = 1.0, *, is_transposed: bool) -> Tensor:
    """A weight with the product of an adapter, in float32.

    Args:
        weight: (out, in), or (in, out) if it is transposed, as a table of embeddings is.
        product: of the adapter.
        share: how much of the adapter is added; 1 where it has magnitudes.
        is_transposed: whether the rows are those of the input.
    """
    added = product.b @ product.a
    made = weight.float() + share * (added.T if is_transposed else added)
    if product.magnitude is None:
        return made
    factor = product.magnitude / torch.linalg.norm(made, dim=0 if is_transposed else 1)
    return made * (factor if is_transposed else factor[:, None])
