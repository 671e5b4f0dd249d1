"""The mends of single defects of the toolchain, as the end of optimize does them."""

from __future__ import annotations

from patcomp.defects import known_defects
from patcomp.ir import IRModule
from patcomp.patterns.statistics import Statistics


def own_values(module: IRModule, statistics: Statistics) -> None:
    """Give loops and branches all the copies that the toolchain needs."""
    mends = {defect.name: defect.mend for defect in known_defects()}
    for name in ("captured_states", "carried_values_in_place", "nested_results", "choices_of_outside_values"):
        mends[name](module, statistics)  # type: ignore[misc]
    mends["merged_branches"](module, statistics)  # type: ignore[misc]
