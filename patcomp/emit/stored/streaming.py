"""Write the folder of an asset: the program is streamed into it and hashed on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from patcomp.emit.bytecode import ProgramWriter
from patcomp.emit.stored.folder import HASH, METADATA, PROGRAM
from patcomp.ir.pages import release

_BLOCK = 1 << 22
"""Bytes that are written and hashed at a time."""

_RELEASED = 8
"""Blocks of a weight after which the memory that its file took is let go."""


Advance = Callable[[int, int], None]
"""Is called with the bytes that are written so far, and with those of the whole program."""


def write_folder(
    folder: Path, writer: ProgramWriter, metadata: Mapping[str, Any], progress: Advance | None = None
) -> None:
    """Write an asset into a new folder. Weights are read block by block from where they are.

    Args:
        folder: the folder, which must not exist.
        writer: the program.
        metadata: what `metadata.json` says, as plain data.
        progress: is called after each block.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    folder.mkdir()
    digest, written, size = hashlib.sha256(), 0, writer.size
    with (folder / PROGRAM).open("wb") as file:
        for piece in writer.pieces():
            view = memoryview(piece)
            for number, start in enumerate(range(0, len(view), _BLOCK), 1):
                block = view[start : start + _BLOCK]
                file.write(block)
                digest.update(block)
                if number % _RELEASED == 0:
                    release([view[start + _BLOCK - _RELEASED * _BLOCK : start + _BLOCK]])
                if progress is not None:
                    progress(written := written + len(block), size)
            if len(view) > _BLOCK:
                release([view])
    (folder / HASH).write_bytes(digest.digest())
    (folder / METADATA).write_text(json.dumps(metadata, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
