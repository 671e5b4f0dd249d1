"""Texts by key in a file of the user's cache folder.

The file may be missing, damaged, written by another process at the same time, or on a disk without room: then fewer
texts are known, and nothing else happens. With `PATCOMP_CACHE` set to a folder, that one is used; if it is set to
nothing, no file is read or written.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from patcomp.pytorch import user_cache_dir

_LOG = logging.getLogger(__name__)

_FILES = 8
"""The number of files to keep: older ones belong to earlier versions, or to sources before they were edited."""


class KeptTexts:
    """Texts by key in one file.

    Args:
        path: the file, which need not exist.
    """

    def __init__(self, path: Path):
        self._path = path

    @classmethod
    def of(cls, situation: str) -> KeptTexts | None:
        """The texts that hold in one situation; None if the user wants no cache."""
        folder = os.environ.get("PATCOMP_CACHE", user_cache_dir("patcomp"))
        return cls(Path(folder, f"decompositions-{situation}.sqlite")) if folder else None

    def read(self) -> dict[str, str]:
        """All texts; none if the file is missing or damaged. A text that was changed is left out."""
        if not self._path.is_file():
            return {}
        with self._without_failures(), closing(self._connection()) as connection:
            return {key: text for key, text, seal in connection.execute(_ALL) if seal == _seal(key, text)}
        return {}

    def add(self, texts: Mapping[str, str]) -> None:
        """Add texts, where another process has not."""
        with self._without_failures():
            is_new = not self._path.exists()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connection()) as connection, connection:
                connection.execute(_TABLE)
                connection.executemany(_ADD, ((key, text, _seal(key, text)) for key, text in texts.items()))
            if is_new:
                self._remove_old_files()

    def _connection(self):  # type: ignore[no-untyped-def]
        import sqlite3  # not before it is needed

        return sqlite3.connect(self._path, timeout=2)

    @contextmanager
    def _without_failures(self) -> Iterator[None]:
        import sqlite3

        try:
            yield
        except (sqlite3.Error, OSError) as error:
            _LOG.debug("the cache %s is not used: %s", self._path, error)
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                with suppress(OSError):
                    self._path.unlink()  # it is damaged, and the next process shall make another one

    def _remove_old_files(self) -> None:
        files = sorted(self._path.parent.glob("decompositions-*.sqlite"), key=lambda file: file.stat().st_mtime_ns)
        for file in files[:-_FILES]:
            file.unlink(missing_ok=True)


_TABLE = "CREATE TABLE IF NOT EXISTS texts (key TEXT PRIMARY KEY, text TEXT NOT NULL, seal TEXT NOT NULL)"
_ADD = "INSERT OR IGNORE INTO texts VALUES (?, ?, ?)"
_ALL = "SELECT key, text, seal FROM texts"


def _seal(key: str, text: str) -> str:
    """A checksum, by which a damaged text is told."""
    return hashlib.blake2b(f"{key}\0{text}".encode(), digest_size=8).hexdigest()
