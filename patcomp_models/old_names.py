"""The names that modules had below `patcomp.language`, `patcomp.tasks` and `patcomp.bundles`, for one version."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import ModuleType

_ROOMS = {
    "patcomp.language.": ("patcomp_models.language.", "patcomp_models.checkpoints."),
    "patcomp.tasks.": ("patcomp_models.tasks.",),
    "patcomp.bundles.": ("patcomp_models.bundles.",),
}


class _OldNames(MetaPathFinder, Loader):
    """Finds a module by its old name; it is the same module as by its new one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = _new_name(fullname)
        return None if new is None else spec_from_loader(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = _new_name(spec.name)
        assert new is not None
        module = import_module(new)
        spec.loader_state = module.__spec__  # the import system puts the spec of the old name there
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def _new_name(old: str) -> str | None:
    for room, places in _ROOMS.items():
        if old.startswith(room):
            names = (f"{place}{old.removeprefix(room)}" for place in places)
            return next((name for name in names if _is_there(name)), None)
    return None


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that it would be in
        return False


sys.meta_path.insert(0, _OldNames())  # in front of the finder of files, which would load a module a second time
