"""The program of an asset that may be broken or of another tool.

patcomp reads assets itself. What it does not know, coreai-core reads in a child process, because the toolchain aborts
its process on a broken file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from patcomp.emit.files.metadata import draws_in, smallest_in
from patcomp.emit.files.replacement import check_asset
from patcomp.emit.native import Native, NativeError, ProcessDied
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.emit.toolchain.library import has_toolchain, toolchain
from patcomp.emit.written import hashes_of, written_module
from patcomp.errors import AssetError, EvaluationError
from patcomp.interface.graphs import entry_signature
from patcomp.interface.signature import EntrySignature
from patcomp.ir.module import IRModule, graph_name


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Native]:
    """A child process that runs an asset.

    Raises:
        FileNotFoundError: there is nothing at the path.
        AssetError: the file or folder at the path is not an asset, or the asset is broken.
        EvaluationError: an input or state of a call is missing, unknown, or of another type or shape.
        MissingToolchainError: `coreai-core` is not installed.
    """
    check_asset(path)
    toolchain()
    try:
        with contextlib.closing(Native()) as native:
            yield native
    except NativeError as error:
        if error.kind == EvaluationError.__name__:  # the inputs are wrong, and not the asset
            raise EvaluationError(error.message) from error
        raise AssetError(f"the asset {path} cannot be used", (str(error),)) from error
    except ProcessDied as error:
        raise AssetError(f"the asset {path} cannot be used", (str(error).splitlines()[0],)) from error


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
        module = written_module(path)
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
    return {
        name: replace(entry_signature(graph, draws=draws_in(metadata, name)), smallest=smallest_in(metadata, name))
        for name, graph in names.items()
    }
