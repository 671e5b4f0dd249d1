"""The folder of an asset; its program is mapped when it is read. This needs neither PyTorch nor xDSL."""

from __future__ import annotations

import mmap
from pathlib import Path

from patcomp.emit.bytecode import AssetFormatError, StoredProgram, read_program

PROGRAM, HASH, METADATA = "main.mlirb", "main.hash", "metadata.json"
"""The files of an asset."""


def read_folder(folder: Path) -> StoredProgram:
    """The program of an asset, whose weights stay in the mapped file.

    Args:
        folder: the `.aimodel` folder.

    Raises:
        AssetFormatError: the program is damaged, or newer than this version of patcomp.
        OSError: the file cannot be read.
    """
    with (folder / PROGRAM).open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file cannot be mapped
            raise AssetFormatError(0, f"{folder / PROGRAM} is empty") from None
    return read_program(data)  # type: ignore[arg-type]
