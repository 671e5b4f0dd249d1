"""From a file of ONNX to an exported program: `from_onnx`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from patcomp.errors import ExportError, PatcompError, near_names
from patcomp.frontend_torch.exporting import export
from patcomp.onnx.importing.checking import with_definitions
from patcomp.onnx.importing.folding import with_constants, with_few_bits
from patcomp.onnx.importing.graphs import File, OnnxInput
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
    module = onnx_module(Path(path), sizes)
    file = module.file
    inputs, example = _example(file)
    try:
        shapes = _open_shapes(file, module, inputs) if example else None
        exported = export(module, inputs, dynamic_shapes=shapes, draft=False)
    except (ExportError, OnnxError) as error:
        raise _explained(error, file) from error
    names = tuple(each.name for each in file.arguments)
    return OnnxProgram(Path(path), exported, module, names, file.graph.outputs)


def onnx_module(path: Path, sizes: Mapping[str, int] = MappingProxyType({})) -> OnnxModule:
    """The module of a file, ready to be exported; raises as `from_onnx`."""
    return OnnxModule(with_constants(with_few_bits(with_definitions(_with_sizes(read(path), sizes))))).eval()


def _open_shapes(file: File, module: OnnxModule, inputs: tuple[Tensor, ...]) -> Any:
    """The dynamic shapes, with the ranges in which the nodes can run: a table of positions has a last one.

    PyTorch finds the ranges, and names for the sizes are given in a second export.

    Raises:
        OnnxError: a node needs one number for a size that the file leaves open.
    """
    places = [{axis: n for axis, n in enumerate(each.shape) if isinstance(n, str)} for each in file.arguments]
    free = tuple(dict.fromkeys(axes, Dim.AUTO) for axes in places)
    found = export(module, inputs, dynamic_shapes=(free,), draft=False)
    values = [node.meta["val"] for node in found.graph.nodes if node.op == "placeholder"][-len(inputs) :]
    dims: dict[Any, Any] = {}
    shapes = []
    for argument, value, axes in zip(file.arguments, values, places, strict=True):
        made = {}
        for axis, name in axes.items():
            size = value.shape[axis]
            symbol = size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
            if symbol.is_number:
                raise OnnxError(
                    f"{file.path} leaves the size {name!r} of {argument.name!r} open, and its nodes run only with "
                    f"{symbol}; fix it: sizes={{{name!r}: {symbol}}}, on the command line --onnx-size {name}={symbol}"
                )
            limits = found.range_constraints.get(symbol)
            if symbol not in dims:
                largest = {} if limits is None or not limits.upper.is_Integer else {"max": int(limits.upper)}
                least = {} if limits is None or limits.lower <= 2 else {"min": int(limits.lower)}
                dims[symbol] = Dim(_identifier(name, {dim.__name__ for dim in dims.values()}), **least, **largest)
            made[axis] = dims[symbol]
        shapes.append(made)
    return (tuple(shapes),)


def _with_sizes(file: File, sizes: Mapping[str, int]) -> File:
    open_sizes = {size for each in file.arguments for size in each.shape if isinstance(size, str)}
    for name in sizes.keys() - open_sizes:
        raise OnnxError(f"{file.path} has no open size {name!r}; it has {near_names(name, sorted(open_sizes))}")
    arguments = tuple(replace(each, shape=tuple(sizes.get(n, n) if isinstance(n, str) else n for n in each.shape))
                      for each in file.arguments)  # fmt: skip
    return replace(file, arguments=arguments)


_FIRST_EXAMPLE, _FURTHER_EXAMPLES = 2, (16, 24, 32, 40, 48, 56, 64)
"""The example sizes of a first axis, which is the batch as a rule, and of others."""


def _example(file: File) -> tuple[tuple[Tensor, ...], dict[str, int]]:
    """Example inputs, and the numbers that they have for open sizes."""
    generator = torch.Generator().manual_seed(0)
    example: dict[str, int] = {}
    for argument in file.arguments:
        for axis, size in enumerate(argument.shape):
            if isinstance(size, str) and size not in example:
                further = _FURTHER_EXAMPLES[len(example) % len(_FURTHER_EXAMPLES)]
                example[size] = _FIRST_EXAMPLE if axis == 0 else further
    shapes = ([example.get(n, n) if isinstance(n, str) else n for n in each.shape] for each in file.arguments)
    inputs = tuple(_values(each, shape, generator) for each, shape in zip(file.arguments, shapes, strict=True))
    return inputs, example


def _identifier(name: str, taken: set[str]) -> str:
    """A name of Python for an open size."""
    plain = "".join(each if each.isascii() and (each.isalnum() or each == "_") else "_" for each in name)
    plain = plain if plain[:1].isalpha() else f"size_{plain}"
    return next(each for each in (plain, *(f"{plain}_{n}" for n in range(1, len(taken) + 2))) if each not in taken)


def _values(argument: OnnxInput, shape: list[Any], generator: torch.Generator) -> Tensor:
    if argument.dtype.is_floating_point or argument.dtype.is_complex:
        return torch.randn(shape, generator=generator).to(argument.dtype)
    return torch.randint(0, 2, shape, generator=generator).to(argument.dtype)


def _explained(error: PatcompError, file: File) -> OnnxError:
    """An error of an export, with what it means for a file."""
    own: BaseException | None = error
    while own is not None and not isinstance(own, OnnxError):
        own = own.__cause__ or own.__context__
    message = f"{file.path} cannot be exported: {error.args[0]}" if own is None else str(own.args[0])
    names = sorted({size for each in file.arguments for size in each.shape if isinstance(size, str)})
    if not names or "--onnx-size" in message:
        return OnnxError(message)
    return OnnxError(
        f"{message}\nIf it cannot run with each size that the file leaves open ({', '.join(names)}), fix one: "
        f"sizes={{{names[0]!r}: 1}}, on the command line --onnx-size {names[0]}=1"
    )
