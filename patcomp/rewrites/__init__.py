"""The stages between import and emission, one file a stage; `pipeline.STAGES` is the list of them."""

from patcomp.rewrites.options import Options
from patcomp.rewrites.pipeline import (
    STAGES,
    Compilation,
    Dumps,
    StageReport,
    run_pipeline,
)
from patcomp.rewrites.recover import chosen_assumptions, chosen_composites
from patcomp.rewrites.specialize import specialize

__all__ = [
    "STAGES",
    "Compilation",
    "Dumps",
    "Options",
    "StageReport",
    "chosen_assumptions",
    "chosen_composites",
    "run_pipeline",
    "specialize",
]
