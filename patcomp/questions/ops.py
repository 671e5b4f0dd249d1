"""Answers for debugging: where an op comes from, and why a rule did not apply."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from patcomp.errors import RuleError
from patcomp.ir.builder import Builder
from patcomp.ir.locations import describe, origins, rules
from patcomp.ir.xdsl import Operation, ops_inside
from patcomp.patterns import Rule
from patcomp.patterns.apply import BrokenRuleError, Replacement, apply
from patcomp.patterns.driver import Scope
from patcomp.patterns.match import Failure


def name_of(op: Operation) -> str:
    """An op as messages show it: `%mul = aten.mul.Tensor`, or `aten.mul.Tensor` if the result has no name."""
    hint = op.results[0].name_hint if op.results else None
    return f"%{hint} = {op.name}" if hint else op.name


def explain(op: Operation, catalog: Iterable[Rule] = ()) -> str:
    """Which rules made an op, last one first, and which nodes and lines of the user's program it came from.

    Args:
        op: the op.
        catalog: the rules; for those that made the op, the text says where each is declared and what it does.
    """
    known = {rule.name: rule for rule in catalog}
    made_by = rules(op.location)
    places = origins(op.location)
    lines = [name_of(op)]
    for name in made_by:
        rule = known.get(name)
        about = f" ({rule.source}): {rule.doc.splitlines()[0] if rule.doc else 'no description'}" if rule else ""
        lines.append(f"  made by rule {name}{about}")
    if not made_by:
        lines.append("  no rule made this op; the import did")
    lines.extend(f"  from {place}" for place in places)
    if not places:
        lines.append("  from an unknown place")
    return "\n".join(lines)


def find(scope: Scope, what: str) -> list[Operation]:
    """The ops inside a scope that a user means by a name (`"%mul_3"`), an FX node or a line (`"model.py:12"`)."""
    wanted = what.removeprefix("%")
    return [op for op in ops_inside(scope) if wanted in _known_as(op)]


def _known_as(op: Operation) -> set[str]:
    names = {result.name_hint for result in op.results if result.name_hint}
    for origin in origins(op.location):
        names |= {origin.node, origin.source, origin.source.rpartition("/")[2]}
    return names


def why_not(rule: Rule, scope: Scope, *, target: Any = None, assumed: Collection[str] = ()) -> str:
    """Why a rule applies nowhere inside a scope: the place where it came closest, in one sentence.

    Args:
        rule: the rule, of a stage that rewrites the IR.
        scope: a module, graph, region or block.
        target: the namespace with which functions of rules build ops.
        assumed: the names of the assumptions that hold.
    """
    best: tuple[Operation, Failure] | None = None
    applied: Operation | None = None
    reasons: dict[str, None] = {}
    for op in ops_inside(scope):
        if op.name not in rule.ops or op.parent is None:
            continue
        builder = Builder(op.parent, before=op)
        try:
            made = apply(rule, op, builder, target, assumed=assumed, trace=True)
        except BrokenRuleError as broken:
            error = broken.__cause__
            said = str(error) if isinstance(error, RuleError) else f"{type(error).__name__}: {error}"
            reasons[f"at {name_of(op)} it fails: {said}"] = None
            continue
        if isinstance(made, Replacement):
            builder.take_back(0)
            applied = op  # the last one: a match of more ops ends later than the matches inside it
        elif made.exhausted:
            reasons[f"at {name_of(op)} the search stopped: there are too many operand orders to try"] = None
        elif made.failure is None:
            reasons[f"at {name_of(op)} it {f'says: {made.reason}' if made.reason else 'returns no replacement'}"] = None
        elif best is None or made.failure.depth > best[1].depth:
            best = (op, made.failure)
    if applied is not None:
        verb = "matches" if rule.is_declarative else "applies"
        return f"{rule.name}: it {verb} at {name_of(applied)} ({describe(applied)})"
    if reasons:
        first, *more = reasons
        return f"{rule.name}: {first}" + (f" (and at {len(more)} other ops)" if more else "")
    if best is None:
        return f"{rule.name}: there is no {' or '.join(rule.ops)} to start from"
    root, failure = best
    at = ""
    if failure.op is not None:
        hint = failure.op.results[0].name_hint if failure.op.results else None
        at = f"at {failure.op.name}{f' (%{hint})' if hint else ''}: "
    count = f"{failure.matched} of {rule.size} {'op' if rule.size == 1 else 'ops'}"
    return f"{rule.name}: matched {count} up from {name_of(root)}, then {at}{failure.reason}"
