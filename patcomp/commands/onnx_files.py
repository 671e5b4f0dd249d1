"""Files of ONNX as the commands take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from patcomp.commands.common import UsageError
from patcomp.conversion.source import ModelSource

if TYPE_CHECKING:
    from torch import nn


def open_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Numbers for sizes that a file leaves open, by their names, which may have any characters.

    Raises:
        UsageError: a text is not NAME=SIZE, or a size has two numbers.
    """
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not (name and size.isdecimal() and size.isascii()):
            raise UsageError(f"--onnx-size {text} must have the form NAME=SIZE, such as batch=1")
        if sizes.setdefault(name, int(size)) != int(size):
            raise UsageError(f"--onnx-size gives two numbers to {name}, {sizes[name]} and {int(size)}")
    return sizes


def source_of_onnx(path: Path, sizes: Mapping[str, int]) -> ModelSource:
    """The program of a file. Its own numbers are those of ONNX Runtime if it is installed, else of its ops in PyTorch.

    Args:
        path: of the file.
        sizes: numbers for sizes that the file leaves open.

    Raises:
        PatcompError: the file cannot be read or exported.
    """
    from patcomp.onnx.importing import from_onnx
    from patcomp.onnx.importing.original import OnnxRuntimeModel

    program = from_onnx(path, sizes=sizes)
    model: nn.Module = program.module
    reference = "its ops in eager PyTorch, without ONNX Runtime"
    with suppress(ImportError):  # the comparison says what it is with
        model, reference = OnnxRuntimeModel(path), "ONNX Runtime"
    return ModelSource(
        str(path),
        program.exported,
        model,
        input_names=program.input_names,
        output_names=program.output_names,
        reference=reference,
    )
