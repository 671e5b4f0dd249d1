"""The programs that coreai-core writes for the cases of the dialect, as bytes of `main.mlirb` by case.

They are data, so that the container and the reader are tested where coreai-core is not installed. With coreai-core,

    python -m tests.asset.native_programs

writes the file again; nothing changes unless coreai-core writes other bytes.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.helpers.dialect_cases import CASES

_FILE = Path(__file__).parents[1] / "data" / "native_programs.tar.xz"


@cache
def native_programs() -> dict[str, bytes]:
    """The bytes of each program by the id of its case."""
    with tarfile.open(_FILE) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def saved(text: str, folder: Path) -> bytes | None:
    """What coreai-core saves for a text, in a child process; None if it refuses the text or aborts."""
    path = folder / "case.aimodel"
    if not (child := os.fork()):
        try:
            from patcomp.emit.asset import asset_of_text

            with asset_of_text(text) as asset:
                os.rename(asset.path / "main.mlirb", path)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    if not path.exists():
        return None
    data = path.read_bytes()
    path.unlink()
    return data


def _written() -> Iterator[tuple[str, bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if (data := saved(case.text, Path(folder))) is not None:
                yield case.id, data


def main() -> None:
    with tarfile.open(_FILE, "w:xz", preset=9) as archive:
        for name, data in _written():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    main()
