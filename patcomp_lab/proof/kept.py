"""Tests of rules that passed, kept for the next time under a fingerprint of all that they depend on.

A rule that is wrong is tested again, so that its counterexample is there. Files that a rule reads while it is imported,
and that are no Python modules, are not in the fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

from patcomp.patterns.installed_catalogs import versions_of

_CODE = ("patcomp", "patterns_catalog", "special_functions_catalog", "patcomp_lab")
"""The packages beside this one whose files the tests depend on."""
_LIBRARIES = ("torch", "numpy", "ml_dtypes", "xdsl", "coreai-core")


@dataclass(frozen=True)
class ShownCheck:
    """What a user sees of one kind of tests.

    Attributes:
        name: of the tests.
        programs: how many passed.
        result: in a word.
        proof: what the proof says, if this is one.
        is_unproved: whether it found neither a proof nor a mistake.
    """

    name: str
    programs: int
    result: str
    proof: str = ""
    is_unproved: bool = False


@dataclass(frozen=True)
class KeptTests:
    """The tests of the rules of a catalog that passed before.

    Attributes:
        folder: where they are kept.
        fingerprint: of what all rules of the catalog depend on.
    """

    folder: Path
    fingerprint: str

    @classmethod
    def of(cls, catalog: ModuleType, *facts: object) -> KeptTests:
        """Those of a catalog's module, for the code, libraries and variables of now.

        Args:
            facts: what the tests depend on besides, such as whether they use the runtime.
        """
        found = hashlib.sha256()
        for part in (*map(str, facts), *_surroundings(), *_hashes(_files(catalog))):
            found.update(part.encode() + b"\0")
        return cls(cache_folder() / "rule-tests", found.hexdigest())

    def get(self, rule: str) -> list[ShownCheck] | None:
        """The tests of a rule by its name; None if it was not tested, or something changed since."""
        try:
            data = json.loads(self._path(rule).read_text())
            return [ShownCheck(**each) for each in data]
        except (OSError, ValueError, TypeError):  # none is there, or one of another version of patcomp
            return None

    def put(self, rule: str, checks: Sequence[ShownCheck]) -> None:
        """Keep the tests of a rule that passed.

        Raises:
            OSError: they cannot be written.
        """
        path = self._path(rule)
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps([asdict(each) for each in checks]))
        written.replace(path)

    def _path(self, rule: str) -> Path:
        return self.folder / f"{hashlib.sha256(f'{self.fingerprint} {rule}'.encode()).hexdigest()[:32]}.json"


def cache_folder() -> Path:
    """The folder of the user's caches that is patcomp's."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "patcomp"


def _files(catalog: ModuleType) -> Iterator[Path]:
    """The files of patcomp, of a catalog, and of all modules that are imported, but for those of libraries."""
    packages = [Path(__file__).parents[2] / package for package in _CODE]
    for package in packages:
        yield from (path for path in package.rglob("*") if path.suffix in (".py", ".txt", ".csv"))
    libraries = [*packages, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))]
    for module in (catalog, *sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and not any(Path(file).is_relative_to(library) for library in libraries):
            yield Path(file).absolute()


def _hashes(files: Iterable[Path]) -> Iterator[str]:
    for path in sorted({*files}):
        if path.is_file():
            yield f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _surroundings() -> Iterator[str]:
    """The versions of Python and libraries, of installed catalogs, and patcomp's environment variables."""
    yield f"{sys.version} {platform.machine()}"
    for name in _LIBRARIES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name} is not installed"
    yield from (f"{name} {found}" for name, found in sorted(versions_of([], installed=True).items()))
    yield from (f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("PATCOMP_"))
