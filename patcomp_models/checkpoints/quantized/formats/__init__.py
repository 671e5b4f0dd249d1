"""The formats of checkpoints in few bits, one a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patcomp_models.checkpoints.quantized.formats.auto_round import translated
from patcomp_models.checkpoints.quantized.formats.awq import AWQ
from patcomp_models.checkpoints.quantized.formats.base import Format
from patcomp_models.checkpoints.quantized.formats.bitnet import BitNet
from patcomp_models.checkpoints.quantized.formats.bitsandbytes import BitsAndBytes
from patcomp_models.checkpoints.quantized.formats.compressed_tensors import CompressedTensors
from patcomp_models.checkpoints.quantized.formats.float8 import Float8
from patcomp_models.checkpoints.quantized.formats.gemma import Gemma
from patcomp_models.checkpoints.quantized.formats.gguf import GGUF
from patcomp_models.checkpoints.quantized.formats.gpt_oss import GptOss
from patcomp_models.checkpoints.quantized.formats.gptq import GPTQ
from patcomp_models.checkpoints.quantized.formats.hqq import HQQ
from patcomp_models.checkpoints.quantized.formats.mlx import MLX
from patcomp_models.checkpoints.quantized.formats.modelopt import ModelOpt
from patcomp_models.checkpoints.quantized.formats.quanto import Quanto
from patcomp_models.checkpoints.quantized.formats.torchao import TorchAO
from patcomp_models.checkpoints.untrusted import object_in, tensors_in
from patcomp_models.errors import LanguageModelError

FORMATS: tuple[type[Format], ...] = (
    MLX, GPTQ, AWQ, CompressedTensors, Float8, GptOss, BitsAndBytes, TorchAO, HQQ, Quanto, BitNet, Gemma, ModelOpt,
    GGUF,
)  # fmt: skip


def format_of(folder: Path, config: Mapping[str, Any]) -> Format | None:
    """The format of a checkpoint in few bits; None for floats and formats that are not read.

    Raises:
        LanguageModelError: as `Format.of`.
    """
    given = translated({**config, **_described_elsewhere(folder, config)})
    return next((found for each in FORMATS if (found := each.of(given)) is not None), None)


_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq", "hf_quant_config.json": "modelopt"}
"""The files in which quantisers of their own describe a checkpoint."""


def _described_elsewhere(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What `config.json` does not say of the weights, as it would say it."""
    if any(isinstance(config.get(key), Mapping) for key in ("quantization_config", "quantization")):
        return {}
    if (file := folder / "quanto_qmap.json").is_file():
        return {"quantization_config": {"quant_method": "quanto", "modules": _object(file)}}
    for name, method in _FILES.items():
        if (file := folder / name).is_file():
            found = _object(file)
            own = found.get("quantization", found) if method == "modelopt" else found
            renamed = {new: own[old] for new, old in (("bits", "w_bit"), ("group_size", "q_group_size")) if old in own}
            return {"quantization_config": {**own, **renamed, "quant_method": method}}
    if (file := folder / "model.safetensors").is_file() and _has_hqq(file):
        return {"quantization_config": {"quant_method": "hqq"}}
    return {}


def _object(file: Path) -> dict[str, Any]:
    return object_in(file, LanguageModelError)


def _has_hqq(file: Path) -> bool:
    """Whether the names of tensors are those of HQQ, which writes nothing else about itself."""
    from safetensors import SafetensorError

    try:
        with tensors_in(file) as tensors:
            return any(name.endswith(".W_q") for name in tensors.keys())  # noqa: SIM118
    except (SafetensorError, OSError):
        return False  # a damaged file is reported where files are checked
