"""The stages as passes of xDSL, to be run by its pass pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from patcomp.errors import PatcompError, StageError
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Context, ModuleOp, ModulePass, PassPipeline
from patcomp.patterns import RuleSet
from patcomp.rewrites.pipeline import Options, Stage


def stage_pass(stage: Stage, module: IRModule, rules: RuleSet) -> ModulePass:
    """A stage as a pass over one module, to whose weights it adds.

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
                stage.run(module, rules.stage(stage.name), Options())
            except PatcompError as error:
                raise StageError(f"stage {stage.name}: {error}", stage.name) from error
            except (
                Exception
            ) as error:  # rules count on the stages before theirs, which a text need not have been through
                reason = ", ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
                before = f"; have the stages before {stage.name} been run?"
                raise StageError(f"stage {stage.name}: {reason}{before}", stage.name) from error

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
