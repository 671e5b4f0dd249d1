"""The programs that coreai-core writes for the cases of the dialect, as bytes of `main.mlirb` by case.

They are data, so that the container and the reader are tested where coreai-core is not installed. With coreai-core,

    python -m tests.asset.native_programs

writes the file again; nothing changes unless coreai-core writes other bytes.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.helpers.dialect_cases import CASES

_FILE = Path(__file__).parents[1] / "data" / "native_programs.tar.xz"


@cache
def native_programs() -> dict[str, bytes]:
    """The bytes of each program by the id of its case."""
    with tarfile.open(_FILE) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def saved(texts: Mapping[str, str], folder: Path) -> dict[str, bytes]:
    """What coreai-core saves for each text, without those that it refuses or that abort it.

    A child process imports it, and forks one for each text.
    """
    if not (child := os.fork()):
        try:
            from patcomp.emit.toolchain.library import toolchain

            toolchain()
            for number, text in enumerate(texts.values()):
                if not (grandchild := os.fork()):
                    _save(text, folder / f"{number}.mlirb")
                os.waitpid(grandchild, 0)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    found = {}
    for number, name in enumerate(texts):
        path = folder / f"{number}.mlirb"
        if path.exists():
            found[name] = path.read_bytes()
            path.unlink()
    return found


def _save(text: str, path: Path) -> None:
    """Save a text, and end the process."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what the toolchain says of programs that it refuses
        from patcomp.emit.asset import asset_of_text

        with asset_of_text(text) as asset:
            shutil.copy(asset.path / "main.mlirb", path)
    finally:
        os._exit(0)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, tarfile.open(_FILE, "w:xz", preset=9) as archive:
        for name, data in saved({case.id: case.text for case in CASES}, Path(folder)).items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    main()
