"""AutoRound, which packs weights as other libraries do and describes them in words of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patcomp_models.checkpoints.quantized.formats.base import described_as
from patcomp_models.errors import LanguageModelError

_PACKINGS: Mapping[str, Mapping[str, Any]] = {
    "auto_round:auto_gptq": {"quant_method": "gptq", "checkpoint_format": "gptq"},
    "auto_round": {"quant_method": "gptq", "checkpoint_format": "gptq_v2"},
    "auto_round:gptqmodel": {"quant_method": "gptq", "checkpoint_format": "gptq_v2"},
    "auto_round:auto_awq": {"quant_method": "awq", "version": "gemm"},
    "auto_round:llm_compressor": {"quant_method": "compressed-tensors"},
}
"""What the library of each packing would say of it; zero points of asymmetric weights are stored as they are."""


def translated(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What `config.json` says, in the words of the library whose packing AutoRound used.

    Source: `auto_round.inference.backend`.

    Raises:
        LanguageModelError: the packing is not read.
    """
    if (found := described_as(config, "auto-round")) is None:
        return config
    packing = found.get("packing_format") or "auto_round:auto_gptq"
    if packing not in _PACKINGS:
        raise LanguageModelError(f"the checkpoint is AutoRound's packing {packing!r}; {', '.join(_PACKINGS)} are read")
    bits = found.get("act_bits")
    rounded = {"": {"input_activations": {"num_bits": bits}}} if isinstance(bits, int) and bits < 16 else {}
    return {**config, "quantization_config": {**found, "config_groups": rounded, **_PACKINGS[packing]}}
