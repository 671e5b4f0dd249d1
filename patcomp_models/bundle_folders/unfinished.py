"""A bundle that is being written. If the process is killed, the same conversion goes on with what was finished.

The files of the bundle `NAME` are in `.NAME.partial`, next to its place, and the folder gets its name when all of them
are there. So there is never half a bundle at the place.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from patcomp_models.errors import BundleError

_RECORD, _LOCK = "finished.json", "lock"


@dataclass
class Unfinished:
    """The folder of a bundle that is being written, and the steps that are finished."""

    folder: Path
    request: str
    finished: list[str]

    def once(self, step: str, work: Callable[[], object]) -> None:
        """Do a step, unless an earlier run of this conversion finished it."""
        if step not in self.finished:
            work()
            self.finished.append(step)
            record = {"request": self.request, "finished": self.finished}
            (self.folder / _RECORD).write_text(json.dumps(record))


@contextlib.contextmanager
def unfinished(place: Path, request: str) -> Iterator[Unfinished]:
    """Yield the folder of a bundle, and move it to its place at the end. After an error nothing is left.

    Args:
        place: the folder of the bundle, which does not exist.
        request: what is converted; an interrupted conversion of the same goes on.

    Raises:
        BundleError: another process writes the same bundle.
    """
    folder = place.with_name(f".{place.name}.partial")
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / _LOCK, place):
        work = Unfinished(folder, request, _finished(folder, request))
        if not work.finished:
            _clear(folder)
        try:
            yield work
        except Exception:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        for name in (_RECORD, _LOCK):
            (folder / name).unlink(missing_ok=True)
        folder.rename(place)


def request_of(source: Path, options: dict[str, Any]) -> str:
    """What determines the bundle of a checkpoint: its files, the options, and the versions of the libraries."""
    files = [
        (str(path.relative_to(source)), path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(source.rglob("*")) if path.is_file()
    ]  # fmt: skip
    versions = {name: version(name) for name in ("patcomp", "torch", "transformers")}
    facts = json.dumps([str(source.resolve()), files, options, versions], default=str, sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()


def _finished(folder: Path, request: str) -> list[str]:
    """The steps that an earlier run of the same conversion finished."""
    try:
        record = json.loads((folder / _RECORD).read_text())
    except (FileNotFoundError, ValueError):
        return []
    return list(record["finished"]) if record["request"] == request else []


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()


@contextlib.contextmanager
def _locked(path: Path, place: Path) -> Iterator[None]:
    """Hold a lock file, which the kernel releases when the process dies."""
    import fcntl  # not on Windows, for which there is no toolchain

    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BundleError(f"another process is writing {str(place)!r}; wait for it") from None
        yield
