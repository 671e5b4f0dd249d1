"""torchao, as its tensors are saved in safetensors: a byte for each integer, or float8, and scales of blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from patcomp_models.checkpoints.quantized.formats.base import PartsFormat, Tensors, Weights, described_as
from patcomp_models.checkpoints.quantized.weight import PackedWeight, WeightPart, from_integers
from patcomp_models.errors import LanguageModelError

_KINDS = ("IntxUnpackedToInt8Tensor", "Int8Tensor", "Float8Tensor")


@dataclass(frozen=True)
class TorchAO(PartsFormat):
    """Source: `torchao.prototype.safetensors` and the tensors of `torchao.quantization`; the metadata of a file say of
    which class each weight was, and its bits."""

    kinds: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the metadata of the files say of each weight."""

    name = "torchao"
    mark = "_weight_qdata"
    parts = ("_weight_qdata", "_weight_scale", "_weight_zero_point")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        return None if described_as(config, "torchao") is None else cls()

    def weights(self, files: Sequence[Path]) -> Weights:
        tensors = Tensors(files)
        for name, text in tensors.metadata.items():
            if text.startswith("{"):
                self.kinds[name] = json.loads(text)
        made: dict[str, Callable[[], WeightPart]] = dict(super().weights(files))
        for name, kind in self.kinds.items():
            if kind.get("_type") not in ("Tensor", *_KINDS):
                made[name] = partial(self._refused, name, str(kind.get("_type")))
        return made

    def _refused(self, name: str, kind: str) -> WeightPart:
        raise LanguageModelError(f"{name} is torchao's {kind}, whose layout is that of a GPU kernel; it is not read")

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        data, scale, zero = (tensors.get(part) for part in self.parts)
        if data is None or scale is None:
            raise KeyError("_weight_scale")
        own = self.kinds.get(f"{path}.weight", {}).get("_data", {})
        if own.get("activation_quantization") or own.get("act_quant_kwargs"):
            raise LanguageModelError(f"{path} rounds its inputs (torchao's {own}), which is not done")
        scale = scale.reshape(1, 1) if scale.numel() == 1 else scale
        if data.is_floating_point():
            return PackedWeight(data, 8, scale)
        bits = int((re.search(r"int(\d)", json.dumps(own.get("target_dtype", "int8"))) or ["", "8"])[1])
        return from_integers(data, bits, scale, None if zero is None else zero.reshape(scale.shape))
