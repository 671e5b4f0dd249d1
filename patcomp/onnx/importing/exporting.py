"""From a file of ONNX to an exported program: `from_onnx`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from patcomp.errors import ExportError, near_names
from patcomp.frontend_torch.exporting import export
from patcomp.onnx.importing.checking import checked
from patcomp.onnx.importing.graphs import Argument, File
from patcomp.onnx.importing.module import OnnxModule
from patcomp.onnx.importing.reading import OnnxError, read


@dataclass(frozen=True)
class OnnxProgram:
    """A file of ONNX as a program of PyTorch."""

    path: Path
    exported: ExportedProgram
    module: OnnxModule
    """Computes the same in eager PyTorch."""
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    """The names that the file has."""


def from_onnx(
    path: str | os.PathLike[str],
    *,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> OnnxProgram:
    """Read a file of ONNX as an exported program, for `TorchConverter.add_exported_program`.

        program = from_onnx("model.onnx")
        converter.add_exported_program(program.exported, program.input_names, program.output_names)

    Weights share the memory of the file, and those in other files of its folder are mapped. Open sizes are dynamic
    dimensions with the names that the file has. The example inputs are made up: normal floats, and integers 0 and 1.

    Args:
        path: of the file.
        sizes: numbers for open sizes, by their names in the file.

    Raises:
        OnnxError: the file is damaged, a node of it is not supported, or `sizes` names no open size.
        UnsupportedError: ops have no row; all of them are named.
        ExportError: PyTorch cannot export what the nodes compute, for example where a size must not be open.
    """
    file = checked(_with_sizes(read(Path(path)), sizes))
    module = OnnxModule(file).eval()
    inputs, shapes = _example(file)
    try:
        exported = export(module, inputs, dynamic_shapes=shapes, draft=False)
    except ExportError as error:
        raise _explained(error, file) from error
    names = tuple(each.name for each in file.arguments)
    return OnnxProgram(Path(path), exported, module, names, file.graph.outputs)


def _with_sizes(file: File, sizes: Mapping[str, int]) -> File:
    open_sizes = {size for each in file.arguments for size in each.shape if isinstance(size, str)}
    for name in sizes.keys() - open_sizes:
        raise OnnxError(f"{file.path} has no open size {name!r}; it has {near_names(name, sorted(open_sizes))}")
    arguments = tuple(replace(each, shape=tuple(sizes.get(n, n) if isinstance(n, str) else n for n in each.shape))
                      for each in file.arguments)  # fmt: skip
    return replace(file, arguments=arguments)


_FIRST_EXAMPLE, _FURTHER_EXAMPLES = 2, (16, 24, 32, 40, 48, 56, 64)
"""The example sizes of a first axis, which is the batch as a rule, and of others."""


def _example(file: File) -> tuple[tuple[Tensor, ...], Any]:
    """Example inputs, and the dynamic shapes."""
    generator = torch.Generator().manual_seed(0)
    example: dict[str, int] = {}
    dims: dict[str, Any] = {}
    for argument in file.arguments:
        for axis, size in enumerate(argument.shape):
            if isinstance(size, str) and size not in example:
                further = _FURTHER_EXAMPLES[len(example) % len(_FURTHER_EXAMPLES)]
                example[size] = _FIRST_EXAMPLE if axis == 0 else further
                dims[size] = Dim(_identifier(size, {dim.__name__ for dim in dims.values()}))
    inputs = tuple(_values(each, [example.get(n, n) for n in each.shape], generator) for each in file.arguments)
    if not dims:
        return inputs, None
    shapes = tuple({axis: dims[n] for axis, n in enumerate(each.shape) if n in dims} for each in file.arguments)
    return inputs, (shapes,)


def _identifier(name: str, taken: set[str]) -> str:
    """A name of Python for an open size."""
    plain = "".join(each if each.isascii() and (each.isalnum() or each == "_") else "_" for each in name)
    plain = plain if plain[:1].isalpha() else f"size_{plain}"
    return next(each for each in (plain, *(f"{plain}_{n}" for n in range(1, len(taken) + 2))) if each not in taken)


def _values(argument: Argument, shape: list[Any], generator: torch.Generator) -> Tensor:
    if argument.dtype.is_floating_point or argument.dtype.is_complex:
        return torch.randn(shape, generator=generator).to(argument.dtype)
    return torch.randint(0, 2, shape, generator=generator).to(argument.dtype)


def _explained(error: ExportError, file: File) -> Exception:
    """An error of an export, with what it means for a file."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OnnxError):
            return cause
        cause = cause.__cause__ or cause.__context__
    names = sorted({size for each in file.arguments for size in each.shape if isinstance(size, str)})
    advice = f"\nA size that the file leaves open may have to be fixed: sizes={{{names[0]!r}: 1}} (open: {', '.join(names)})"
    return OnnxError(f"{file.path} cannot be exported: {error}{advice if names else ''}")
