"""The arrays of `patcomp run`: random inputs, files of inputs and outputs, what an output holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from patcomp.commands.common import UsageError
from patcomp.emit.files.metadata import USUAL_SIZE
from patcomp.errors import near_names
from patcomp.evaluate.given import HELD, as_array
from patcomp.ir.elements import element_of_numpy
from patcomp.ir.types import element_name

if TYPE_CHECKING:
    from patcomp.interface.signature import EntrySignature, TensorSpec


def random_inputs(
    signature: EntrySignature, chosen: Any, seed: int, initial: Collection[str]
) -> dict[str, np.ndarray]:  # fmt: skip
    """Random inputs of a function, and zeros for the states that have no initial content.

    Args:
        signature: of the function.
        chosen: sizes of dynamic dimensions, `x:0=4`.
        seed: of the random numbers.
        initial: the names of the states that have an initial content.

    Raises:
        UsageError: a size has another form than `x:0=4`, or names no dynamic dimension.
    """
    given: dict[tuple[str, int], int] = {}
    specs = (*signature.inputs, *signature.states)
    dynamic = [(spec.name, axis) for spec in specs for axis, dim in enumerate(spec.shape) if dim is None]
    for text in chosen:
        place, _, number = text.partition("=")
        name, _, axis = place.rpartition(":")
        if not (axis.isdigit() and number.isdigit()):
            raise UsageError(f"--size {text} must have the form INPUT:AXIS=SIZE, such as x:0=4")
        if (name, int(axis)) not in dynamic:
            known = ", ".join(f"{each}:{index}" for each, index in dynamic)
            raise UsageError(f"--size {text}: the input has no such dynamic dimension; there are {known or 'none'}")
        given[name, int(axis)] = int(number)

    usual, sizes = _open_size(signature), {**signature.smallest, **given}

    def shape_of(spec: TensorSpec) -> list[int]:
        return [sizes.get((spec.name, axis), usual) if dim is None else int(dim) for axis, dim in enumerate(spec.shape)]

    generator = np.random.default_rng(seed)
    values = {}
    for spec in signature.inputs:
        shape, dtype = shape_of(spec), HELD[spec.element_type]
        if spec.distribution:
            values[spec.name] = _noise(spec, shape, int(generator.integers(2**62)))
            continue
        integral = dtype.kind in "iub"
        values[spec.name] = (generator.integers(0, 2, shape) if integral else generator.random(shape)).astype(dtype)
    return values | {
        spec.name: np.zeros(shape_of(spec), HELD[spec.element_type])
        for spec in signature.states
        if spec.name not in initial
    }


def _open_size(signature: EntrySignature) -> int:
    """The size for dynamic dimensions without a chosen one: 2. A language model's function with a fixed number of
    tokens needs at least this number, because positions and caches count all tokens."""
    shapes = {spec.name: spec.shape for spec in signature.inputs}
    tokens = shapes["input_ids"][-1:] if shapes.keys() >= {"input_ids", "position_ids"} else ()
    return max([USUAL_SIZE, *(size for size in tokens if isinstance(size, int))])


def _noise(spec: TensorSpec, shape: list[int], seed: int) -> np.ndarray:
    """Noise for an input that is random numbers."""
    import torch

    from patcomp.evaluate.draws import noise_of
    from patcomp.evaluate.element_types import TORCH_DTYPES

    generator = torch.Generator().manual_seed(seed)
    return as_array(noise_of(spec.distribution, shape, TORCH_DTYPES[spec.element_type], generator))


def read_inputs(path: Path, signature: EntrySignature) -> dict[str, np.ndarray]:
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
        raise UsageError(f"--inputs {path} is not a file that numpy.savez wrote") from error
    for spec in (*signature.inputs, *signature.states):
        dtype = HELD[spec.element_type]
        if spec.name in values and not dtype.isbuiltin and values[spec.name].dtype == np.float32:
            values[spec.name] = values[spec.name].astype(dtype)
    return values


def read_input_files(given: Sequence[str], signature: EntrySignature) -> dict[str, np.ndarray]:
    """Inputs from files of their own.

    Args:
        given: `image=photo.png` or `x=values.npy`, one of each input.
        signature: of the function.

    Raises:
        UsageError: one has another form or names no input, or its file cannot be read or does not fit the input.
    """
    specs, values = {spec.name: spec for spec in signature.inputs}, {}
    for each in given:
        name, separator, file = each.partition("=")
        if not separator:
            raise UsageError(f"--input {each} must have the form INPUT=FILE, such as image=photo.png")
        if name not in specs:
            raise UsageError(f"--input {each}: there is no input {name}; there are {near_names(name, specs)}")
        path = Path(file)
        if not path.is_file():
            raise UsageError(f"--input {each}: there is no file {path}")
        values[name] = _array_in(path) if path.suffix == ".npy" else _image_in(path, specs[name])
    return values


def read_example(path: Path, signature: EntrySignature) -> dict[str, np.ndarray]:
    """The inputs of a function in a file of `numpy.savez`, or a picture for its only input, resized to its size.

    Raises:
        UsageError: the file is neither, or the function takes other inputs.
    """
    if path.suffix == ".npz":
        return read_inputs(path, signature)
    if len(signature.inputs) != 1:
        names = ", ".join(spec.name for spec in signature.inputs)
        raise UsageError(f"{path} is one input, and the model takes {names}; write a file of numpy.savez with all")
    (spec,) = signature.inputs
    return {spec.name: _array_in(path) if path.suffix == ".npy" else _image_in(path, spec, resizes=True)}


def _array_in(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]
    except (ValueError, EOFError, OSError) as error:
        raise UsageError(f"--input: {path} is not a file that numpy.save wrote") from error


def _image_in(path: Path, spec: TensorSpec, *, resizes: bool = False) -> np.ndarray:
    """The pixels of an image, upright and in RGB as image processors of transformers read it; resized to the size that
    an input has, if that is asked for."""
    if spec.element_type != "ui8" or len(spec.shape) != 3 or spec.shape[2] != 3:
        shape = "x".join("?" if dim is None else str(dim) for dim in spec.shape)
        raise UsageError(
            f"--input: {path} is no file .npy, and no image, as {spec.name} is {shape} of {spec.element_type}, and not "
            "height x width x 3 of bytes; give the numbers as .npy, or convert the model with --preprocess image"
        )
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise UsageError("--input with an image needs Pillow; pip install pillow") from None
    try:
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image).convert("RGB")
            height, width = spec.shape[:2]
            if resizes and isinstance(height, int) and isinstance(width, int):
                upright = upright.resize((width, height))
            pixels = np.array(upright)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"--input: {path} is neither an image nor an array (.npy): {error}") from error
    if pixels.shape != (wanted := tuple(spec.shape)) and None not in wanted:
        raise UsageError(
            f"--input: {path} is {pixels.shape[0]}x{pixels.shape[1]} pixels (height, width), and {spec.name} takes "
            f"{wanted[0]}x{wanted[1]}; resize it, or convert the model with --image {pixels.shape[0]}x{pixels.shape[1]}"
        )
    return pixels


def write_outputs(path: Path, values: Mapping[str, np.ndarray]) -> None:
    """Write arrays into a file of `numpy.savez`; what such files lack, such as bf16, becomes float32."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:  # numpy would add .npz to a path
        np.savez(file, **{name: _storable(value) for name, value in values.items()})  # type: ignore[arg-type]


def _storable(value: np.ndarray) -> np.ndarray:
    """The array, converted to float32 if numpy's files cannot store its dtype."""
    return value if value.dtype.isbuiltin == 1 else value.astype(np.float32)


def described_array(name: str, value: np.ndarray) -> dict[str, Any]:
    """The name, type and range of an output."""
    kind = "x".join(map(str, (*value.shape, element_name(element_of_numpy(value.dtype)))))
    numbers = _storable(value)
    if not numbers.size or numbers.dtype.kind == "c":
        return {"name": name, "type": kind, "min": None, "max": None, "mean": None, "nan": 0}
    nan = int(np.isnan(numbers).sum()) if numbers.dtype.kind == "f" else 0
    low, high, mean = (float(each(numbers.astype(np.float64))) for each in (np.min, np.max, np.mean))
    return {"name": name, "type": kind, "min": low, "max": high, "mean": mean, "nan": nan}
