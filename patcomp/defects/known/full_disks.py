"""Saving on a full disk: patcomp asks for room first."""

from __future__ import annotations

from patcomp.defects.defect import Defect

DEFECT = Defect(
    name="full_disks",
    says="The toolchain ends the process where a disk has no room for an asset.",
    met_in=("patcomp/emit/replacement.py",),
    probes="a probe would have to fill a disk",
)
