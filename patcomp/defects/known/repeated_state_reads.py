"""Equal views of two readings of a state of dynamic size: the state stage reads it once."""

from __future__ import annotations

from patcomp.defects.defect import Defect

DEFECT = Defect(
    name="repeated_state_reads",
    says="The runtime ends the process at an equal view of a second reading of a state of dynamic size.",
    met_in=("patcomp/rewrites/state.py",),
    probes="no small program shows it",
)
