"""`patcomp inspect` and `run`: look into an asset, and call it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from patcomp.commands.common import AsJson, UsageError, print_json, say
from patcomp.commands.tables import print_table
from patcomp.errors import UnknownNameError, near_names

if TYPE_CHECKING:
    from patcomp.emit.inspection import Inspection
    from patcomp.emit.signature import EntrySignature, TensorSpec

AssetPath = Annotated[Path, typer.Argument(help="The .aimodel folder of an asset.", show_default=False)]
Entrypoint = Annotated[str, typer.Option(help="The name of the function.")]


def inspect(
    asset: AssetPath,
    json: AsJson = False,
    weights: Annotated[int, typer.Option(help="How many of the largest weights to list.")] = 10,
) -> None:
    """Show what an asset holds: functions, composites, ops, weights and metadata."""
    from patcomp.emit.inspection import inspect_asset

    found = inspect_asset(asset)
    if json:
        print_json(found.to_dict())
    else:
        _print(found, weights)


def _print(found: Inspection, shown: int) -> None:
    from patcomp.emit.summary import size_text

    print(f"{found.path}: {size_text(found.bytes)}")
    for name, value in sorted(found.metadata.items()):
        for key, each in sorted(value.items()) if isinstance(value, Mapping) else [(name, value)]:
            print(f"  {key}: {each}")
    for name, signature in found.functions.items():
        print(f"function {name}")
        print("\n".join(f"  {line}" for line in str(signature).splitlines()))
    if found.composites:
        print_table(["composite", "calls"], [(name, str(count)) for name, count in found.composites.items()])
    print_table(["op", "count"], [(name, str(count)) for name, count in found.ops.items()])
    if not found.weights:
        return
    by_type: dict[str, list[int]] = {}
    for weight in found.weights:
        by_type.setdefault(weight.element_type, []).append(weight.bytes)
    rows = [(kind, str(len(sizes)), size_text(sum(sizes))) for kind, sizes in by_type.items()]
    print_table(["weights of type", "count", "size"], rows)
    largest = found.weights[:shown]
    print_table(
        ["the largest weights", "type", "size"],
        [(each.name, "x".join(map(str, (*each.shape, each.element_type))), size_text(each.bytes)) for each in largest],
    )


def run(
    asset: AssetPath,
    inputs: Annotated[
        Path | None, typer.Option(help="A file of numpy.savez with the inputs, and states, by name; otherwise random.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write outputs and new states to this file, as numpy.savez.")
    ] = None,
    entrypoint: Entrypoint = "main",
    size: Annotated[
        list[str] | None,
        typer.Option(help="The size of a dynamic dimension for random inputs, x:0=4; otherwise 2."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of random inputs.")] = 0,
    backend: Annotated[
        Literal["runtime", "evaluator"],
        typer.Option(help="The Core AI runtime, or the reference evaluator, which needs no coreai-core."),
    ] = "runtime",
    json: AsJson = False,
) -> None:
    """Run an asset on the Core AI runtime or the reference evaluator, and show its outputs.

    Random floats are between 0 and 1, random integers 0 or 1; inputs for a model's random numbers have their own
    distributions.
    """
    from patcomp.emit.asset import Asset, toolchain
    from patcomp.emit.inspection import opened, read_asset, read_metadata, signatures
    from patcomp.emit.replacement import check_writable

    if output is not None:
        check_writable(output)
    if inputs is not None and size:
        raise UsageError("--size is for random inputs; leave it out with --inputs")
    if backend == "runtime":
        toolchain()
    signature = entry(signatures(read_asset(asset)[0], read_metadata(asset)), entrypoint)
    if inputs is None:
        values = _random(signature, size or (), seed)
        say(f"random inputs with seed {seed}; --inputs FILE.npz gives others")
    else:
        values = _read(inputs, signature)
    state = {spec.name: values.pop(spec.name) for spec in signature.states if spec.name in values}
    if backend == "runtime":
        with opened(asset) as native:
            outputs, state = native.call(asset, values, state, entrypoint)
    else:
        outputs = Asset(asset).evaluate(values, state, entrypoint)
    if both := outputs.keys() & state.keys():
        state = {f"state {name}" if name in both else name: value for name, value in state.items()}
    described = {
        kind: [_described(name, value) for name, value in values.items()]
        for kind, values in (("outputs", outputs), ("states", state))
    }
    if json:
        print_json(described)
    else:
        rows = [[_cell(each) for each in row.values()] for rows in described.values() for row in rows]
        print_table(["output", "type", "min", "max", "mean", "NaN"], rows)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("wb") as file:  # numpy would add .npz to a path
            np.savez(file, **{name: _storable(value) for name, value in (outputs | state).items()})  # type: ignore[arg-type]
        say(f"outputs: {output}")


def entry(functions: Mapping[str, EntrySignature], name: str) -> EntrySignature:
    """The signature of a function.

    Raises:
        UnknownNameError: there is none of this name.
    """
    if name not in functions:
        raise UnknownNameError(f"there is no entry point {name!r}; there are {near_names(name, functions)}")
    return functions[name]


def _dtype(spec: TensorSpec) -> np.dtype[Any]:
    """The type of the arrays of an input; that of `ml_dtypes` for an element type that numpy lacks."""
    import torch

    from patcomp.emit.asset import as_array
    from patcomp.evaluate.element_types import TORCH_DTYPES

    return as_array(torch.empty(0, dtype=TORCH_DTYPES[spec.element_type])).dtype


def _random(signature: EntrySignature, sizes: Any, seed: int) -> dict[str, np.ndarray]:
    """Random inputs of a function.

    Raises:
        UsageError: a size has another form than `x:0=4`, or names no dynamic dimension.
    """
    given: dict[tuple[str, int], int] = {}
    dynamic = [(spec.name, axis) for spec in signature.inputs for axis, dim in enumerate(spec.shape) if dim is None]
    for text in sizes:
        place, _, number = text.partition("=")
        name, _, axis = place.rpartition(":")
        if not (axis.isdigit() and number.isdigit()):
            raise UsageError(f"--size {text} must have the form INPUT:AXIS=SIZE, such as x:0=4")
        if (name, int(axis)) not in dynamic:
            known = ", ".join(f"{each}:{index}" for each, index in dynamic)
            raise UsageError(f"--size {text}: the input has no such dynamic dimension; there are {known or 'none'}")
        given[name, int(axis)] = int(number)
    generator = np.random.default_rng(seed)
    values = {}
    for spec in signature.inputs:
        shape = [given.get((spec.name, axis), 2) if dim is None else int(dim) for axis, dim in enumerate(spec.shape)]
        dtype = _dtype(spec)
        if spec.distribution:
            values[spec.name] = _noise(spec, shape, int(generator.integers(2**62)))
            continue
        integral = dtype.kind in "iub"
        values[spec.name] = (generator.integers(0, 2, shape) if integral else generator.random(shape)).astype(dtype)
    return values


def _noise(spec: TensorSpec, shape: list[int], seed: int) -> np.ndarray:
    """Noise for an input that is random numbers."""
    import torch

    from patcomp.emit.asset import as_array
    from patcomp.evaluate import noise_of
    from patcomp.evaluate.element_types import TORCH_DTYPES

    generator = torch.Generator().manual_seed(seed)
    return as_array(noise_of(spec.distribution, shape, TORCH_DTYPES[spec.element_type], generator))


def _read(path: Path, signature: EntrySignature) -> dict[str, np.ndarray]:
    """The arrays of a file of `numpy.savez`; float32 becomes a type that such files lack, such as bf16.

    Raises:
        UsageError: `numpy.savez` did not write the file.
    """
    import zlib
    from zipfile import BadZipFile

    damages = (ValueError, LookupError, BadZipFile, zlib.error, AttributeError, EOFError, TypeError, RuntimeError)
    try:
        with np.load(path, allow_pickle=False) as file:
            values = {name: file[name] for name in file.files}
    except (*damages, MemoryError) as error:
        raise UsageError(f"--inputs {path} is not a file that numpy.savez wrote: {error}") from error
    for spec in (*signature.inputs, *signature.states):
        dtype = _dtype(spec)
        if spec.name in values and not dtype.isbuiltin and values[spec.name].dtype == np.float32:
            values[spec.name] = values[spec.name].astype(dtype)
    return values


def _storable(value: np.ndarray) -> np.ndarray:
    """An array of a type that files of numpy have; float32 for what they lack."""
    return value if value.dtype.isbuiltin == 1 else value.astype(np.float32)


def _described(name: str, value: np.ndarray) -> dict[str, Any]:
    """The name, type and range of an output."""
    kind = "x".join(map(str, (*value.shape, value.dtype)))
    numbers = _storable(value)
    if not numbers.size or numbers.dtype.kind == "c":
        return {"name": name, "type": kind, "min": None, "max": None, "mean": None, "nan": 0}
    nan = int(np.isnan(numbers).sum()) if numbers.dtype.kind == "f" else 0
    low, high, mean = (float(each(numbers.astype(np.float64))) for each in (np.min, np.max, np.mean))
    return {"name": name, "type": kind, "min": low, "max": high, "mean": mean, "nan": nan}


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
