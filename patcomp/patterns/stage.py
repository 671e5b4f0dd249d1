"""The stages that run rules."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum

from patcomp.errors import RuleError


class Stage(StrEnum):
    """A stage that runs rules. Each is a folder of the catalog. Decompositions run before the
    import, all other rules rewrite the IR."""

    DECOMPOSE = "decompose"
    NORMALIZE = "normalize"
    RECOVER = "recover"
    LOWER = "lower"
    TARGET = "target"
    OPTIMIZE = "optimize"

    @classmethod
    def of_rewrites(cls, name: str) -> Stage:
        """The stage that a rule names as `stage=`.

        Raises:
            RuleError: no stage of this name runs rules that rewrite the IR.
        """
        names = [stage.value for stage in cls if stage is not cls.DECOMPOSE]
        if name in names:
            return cls(name)
        if name == cls.DECOMPOSE:
            raise RuleError("the stage 'decompose' runs decompositions only; declare the rule with @decomposition")
        near = get_close_matches(str(name), names, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ";"
        raise RuleError(f"no stage {name!r} runs rules{meant} the stages with rules are {', '.join(names)}")
