"""Replace an asset so that, if the save is interrupted, either the old or the new asset is complete.

The new asset is written into a working folder next to the target, `.NAME.saving` for `NAME`. Then the old asset is
renamed into that folder and the new one out of it. If the process is killed, the folder stays. The next save of the
target deletes it; loading does so too if the asset is not in its place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

from patcomp.errors import AssetError

STATE_FILE = "initial_state.npz"
"""The file in an asset with the initial contents of its states."""

_REQUIRED = ("metadata.json", "main.mlirb")
_OPTIONAL = ("main.hash", STATE_FILE, ".DS_Store")

_NEW = "new.aimodel"
_OLD = "old.aimodel"


def check_target(target: Path, force: bool = False) -> None:
    """Check that an asset may be saved at a path: only an asset is replaced there, and the folder can be written.

    Args:
        target: the asset's folder.
        force: whether anything may be replaced.

    Raises:
        ValueError: the path does not end in `.aimodel`.
        FileExistsError: the path has something other than an asset.
        PermissionError: the folder of the asset cannot be written.
        NotADirectoryError: a part of the path is a file.
    """
    if target.suffix != ".aimodel":
        raise ValueError(f"an asset's path must end in .aimodel, got {str(target)!r}")
    place = target.resolve()
    if not force and (obstacle := _obstacle(place)):
        raise FileExistsError(
            f"{target} is not replaced: {obstacle}. Choose another path, move it away, or replace it with "
            "force=True (--force on the command line)"
        )
    check_writable(place)


def not_an_asset(path: Path) -> str:
    """Why the file or folder at a path is not an asset; empty if it is an asset."""
    if not path.is_dir():
        return "it is a file"
    names = sorted(entry.name for entry in path.iterdir())
    if missing := [name for name in _REQUIRED if name not in names]:
        held = f"a folder with {_some(names)}" if names else "an empty folder"
        return f"it is {held}, without {' and '.join(missing)}"
    return ""


def check_asset(path: Path) -> None:
    """Check that there is an asset at a path, after an interrupted save of it is undone.

    Raises:
        FileNotFoundError: there is nothing at the path.
        AssetError: what is at the path is not an asset.
    """
    recover_asset(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no asset {path}; `patcomp convert` writes one")
    if problem := not_an_asset(path):
        raise AssetError(f"{path} is not an asset: {problem}. Give the .aimodel folder of a saved program")


def _obstacle(target: Path) -> str:
    """The file or folder at a path that a save must not replace; empty if there is none."""
    if not target.exists():
        return ""
    names = sorted(entry.name for entry in target.iterdir()) if target.is_dir() else ["a file"]
    if names and (problem := not_an_asset(target)):
        return problem
    # the toolchain calls its own files main.*, main-*.odix and so on
    if others := [name for name in names if name not in _REQUIRED + _OPTIONAL and not name.startswith("main")]:
        return f"it is an asset that also holds {_some(others)}"
    return ""


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def check_writable(path: Path) -> None:
    """Check that a file or folder can be made or changed at a path.

    Raises:
        PermissionError: the path, or the nearest folder of it that exists, cannot be written.
        NotADirectoryError: a part of the path is a file.
    """
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise NotADirectoryError(f"cannot write {path}: {parent} is a file, not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {path}: you have no permission to write to the folder {parent}")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"cannot write {path}: you have no permission to write to it")
    if not path.exists():
        try:
            with TemporaryFile(dir=parent):
                pass
        except OSError as error:  # a folder such as /proc, a disk without room, or one that is read-only
            why = error.strerror if isinstance(error, PermissionError) or error.errno != errno.ENOENT else ""
            raise PermissionError(
                f"cannot write {path}: {parent} takes no new files{f' ({why})' if why else ''}"
            ) from None


def check_space(folder: Path, needed: int) -> None:
    """Check that a disk has room, because the toolchain aborts the process on a full one.

    Raises:
        OSError: there are fewer free bytes than are needed; its `errno` is `ENOSPC`.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            errno.ENOSPC, f"the asset needs about {needed / 1e6:.1f} MB, and {free / 1e6:.1f} MB are free", str(folder)
        )


@contextlib.contextmanager
def replacing(target: Path, force: bool = False) -> Iterator[Path]:
    """Yield a path for the new asset, and move the asset from there to the target at the end.

    On an error the old asset stays or comes back.

    Raises:
        As `check_target`. OSError: the disk is full, or a rename fails.
    """
    check_target(target, force)
    place = target.resolve()  # replace the target of a link, and not the link
    place.parent.mkdir(parents=True, exist_ok=True)
    with _working_folder(place) as folder:
        yield folder / _NEW
        _flush(folder / _NEW)
        check_target(target, force)  # once more: writing may have taken minutes
        if place.exists():
            place.rename(folder / _OLD)
        (folder / _NEW).rename(place)


def recover_asset(target: Path) -> None:
    """Put the old asset back if a save was interrupted after renaming it and before the new one took its place."""
    place = target.resolve()
    if not place.exists() and _working_path(place).exists():
        with _working_folder(place):
            pass


@contextlib.contextmanager
def _working_folder(place: Path) -> Iterator[Path]:
    """An empty folder for one save of an asset; other saves wait. Leftovers of an interrupted save are deleted."""
    folder = _working_path(place)
    with _lock_in(folder) as lock:
        _clear(folder, place)
        try:
            yield folder
        finally:
            _clear(folder, place)
            lock.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # the folder stays if another save waits in it, or if a file is left
                folder.rmdir()


def _clear(folder: Path, place: Path) -> None:
    """Put the old asset back unless a new one replaced it, and remove the rest."""
    old, new = folder / _OLD, folder / _NEW
    # a save renames the old one while the new one is here; without a new one, the save was done, and the user
    # removed the asset later
    if old.exists() and new.exists() and not place.exists():
        old.rename(place)
    for left in (new, old):
        try:
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink(missing_ok=True)
        except OSError as error:  # the asset itself is in its place
            warnings.warn(f"{left} is no longer needed, and cannot be removed: {error}", stacklevel=2)


def _working_path(place: Path) -> Path:
    return place.parent / f".{place.name}.saving"


@contextlib.contextmanager
def _lock_in(folder: Path) -> Iterator[Path]:
    """Make a folder and hold the lock file in it, which the kernel releases when the process dies."""
    path = folder / "lock"
    try:
        import fcntl
    except ImportError:  # Windows has none of these locks: two saves of one asset at a time do not wait
        folder.mkdir(exist_ok=True)
        yield path
        return
    while True:
        folder.mkdir(exist_ok=True)
        try:
            file = path.open("w")
        except FileNotFoundError:  # another save has just removed the folder
            continue
        with file:
            with contextlib.suppress(OSError):  # some file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if _names_open_file(path, file.fileno()):
                yield path
                return


def _names_open_file(path: Path, descriptor: int) -> bool:
    """Whether a path still names an open file; the save that held the lock may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _flush(folder: Path) -> None:
    """Flush to disk, so that an error of storage is raised now."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("r+b" if os.name == "nt" else "rb") as file:  # Windows flushes only what may be written
                os.fsync(file.fileno())
