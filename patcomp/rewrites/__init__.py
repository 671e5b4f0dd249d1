"""The stages between import and emission, one file a stage; `pipeline.STAGES` is the list of them."""

from patcomp.rewrites.pipeline import STAGES, Compilation, Dumps, StageReport, run_pipeline

__all__ = ["STAGES", "Compilation", "Dumps", "StageReport", "run_pipeline"]
