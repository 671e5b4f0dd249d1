"""Damaged assets: patcomp compares the hash of the program, or reads it in a child process."""

from __future__ import annotations

from patcomp.defects.defect import Defect

DEFECT = Defect(
    name="damaged_assets",
    says="The toolchain ends the process that loads a damaged asset.",
    met_in=("patcomp/emit/asset.py", "patcomp/emit/reading.py"),
    probes="damaged files, not programs, show it",
)
