"""`.aimodel` assets: save a module, load it and run it.

A module is written in Python (`patcomp.emit.written`), or passed to `coreai-core` as text in MLIR's generic form and
buffers: this code never prints or copies a weight. `coreai-core` is imported when first needed, because much of patcomp
works without it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from patcomp.emit.files.metadata import creation_date, saved_metadata
from patcomp.emit.files.replacement import check_target, not_an_asset, recover_asset, replacing
from patcomp.emit.files.state_file import StateArrays, read_state, remove_earlier_state, write_state
from patcomp.emit.stored.streaming import Advance
from patcomp.emit.toolchain.hand_over import HandOver
from patcomp.emit.toolchain.library import has_toolchain, toolchain
from patcomp.emit.toolchain.loaded import LoadedModel, checked
from patcomp.emit.toolchain.writing import handed_over, parsed
from patcomp.emit.written import written_in_python, written_module
from patcomp.errors import AssetError as AssetError
from patcomp.evaluate.given import as_array
from patcomp.ir.debug_facts import DebugFacts
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.weights import stored_weights
from patcomp.settings import plain_settings

LARGE_WEIGHTS = 1 << 28
"""The bytes of weights from which on patcomp writes by default: coreai-core reads the whole file that it has written
into memory, to hash it."""


Writer = Literal["python", "coreai"]
"""What writes an asset: patcomp itself, or coreai-core."""


@dataclass(frozen=True)
class Asset:
    """A saved program; `patcomp.load` and `AIProgram.save_asset` return one.

        asset = patcomp.load("model.aimodel")
        outputs = asset.run({"x": x})

    With `coreai-core` it can be run, and has what `AIModelAsset` offers: `summary`, `metadata`, `program` and so on.
    Without, it has its program: `asset.module`.
    """

    path: Path
    """The `.aimodel` folder."""

    @classmethod
    def load(cls, path: str | Path) -> Asset:
        """The asset at a path.

        Raises:
            FileNotFoundError: there is nothing at the path.
            AssetError: what is at the path is not an asset, or is damaged.
        """
        place = Path(path)
        recover_asset(place)
        if not place.exists():
            raise FileNotFoundError(f"there is no asset {str(path)!r}; program.save_asset(path) writes one")
        if problem := not_an_asset(place):
            raise AssetError(f"{str(path)!r} is not an asset: {problem}. Give the .aimodel folder of a saved program")
        check_program(place)
        asset = cls(place)
        if has_toolchain():
            _ = asset.native  # an asset that coreai-core refuses is refused here
        return asset

    @cached_property
    def native(self) -> Any:
        """The `coreai.authoring.asset.AIModelAsset`.

        Raises:
            MissingToolchainError: `coreai-core` is not installed.
            AssetError: `coreai-core` refuses the asset.
        """
        try:
            return toolchain().AIModelAsset.load(self.path)
        except RuntimeError as error:
            raise AssetError(f"the asset {str(self.path)!r} cannot be read", (str(error),)) from error

    @cached_property
    def module(self) -> IRModule:
        """The program of the asset, whose weights stay in the file.

        Raises:
            AssetError: the program has something that patcomp does not know.
        """
        return written_module(self.path)

    @property
    def initial_state(self) -> StateArrays:
        """The initial contents of buffers, by entry point and name; empty if no entry point has a state."""
        return read_state(self.path)

    def new_state(self, entrypoint: str = "main") -> dict[str, np.ndarray]:
        """Fresh copies of the initial contents of an entry point's buffers, for the calls of one sequence."""
        return dict(self.initial_state.get(entrypoint, {}))

    def executable(self, *arguments: Any, **options: Any) -> AbstractAsyncContextManager[Any]:
        """The loaded model for `asyncio`: `async with asset.executable() as model: f = model.load_function("main")`."""
        return self.native.executable(*arguments, **options)

    def run(
        self, inputs: Mapping[str, Any], state: dict[str, Any] | None = None, entrypoint: str = "main"
    ) -> dict[str, np.ndarray]:
        """Run an entry point and wait for it; also inside a running event loop (a notebook).

            state = asset.new_state()
            for token in tokens:
                logits = asset.run({"token": token}, state)["logits"]

        The first call compiles the asset, and the later ones use the same compiled model until `close`.

        Args:
            inputs: numpy arrays or torch tensors by name; 64-bit values are narrowed when they fit.
            state: the contents of states by name, from `asset.new_state()` or the last call; updated in place. A state
                that is not given starts from its initial value.
            entrypoint: name of the function.

        Returns:
            The outputs by name, in the order of the signature; element types that numpy lacks have their `ml_dtypes`
            dtype.

        Raises:
            EvaluationError: an input or state is missing, unknown, or of another type or shape.
            RuntimeError: the toolchain cannot compile the program or a kernel refuses its operands.
            TypeError: the inputs are not a mapping.
            ValueError: a state's memory is not contiguous.
            UnknownNameError: there is no such entry point; it is a `KeyError`.
        """
        tools, given = toolchain(), state or {}
        function = self._loaded.function(entrypoint)
        if not isinstance(inputs, Mapping):
            names = ", ".join(f"{name!r}: ..." for name in function.desc.input_names)
            raise TypeError(f"an asset takes its inputs by name, asset.run({{{names}}}), got {type(inputs).__name__}")
        for name, value in given.items():
            if not getattr(value, "is_contiguous", lambda: True)():  # of a tensor, only a copy would be written
                raise ValueError(f"state {name!r} must be contiguous to be written in place")
        with plain_settings():
            start = self.new_state(entrypoint) if function.desc.state_names else {}
            values, contents = checked(function, inputs, {**start, **given}, entrypoint)
            buffers = {name: tools.NDArray(as_array(value).copy()) for name, value in contents.items()}
            arrays = {name: tools.NDArray(as_array(value)) for name, value in values.items()}
            outputs = self._loaded.call(function, arrays, buffers)
            if state is not None:
                for name, buffer in buffers.items():
                    old, new = given.get(name), buffer.numpy()
                    if isinstance(old, np.generic) or getattr(old, "shape", None) != new.shape:
                        state[name] = np.array(new)  # the given array, if any, has another shape
                    else:
                        np.copyto(as_array(old), new)
        return outputs

    def evaluate(
        self, inputs: Mapping[str, Any], state: dict[str, Any] | None = None, entrypoint: str = "main"
    ) -> dict[str, np.ndarray]:
        """Run an entry point on the reference evaluator, which needs no coreai-core; it is slow, for checks.

        Args:
            inputs: arrays or tensors by name, as for `run`.
            state: the contents of states by name; it gets the new contents.
            entrypoint: name of the function.

        Returns:
            The outputs by name.

        Raises:
            EvaluationError: an input or state is missing, unknown, or of another type or shape.
            UnknownNameError: there is no such entry point; it is a `KeyError`.
        """
        from patcomp.emit.evaluated import evaluated_outputs

        with plain_settings():
            return evaluated_outputs(
                self.module, inputs, {**self.new_state(entrypoint), **(state or {})}, state, entrypoint
            )

    @property
    def function_names(self) -> list[str]:
        """The names of the entry points."""
        return self._loaded.names if has_toolchain() else [graph_name(graph) for graph in self.module.entry_graphs]

    def described(self, entrypoint: str = "main") -> Any:
        """The runtime's description of an entry point: names, shapes and types of inputs, states and outputs.

        Raises:
            UnknownNameError: there is no such entry point; it is a `KeyError`.
        """
        return self._loaded.function(entrypoint).desc

    def close(self) -> None:
        """Release the compiled model, as deleting the asset does; a later `run` compiles it again."""
        if (loaded := vars(self).pop("_loaded", None)) is not None:
            loaded.close()

    @cached_property
    def _loaded(self) -> LoadedModel:
        loaded = LoadedModel(self.executable())
        weakref.finalize(self, loaded.close)
        return loaded

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("native", "module"):
            raise AttributeError(name)
        return getattr(self.native, name)


def check_program(asset: Path) -> None:
    """Check the program of an asset against its hash, because the toolchain aborts the process on a damaged one.

    Raises:
        AssetError: it is damaged. OSError: a file cannot be read.
    """
    program, digest = asset / "main.mlirb", asset / "main.hash"
    for part in (program, digest, asset / "metadata.json"):
        if part.exists() and not part.is_file():
            raise AssetError(f"{str(part)!r} is not a regular file, so {str(asset)!r} is not an asset")
    if digest.exists():
        with program.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").digest()
        if digest.read_bytes() != found:
            raise AssetError(
                f"the asset {str(asset)!r} is damaged: main.mlirb is not the file that main.hash describes"
            )


def load(path: str | Path) -> Asset:
    """The asset at a path, to run, or to read without coreai-core.

        asset = patcomp.load("model.aimodel")
        outputs = asset.run({"x": x})

    Args:
        path: an `.aimodel` folder.

    Raises:
        FileNotFoundError: there is nothing at the path.
        AssetError: the file or folder at the path is not an asset.
        TypeError: the argument is no path.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"load takes the path of an asset, got {type(path).__name__}; program.save_asset(path) writes one"
        )
    return Asset.load(path)


def stored_text(path: Path, values: bool) -> tuple[str, dict[str, str]]:
    """The text of an asset's program without its weights, and if `values`, a hash of each weight by name.

    The toolchain aborts the process if the asset is broken.
    """
    operation = Asset.load(path).program._module._mlir_module.operation
    text = operation.get_asm(large_resource_limit=0)
    hashes = {}
    if values:
        with tempfile.TemporaryDirectory() as folder:  # the text of all weights may not fit into memory
            printed = Path(folder, "asset.mlir")
            with printed.open("wb") as file:
                operation.print(file=file, binary=True)
            with printed.open() as lines:
                for line in lines:
                    name, separator, data = line.strip().rstrip(",").partition(': "0x')
                    if separator and line.startswith("      "):
                        # the first four bytes are the alignment
                        hashes[name.strip('"')] = hashlib.sha256(bytes.fromhex(data.rstrip('"'))[4:]).hexdigest()
    return text, hashes


def save_asset(
    module: IRModule,
    path: str | Path,
    *,
    metadata: Any = None,
    facts: Mapping[str, Any] | None = None,
    state: Mapping[str, Mapping[str, np.ndarray]] | None = None,
    force: bool = False,
    writer: Writer | None = None,
    debug_facts: DebugFacts | None = None,
    progress: Advance | None = None,
    check: Callable[[Asset], object] | None = None,
) -> Asset:
    """Write a program as an `.aimodel` folder, replacing an existing asset.

    If the save is interrupted, either the old or the new asset is complete.

    Args:
        module: the program in the `coreai` dialect.
        path: the folder; an asset or an empty folder is replaced, other files or folders only with `force`.
        metadata: an `AIModelAssetMetadata`, or a mapping of its fields (`author`, `license`, `model_description`).
        facts: how the program was made, which is added to the metadata.
        state: the initial contents of buffers, by entry point and name.
        force: replace whatever is at the path.
        writer: what writes it, `"python"` or `"coreai"`; by default coreai-core where it is installed and the weights
            are smaller than 256 MiB.
        debug_facts: of the model's nodes, for debug information, which only patcomp writes.
        progress: is called with the bytes of the program that are written so far, and with all of them; only
            while patcomp writes, because coreai-core does not tell how far it is.
        check: is called with the asset before it takes its place; if it raises, the asset is deleted, and nothing is
            replaced.

    Raises:
        ValueError: the path does not end in `.aimodel`, there is no such metadata field or writer, coreai-core is asked
            for debug information, or `SOURCE_DATE_EPOCH` is not a number.
        FileExistsError: something that is not an asset is at the path.
        PermissionError: the folder cannot be written.
        OSError: the disk has no room.
        VerifyError: a weight is missing from the blob store or has the wrong size (the toolchain would crash).
        MissingToolchainError: `coreai-core` is asked for and not installed.
        AssetError: the toolchain rejects the program.
        UnsupportedError: the program has something that only coreai-core writes.
    """
    target = Path(path)
    check_target(target, force)
    described_by = partial(saved_metadata, given=metadata, facts=facts or {})
    if debug_facts is not None:
        if writer == "coreai":
            raise ValueError("patcomp itself writes debug information; leave the writer out, or choose writer='python'")
        writer = "python"
    if chosen_writer(writer, module) == "python":
        prepared = written_in_python(module, described_by, progress, debug_facts)
    else:
        prepared = handed_over(HandOver.of(module), described_by, target.name, creation_date())
    with prepared as write, replacing(target, force) as draft:
        write(draft)
        write_state(draft, state or {})
        if check is not None:
            with closing(Asset(draft)) as asset:
                check(asset)
    remove_earlier_state(target)
    return Asset(target)


def chosen_writer(writer: str | None, module: IRModule) -> Writer:
    """What writes a program.

    None stands for coreai-core where it is installed and the weights are smaller than `LARGE_WEIGHTS`, and for patcomp
    elsewhere.

    Raises:
        ValueError: there is no such writer.
    """
    if writer is None:
        large = sum(weight.bytes for weight in stored_weights(module)) >= LARGE_WEIGHTS
        return "coreai" if has_toolchain() and not large else "python"
    if writer not in ("python", "coreai"):
        raise ValueError(f"an asset's writer is 'python' or 'coreai', got {writer!r}")
    return writer  # type: ignore[return-value]


@contextmanager
def temporary_asset(program: HandOver) -> Iterator[Asset]:
    """A program saved in a temporary folder."""

    def save(path: Path) -> None:
        with handed_over(program, lambda metadata_class: None, path.name, None) as write:
            write(path)

    with _temporary(save) as asset:
        yield asset


@contextmanager
def asset_of_text(text: str) -> Iterator[Asset]:
    """A text with its weights, saved in a temporary folder."""

    def save(path: Path) -> None:
        tools = toolchain()
        with tools.Context()._mlir_context:
            tools.AIProgram._from_mlir_module(parsed(tools, text)).save_asset(path, None)

    with _temporary(save) as asset:
        yield asset


@contextmanager
def _temporary(save: Callable[[Path], None]) -> Iterator[Asset]:
    """An asset that a function saves in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.aimodel"
        save(path)
        asset = Asset(path)
        try:
            yield asset
        finally:
            asset.close()


def generic_text(asset: Asset, *, weights: bool) -> str:
    """The text of an asset's program in MLIR's generic form."""
    operation = asset.program._module._mlir_module.operation
    limit = {} if weights else {"large_resource_limit": 0}
    return str(operation.get_asm(print_generic_op_form=True, **limit))
