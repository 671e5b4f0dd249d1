"""The stages as passes of xDSL, to be run by its pass pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from patcomp.errors import PatcompError, RuleError, StageError
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Context, ModuleOp, ModulePass, PassPipeline
from patcomp.patterns import RuleSet
from patcomp.rewrites.pipeline import Options, Pass


def stage_pass(stage: Pass, module: IRModule, rules: RuleSet) -> ModulePass:
    """A stage as a pass over one module; new weights are added to the module's.

    Args:
        stage: the stage.
        module: the module that the pass will be applied to.
        rules: the rules of all stages.
    """

    class StagePass(ModulePass):
        name = stage.name

        def apply(self, ctx: Context, op: ModuleOp) -> None:
            assert op is module.op
            try:
                stage.run(module, rules.stage(stage.name), Options(strict=True))
            except Exception as error:
                reason = str(error) if isinstance(error, PatcompError) else f"{type(error).__name__}: {error}"
                failed = error.__cause__ if isinstance(error, RuleError) else error
                if not isinstance(failed, PatcompError | None):
                    # rules rely on the stages before theirs, which a text need not have been through
                    reason += f"; have the stages before {stage.name} been run?"
                raise StageError(f"stage {stage.name}: {reason}", stage.name) from error

    return StagePass()


def run_passes(module: IRModule, passes: Sequence[ModulePass], after: Callable[[str], object]) -> None:
    """Runs passes in order, in place.

    Args:
        module: the module.
        passes: the passes, made for it.
        after: called with the name of each pass when it is done.

    Raises:
        StageError: a stage failed.
    """

    def between(previous: ModulePass | None, op: ModuleOp, following: ModulePass | None) -> None:
        if previous is not None:
            after(previous.name)

    PassPipeline(tuple(passes), between).apply(Context(), module.op)
