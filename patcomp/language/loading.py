"""Load a causal language model from a folder, or take one that is loaded."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from patcomp.language.errors import LanguageModelError

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def checked_folder(folder: Path, *, trust_remote_code: bool) -> dict[str, Any]:
    """The configuration of a checkpoint folder.

    Raises:
        LanguageModelError: the folder is not a complete checkpoint of a causal language model, or needs its own code.
    """
    if not folder.is_dir():
        raise LanguageModelError(f"{str(folder)!r} is not a folder; give the folder of a checkpoint, with config.json")
    if not (folder / "config.json").is_file():
        raise LanguageModelError(f"{str(folder)!r} has no config.json, so it is not the folder of a checkpoint")
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    except ValueError as error:
        raise LanguageModelError(f"{folder / 'config.json'} is not JSON: {error}") from None
    if "auto_map" in config and not trust_remote_code:
        raise LanguageModelError(
            f"the model in {str(folder)!r} runs Python code of its folder; read it, then pass trust_remote_code=True "
            "(--trust-remote-code of convert-lm, --trusted of convert)"
        )
    missing = [name for name in _shards(folder) if not (folder / name).is_file()]
    if missing:
        raise LanguageModelError(f"{str(folder)!r} lacks {len(missing)} weight files: {', '.join(missing[:3])}")
    return config


def _shards(folder: Path) -> list[str]:
    """The files of weights that a folder must have."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return sorted(set(json.loads(index.read_text())["weight_map"].values()))
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    return found or ["model.safetensors"]


def load_model(folder: Path, dtype: str, *, trust_remote_code: bool) -> nn.Module:
    """The model of a checkpoint folder, in eval mode.

    Raises:
        LanguageModelError: transformers has no causal language model for it, or cannot load it; weights are quantised,
            or too large for the type.
    """
    return loaded("AutoModelForCausalLM", "as a causal language model", folder, dtype, trust_remote_code)


def loaded(auto: str, purpose: str, folder: Path, dtype: str, trust_remote_code: bool) -> nn.Module:
    """A model of transformers, in eval mode.

    Args:
        auto: the class of transformers that loads it.
        purpose: what it is loaded for, in an error's words.
        folder: of the checkpoint.
        dtype: of the weights.
        trust_remote_code: whether to run code of the folder.

    Raises:
        LanguageModelError: transformers cannot load it; weights are quantised, or too large for the type.
    """
    import transformers
    from safetensors import SafetensorError

    try:
        model: nn.Module = getattr(transformers, auto).from_pretrained(
            folder,
            dtype=DTYPES[dtype],
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            **_expansion(folder),
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0]
        raise LanguageModelError(f"transformers cannot load {str(folder)!r} {purpose}: {first}") from error
    _check_weights(model, rounded=_stored_types(folder) != {_STORED[dtype]})
    return model.eval()


def _expansion(folder: Path) -> dict[str, Any]:
    """What makes transformers expand the packed weights of a checkpoint to floats: the MXFP4 experts of gpt-oss."""
    quantization = json.loads((folder / "config.json").read_text()).get("quantization_config") or {}
    if quantization.get("quant_method") != "mxfp4":
        return {}
    from transformers import Mxfp4Config

    return {"quantization_config": Mxfp4Config(dequantize=True)}


_STORED = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}
"""The names of types in files of weights."""


def _stored_types(folder: Path) -> set[str]:
    """The types of the weights in a folder's files."""
    from safetensors import safe_open

    found = set()
    for name in _shards(folder):
        with safe_open(folder / name, "pt") as weights:
            found |= {weights.get_slice(key).get_dtype() for key in weights.keys()}  # noqa: SIM118
    return found


def _check_weights(model: nn.Module, *, rounded: bool) -> None:
    """Check that weights are plain floats, and finite after they were rounded to another type.

    Raises:
        LanguageModelError: weights are quantised, or too large for their type.
    """
    for name, weight in model.named_parameters():
        if not weight.is_floating_point() or weight.dtype.itemsize == 1:
            raise LanguageModelError(
                f"the weights are quantised: {name} is {weight.dtype}; convert a checkpoint of plain floats"
            )
        if rounded and not bool(weight.isfinite().all()):
            raise LanguageModelError(
                f"{name} has numbers that {str(weight.dtype).removeprefix('torch.')} cannot hold; "
                "pass dtype='bfloat16', which has the range of float32"
            )


def in_dtype(model: nn.Module, dtype: str) -> nn.Module:
    """A model in eval mode whose floats all have one type: itself if it is so, otherwise a copy.

    Raises:
        LanguageModelError: weights are quantised, or too large for the type.
    """
    _check_weights(model, rounded=False)
    wanted = DTYPES[dtype]
    floats = {tensor.dtype for tensor in model.parameters() if tensor.is_floating_point()}
    if floats <= {wanted} and not model.training:
        return model
    made = copy.deepcopy(model).to(wanted).eval()
    _check_weights(made, rounded=True)
    return made


@contextmanager
def implementations(model: Any, attention: str, experts: str | None) -> Iterator[None]:
    """The implementations of attention and of experts that a model is exported with; the own ones come back."""
    config = model.config
    before, of_experts = config._attn_implementation, getattr(config, "_experts_implementation", None)
    try:
        model.set_attn_implementation(attention)
        if experts is not None:
            model.set_experts_implementation(experts)
        yield
    finally:
        model.set_attn_implementation(before)
        if experts is not None and of_experts is not None:
            model.set_experts_implementation(of_experts)
