"""The defects of the folder `known`, and those that are on for the installed version of the toolchain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from importlib import metadata
from typing import TYPE_CHECKING

from patcomp.defects.defect import Defect, DefectStage, Detect, Mend
from patcomp.errors import Problem
from patcomp.families import modules_in
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import ops_inside

if TYPE_CHECKING:
    from patcomp.patterns.statistics import Statistics

_FOLDER = "patcomp.defects.known"


@cache
def installed_version() -> str | None:
    """The version of `coreai-core` by its metadata, without loading native code; None if it is not installed."""
    try:
        return metadata.version("coreai-core")
    except metadata.PackageNotFoundError:
        return None


@cache
def known_defects() -> tuple[Defect, ...]:
    """All defects, by name."""
    return tuple(module.DEFECT for module in modules_in(_FOLDER))


def detectors(*, finished: bool) -> Mapping[str, tuple[Detect, ...]]:
    """What the verifier asks of ops, by the op's name.

    Args:
        finished: whether no stage follows that mends.
    """
    return _detectors(installed_version(), finished)


def mends(stage: DefectStage) -> tuple[Defect, ...]:
    """The defects that are mended in a stage, in order."""
    return _mends(installed_version(), stage)


def mends_for(module: IRModule, stage: DefectStage) -> Iterator[tuple[Defect, Mend]]:
    """The defects of a stage that a program may have by its ops, in order, each with its mend."""
    present: set[str] | None = None
    for defect in mends(stage):
        if defect.ops:
            present = {op.name for op in ops_inside(module.op)} if present is None else present
            if present.isdisjoint(defect.ops):
                continue
        assert defect.mend is not None
        yield defect, defect.mend
        present = None  # the mend may have made other ops


def mend(module: IRModule, statistics: Statistics, stage: DefectStage) -> None:
    """Mend the defects of a stage in place."""
    for _, work in mends_for(module, stage):
        work(module, statistics)


def warnings_of(module: IRModule) -> Iterator[Problem]:
    """What the user is told of a converted program."""
    version = installed_version()
    for defect in known_defects():
        if defect.warn is not None and defect.is_on(version):
            yield from defect.warn(module)


@cache
def _detectors(version: str | None, finished: bool) -> dict[str, tuple[Detect, ...]]:
    found: dict[str, tuple[Detect, ...]] = {}
    for defect in known_defects():
        mended_later = defect.mend is not None and defect.stage == "optimize" and not finished
        if defect.is_on(version) and not mended_later:
            for op, detect in defect.detect.items():
                found[op] = (*found.get(op, ()), detect)
    return found


@cache
def _mends(version: str | None, stage: DefectStage) -> tuple[Defect, ...]:
    mended = {each.name: each for each in known_defects() if each.mend is not None and each.stage == stage}
    order = TopologicalSorter(
        {name: [other for other in mended if other in each.after] for name, each in mended.items()}
    )
    return tuple(mended[name] for name in order.static_order() if mended[name].is_on(version))
