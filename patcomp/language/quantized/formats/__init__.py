"""The formats of checkpoints in few bits, one a file."""

from collections.abc import Mapping
from typing import Any

from patcomp.language.quantized.formats.awq import AWQ
from patcomp.language.quantized.formats.base import Format
from patcomp.language.quantized.formats.compressed_tensors import CompressedTensors
from patcomp.language.quantized.formats.float8 import Float8
from patcomp.language.quantized.formats.gptq import GPTQ
from patcomp.language.quantized.formats.mlx import MLX

FORMATS: tuple[type[Format], ...] = (MLX, GPTQ, AWQ, CompressedTensors, Float8)


def format_of(config: Mapping[str, Any]) -> Format | None:
    """The format of a checkpoint in few bits, by its `config.json`; None for floats and formats that are not read.

    Raises:
        LanguageModelError: as `Format.of`.
    """
    return next((found for each in FORMATS if (found := each.of(config)) is not None), None)
