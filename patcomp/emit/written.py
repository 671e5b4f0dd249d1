"""Assets that are written and read in Python, without `coreai-core`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patcomp.emit.bytecode import AssetFormatError, ProgramWriter
from patcomp.emit.files.metadata import AssetMetadata, creation_date
from patcomp.emit.files.replacement import check_space
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.emit.stored.folder import read_folder
from patcomp.emit.stored.loading import loaded_module
from patcomp.emit.stored.storing import stored_program
from patcomp.emit.stored.streaming import Advance, write_folder
from patcomp.emit.toolchain.hand_over import check_blobs
from patcomp.errors import AssetError, VerifyError
from patcomp.ir.debug_facts import DebugFacts
from patcomp.ir.module import IRModule
from patcomp.ir.pages import release
from patcomp.ir.verify import verify
from patcomp.version import __version__

_FURTHER_BYTES = 1 << 16
"""What an asset takes besides its program: the hash and the metadata."""


@contextmanager
def written_in_python(
    module: IRModule,
    metadata: Callable[[Any], Any],
    progress: Advance | None = None,
    debug_facts: DebugFacts | None = None,
) -> Iterator[Callable[[Path], None]]:
    """Prepare a program to be written; yield a function that writes it as a new folder.

    Args:
        module: the program in the `coreai` dialect.
        metadata: makes the metadata of an asset from the class that it is given.
        progress: is called while the program is written.
        debug_facts: of the model's nodes, for debug information.

    Raises:
        VerifyError: the program is not valid, or a weight is missing or has the wrong size.
        UnsupportedError: patcomp does not know how an asset stores a part of the program; it lists every reason.
    """
    verify(module)
    check_blobs(module)
    writer = ProgramWriter(stored_program(module, debug_facts))
    described: AssetMetadata = metadata(AssetMetadata)
    size, entries = writer.size, described.entries(f"patcomp {__version__}", creation_date())

    def write(folder: Path) -> None:
        check_space(folder.parent, size + _FURTHER_BYTES)
        write_folder(folder, writer, entries, progress)

    yield write


def written_module(path: Path) -> IRModule:
    """The program of an asset, whose weights stay in the mapped file. The hash of the asset is not checked.

    Args:
        path: the `.aimodel` folder.

    Raises:
        AssetError: the program is damaged, or has something that patcomp does not know.
        OSError: the file cannot be read.
    """
    try:
        return loaded_module(read_folder(path))
    except (AssetFormatError, UnsupportedInAssetError, VerifyError) as error:
        raise AssetError(f"the asset {str(path)!r} cannot be read", tuple(str(error).splitlines())) from error


def hashes_of(module: IRModule) -> dict[str, str]:
    """A hash of the bytes of each weight of a program, by name; weights are read one after the other."""
    found = {}
    for blob in module.blobs:
        found[blob.key] = hashlib.sha256(blob.data).hexdigest()
        release([blob.data])
    return found
