"""Defects of the Core AI toolchain (`coreai-core`) and what patcomp does about each: one file of `known` a defect.

| file | contents |
|---|---|
| `defect` | `Defect`: what goes wrong, how the verifier finds it, how the IR is mended, the program that shows it |
| `registry` | the list of all defects, and of those that are on for the installed version |
| `copies`, `empty_operands`, `elements` | what several defects, or a long one, are made of |
| `known/` | the defects; a new file is a new defect |

A defect is on unless the installed version is one of its `healed_in`. So it is on for a version that nobody has
probed, and where no toolchain is installed, because such programs are written for any version. A defect that is off
is in no list that is run.
"""

from patcomp.defects.defect import Defect, Probe
from patcomp.defects.registry import detectors, installed_version, known_defects, mend, mends, mends_for, warnings_of

__all__ = [
    "Defect",
    "Probe",
    "detectors",
    "installed_version",
    "known_defects",
    "mend",
    "mends",
    "mends_for",
    "warnings_of",
]
