"""The stages between import and emission, one file a stage; `pipeline.STAGES` is the list of them."""

from patcomp.rewrites.pipeline import STAGES, Compilation, Dumps, Options, StageReport, run_pipeline
from patcomp.rewrites.questions import explain, why_not
from patcomp.rewrites.recover import chosen_assumptions, chosen_composites
from patcomp.rewrites.specialize import specialize
from patcomp.rewrites.widths import Widths

__all__ = [
    "STAGES",
    "Compilation",
    "Dumps",
    "Options",
    "StageReport",
    "Widths",
    "chosen_assumptions",
    "chosen_composites",
    "explain",
    "run_pipeline",
    "specialize",
    "why_not",
]
