"""`explain` and `why_not` for a whole program."""

from __future__ import annotations

from collections.abc import Callable, Collection

from patcomp.errors import RuleError, UnknownNameError
from patcomp.ir.module import IRModule
from patcomp.patterns import Context, RuleSet, Stage
from patcomp.questions import ops
from patcomp.questions.reach import check_reach, namespace_of


def explain(module: IRModule, rules: RuleSet, what: str) -> str:
    """Which rules made the ops of a name, FX node or source line, and where in the model they come from.

    Args:
        module: the converted module.
        rules: the rules it was converted with.
        what: a value's name (`%linear`), an FX node or a place (`model.py:12`).

    Raises:
        UnknownNameError: no op matches `what`.
    """
    found = ops.find(module.op, what) if what.strip("%") else []
    if not found:
        raise UnknownNameError(
            f"no op of the program is called, or comes from, {what!r}; give the name of a value or FX node, or a line "
            "such as 'model.py:12'"
        )
    return ops.explain_ops(found, rules)


def why_not(rules: RuleSet, module_before: Callable[[str], IRModule], name: str, assumed: Collection[str] = ()) -> str:
    """The text of `closest_attempt`."""
    return closest_attempt(rules, module_before, name, assumed).text


def closest_attempt(
    rules: RuleSet, module_before: Callable[[str], IRModule], name: str, assumed: Collection[str] = ()
) -> ops.Attempt:
    """Why a rule applied nowhere in a program: where it came closest, and what it lacked there.

    Args:
        rules: the rules of the conversion.
        module_before: a function that returns the program before a stage, with the locations of its ops.
        name: the rule.
        assumed: the names of the assumptions of the conversion.

    Raises:
        UnknownNameError: there is no such rule.
    """
    rule = rules[name]
    if rule.stage is Stage.DECOMPOSE:
        return ops.Attempt(
            f"{name} is a decomposition: the import decomposes {', '.join(rule.ops)}, so the IR never has them"
        )
    try:
        check_reach(rule)
    except RuleError as error:
        return ops.Attempt(str(error))
    context = Context(namespace=namespace_of(rule), assumed=assumed)
    return ops.closest_attempt_in(rule, module_before(rule.stage).op, context)
