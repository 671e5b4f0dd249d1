"""What an asset holds: its functions, composites, ops, weights and metadata.

patcomp reads assets itself. What it does not know, coreai-core reads in a child process, because the toolchain aborts
its process on a broken file.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from patcomp.asset.errors import UnsupportedInAssetError
from patcomp.emit.asset import has_toolchain, toolchain
from patcomp.emit.composite_calls import composite_calls
from patcomp.emit.metadata import draws_in
from patcomp.emit.native import Native, NativeError, ProcessDied
from patcomp.emit.replacement import not_an_asset, recover
from patcomp.emit.signature import EntrySignature, entry_signature
from patcomp.emit.written import hashes_of, module_of
from patcomp.errors import AssetError
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.weights import StoredWeight, stored_weights


@dataclass(frozen=True)
class Inspection:
    """What an asset holds."""

    path: Path
    bytes: int
    """The size of all files of the asset."""
    metadata: Mapping[str, Any]
    """What `metadata.json` says: the producer, the date, the author and what the creator added."""
    functions: Mapping[str, EntrySignature]
    """Inputs, outputs and states by entry point."""
    composites: Mapping[str, int]
    """How often the asset calls each composite."""
    ops: Mapping[str, int]
    """How many ops of each name there are, the most frequent first; those in composites count once."""
    weights: tuple[StoredWeight, ...]
    """The weights that are stored as buffers, the largest first."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON."""
        return {
            "path": str(self.path),
            "bytes": self.bytes,
            "metadata": dict(sorted(self.metadata.items())),
            "functions": {name: signature.to_dict() for name, signature in self.functions.items()},
            "composites": dict(self.composites),
            "ops": dict(self.ops),
            "weights": [asdict(weight) for weight in self.weights],
        }


_STRUCTURE = ("builtin.module", "coreai.graph", "coreai.output")
"""Ops that compute nothing."""


def inspect_asset(path: Path) -> Inspection:
    """Read an asset.

    Raises:
        As `read_asset`.
    """
    module, _ = read_asset(path)
    data = read_metadata(path)
    counts = Counter(op.name for op in module.op.walk() if op.name not in _STRUCTURE)
    return Inspection(
        path,
        sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
        data,
        signatures(module, data),
        dict(sorted(Counter(call.composite for call in composite_calls(module)).items())),
        dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        tuple(sorted(stored_weights(module), key=lambda weight: (-weight.bytes, weight.name))),
    )


def read_metadata(path: Path) -> dict[str, Any]:
    """The facts in the `metadata.json` of an asset.

    Raises:
        AssetError: the file is damaged.
    """
    try:
        return dict(json.loads((path / "metadata.json").read_text()))
    except (ValueError, TypeError, RecursionError) as error:
        raise AssetError(f"{path} is not an asset: its metadata.json is damaged", (str(error),)) from error


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Native]:
    """A child process that runs an asset.

    Raises:
        FileNotFoundError: there is nothing at the path.
        AssetError: the file or folder at the path is not an asset, or the asset is broken.
        MissingToolchainError: `coreai-core` is not installed.
    """
    check_asset(path)
    toolchain()
    try:
        with contextlib.closing(Native()) as native:
            yield native
    except NativeError as error:
        raise AssetError(f"the asset {path} cannot be used", (str(error),)) from error
    except ProcessDied as error:
        raise AssetError(f"the asset {path} cannot be used", (str(error).splitlines()[0],)) from error


def check_asset(path: Path) -> None:
    """Check that there is an asset at a path, after an interrupted save of it is undone.

    Raises:
        FileNotFoundError: there is nothing at the path.
        AssetError: what is at the path is not an asset.
    """
    recover(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no asset {path}; `patcomp convert` writes one")
    if problem := not_an_asset(path):
        raise AssetError(f"{path} is not an asset: {problem}. Give the .aimodel folder of a saved program")


def read_asset(path: Path, *, values: bool = False) -> tuple[IRModule, dict[str, str]]:
    """The program of an asset, and a hash of the values of each weight by name. Weights stay in the file.

    Args:
        path: the `.aimodel` folder.
        values: whether to read and hash the weights; otherwise there are no hashes.

    Raises:
        As `check_asset`; AssetError: also where the asset is damaged, or has something that patcomp does not know.
    """
    check_asset(path)
    try:
        module = module_of(path)
    except AssetError as error:
        if not isinstance(error.__cause__, UnsupportedInAssetError) or not has_toolchain():
            raise
        with opened(path) as native:
            text, hashes = native.read(path, values=values)
        return IRModule.parse(text.partition("{-#")[0]), hashes
    return module, hashes_of(module) if values else {}


def signatures(module: IRModule, metadata: Mapping[str, Any]) -> dict[str, EntrySignature]:
    """The inputs, outputs and states of each entry point of an asset's program.

    Args:
        metadata: what the asset's `metadata.json` says.
    """
    names = {graph_name(graph): graph for graph in module.entry_graphs}
    return {name: entry_signature(graph, draws=draws_in(metadata, name)) for name, graph in names.items()}
