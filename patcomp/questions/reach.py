"""Whether a rule can fire at all: PyTorch has its ops, and its stage rewrites their dialect."""

from __future__ import annotations

from difflib import get_close_matches
from types import ModuleType

from patcomp.errors import RuleError
from patcomp.ir import aten, coreai
from patcomp.patterns import Rule, Stage

_SEES = dict.fromkeys((Stage.NORMALIZE, Stage.RECOVER, Stage.LOWER), "aten")
_SEES |= dict.fromkeys((Stage.TARGET, Stage.OPTIMIZE), "coreai")
"""The dialect whose ops the rules of a stage rewrite."""

_OF_CALLS = (Stage.RECOVER, Stage.TARGET)
"""The stages in which recovered composites are calls that rules can start from."""


def namespace_of(rule: Rule) -> ModuleType:
    """The functions with which a rule of some stage builds ops."""
    return aten if rule.stage is Stage.NORMALIZE else coreai


def check_reach(rule: Rule) -> None:
    """Check that a conversion can fire a rule.

    Raises:
        RuleError: it cannot; the message says why, and what to do.
    """
    if problem := _problem(rule):
        raise RuleError(f"rule {rule.name} ({rule.source}) can never fire: {problem}")


def _problem(rule: Rule) -> str:
    unknown = [op for op in rule.ops if op.startswith("aten.") and aten.schema_of(op) is None]
    if unknown:
        near = get_close_matches(unknown[0], aten.known_names(), n=3)
        return f"PyTorch has no op {unknown[0]}" + (f"; there are {', '.join(near)}" if near else "")
    if rule.stage is Stage.DECOMPOSE:
        return ""
    if rule.composite is not None:
        return "" if rule.stage in _OF_CALLS else f"composites are calls in the stages {' and '.join(_OF_CALLS)} only"
    seen = _SEES[rule.stage]
    dialects = ["coreai" if _is_coreai(op) else "aten" for op in rule.ops]
    if seen in dialects:
        return ""
    others = ", ".join(stage for stage, dialect in _SEES.items() if dialect != seen)
    return f"the stage '{rule.stage}' rewrites ops of {seen}, and it starts from {dialects[0]}; choose from {others}"


def _is_coreai(op: str) -> bool:
    return op.startswith(("coreai.", "coreaix."))
