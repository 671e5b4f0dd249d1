"""Answers for debugging: where an op comes from, and why a rule did not apply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from patcomp.errors import RuleError
from patcomp.ir.builder import Builder
from patcomp.ir.locations import describe, origins, rules
from patcomp.ir.module import graph_name
from patcomp.ir.xdsl import Operation, ops_inside
from patcomp.patterns import Rule
from patcomp.patterns.apply import BrokenRuleError, Replacement, apply
from patcomp.patterns.context import PLAIN, Context
from patcomp.patterns.driver import Scope
from patcomp.patterns.match import Failure, Phase


def _name_of(op: Operation) -> str:
    """An op as messages show it: `%mul = aten.mul.Tensor`, or `aten.mul.Tensor` if the result has no name."""
    hint = op.results[0].name_hint if op.results else None
    return f"%{hint} = {op.name}" if hint else op.name


def explain_ops(ops: Sequence[Operation], catalog: Iterable[Rule] = ()) -> str:
    """Which rules made ops, last one first, and which nodes and lines of the user's program they came from.

    Args:
        ops: the ops. Those of one graph that the same rules made are described together. Those that come from the
            same places follow each other, and the places are said once, behind them.
        catalog: the rules; for those that made the ops, the text says where each is declared and what it does.
    """
    known = {rule.name: rule for rule in catalog}
    groups: dict[tuple[str, tuple[str, ...]], list[Operation]] = {}
    for op in [op for op in ops if op.name != "coreai.graph"] or ops:  # the ops inside a graph follow it
        groups.setdefault((_graph_of(op), rules(op.location)), []).append(op)
    by_places: dict[tuple[str, ...], list[str]] = {}
    for key, group in groups.items():
        places = tuple(dict.fromkeys(str(place) for op in group for place in origins(op.location)))
        by_places.setdefault(places, []).extend(_made(*key, group, known))
    return "\n".join(line for places, made in by_places.items() for line in (*made, *_from(places)))


def _made(graph: str, made_by: Sequence[str], ops: Sequence[Operation], known: Mapping[str, Rule]) -> list[str]:
    """What some ops are, and the rules that made them."""
    lines = [_name_of(ops[0]) if len(ops) == 1 else f"{len(ops)} ops{f' of @{graph}' if graph else ''}: {_listed(ops)}"]
    for name in made_by:
        rule = known.get(name)
        about = f" ({rule.source}): {rule.doc.splitlines()[0] if rule.doc else 'no description'}" if rule else ""
        lines.append(f"  made by rule {name}{about}")
    if not made_by:
        lines.append(f"  no rule made {'this op' if len(ops) == 1 else 'these ops'}; the import did")
    return lines


def _from(places: Sequence[str]) -> list[str]:
    """Where in the model ops come from."""
    more = [f"  and from {len(places) - _SHOWN} more places"] if len(places) > _SHOWN else []
    return [*(f"  from {place}" for place in places[:_SHOWN]), *more] or ["  from an unknown place"]


_SHOWN = 10
"""How many ops or places of a group are listed."""


def _listed(ops: Sequence[Operation]) -> str:
    """The named ops, and how many others there are of each kind."""
    named = [_name_of(op) for op in ops if op.results and op.results[0].name_hint]
    others = Counter(op.name for op in ops if not (op.results and op.results[0].name_hint))
    counted = [f"{count} {name}" if count > 1 else name for name, count in others.most_common()]
    more = [f"{len(named) - _SHOWN} more with names"] if len(named) > _SHOWN else []
    return ", ".join([*named[:_SHOWN], *more, *counted])


def _graph_of(op: Operation) -> str:
    """The name of the graph that an op is in; empty outside of graphs."""
    around = op.parent_op()
    while around is not None and around.name != "coreai.graph":
        around = around.parent_op()
    return "" if around is None else graph_name(around)


def find(scope: Scope, what: str) -> list[Operation]:
    """The ops inside a scope that a user means by a name (`"%mul_3"`), an FX node or a line (`"model.py:12"`)."""
    wanted = what.removeprefix("%")
    return [op for op in ops_inside(scope) if wanted in _known_as(op)]


def _known_as(op: Operation) -> set[str]:
    names = {result.name_hint for result in op.results if result.name_hint}
    for origin in origins(op.location):
        names |= {origin.node, origin.source, origin.source.rpartition("/")[2]}
    return names


_WORTH_TELLING = 4
"""The ops of a rule from which on it tells something that some of them matched: `x * sigmoid(y)` is no failed silu."""


@dataclass(frozen=True)
class Attempt:
    """How close a rule came to a match in a program."""

    text: str
    """Where it came closest, and what was missing there."""
    came_close: bool = False
    """Whether almost all of its ops matched: three of four of a rule of four or more, or all, and then a condition was
    false or a value was used elsewhere."""
    applies: bool = False
    """Whether the rule applies after all."""


def why_not_in(rule: Rule, scope: Scope, context: Context = PLAIN) -> str:
    """The text of `closest_attempt_in`."""
    return closest_attempt_in(rule, scope, context).text


def closest_attempt_in(rule: Rule, scope: Scope, context: Context = PLAIN) -> Attempt:
    """Why a rule applies nowhere inside a scope: the place where it came closest, with its line of the model.

    Args:
        rule: the rule, of a stage that rewrites the IR.
        scope: a module, graph, region or block.
        context: what the rule is given.
    """
    best: tuple[Operation, Failure] | None = None
    applied: Operation | None = None
    reasons: dict[str, Operation] = {}
    for op in ops_inside(scope):
        if op.name not in rule.ops or op.parent is None:
            continue
        builder = Builder(op.parent, before=op)
        try:
            made = apply(rule, op, builder, context, trace=True)
        except BrokenRuleError as broken:
            error = broken.__cause__
            said = str(error) if isinstance(error, RuleError) else f"{type(error).__name__}: {error}"
            reasons.setdefault(f"at {_name_of(op)} the rule fails: {said}", op)
            continue
        if isinstance(made, Replacement):
            builder.take_back(0)
            applied = op  # the last one: a match of more ops ends later than the matches inside it
        elif made.exhausted:
            reasons.setdefault(f"at {_name_of(op)} the search stopped: there are too many operand orders to try", op)
        elif made.failure is None:
            said = f"says: {made.reason}" if made.reason else "returns no replacement"
            reasons.setdefault(f"at {_name_of(op)} the rule {said}", op)
        elif best is None or made.failure.depth > best[1].depth:
            best = (op, made.failure)
    if applied is not None:
        verb = "matches" if rule.is_declarative else "applies"
        return Attempt(f"{rule.name} {verb} at {_name_of(applied)} ({describe(applied)})", applies=True)
    if reasons:
        first, *more = reasons
        others = f" (and at {len(more)} other ops)" if more else ""
        return Attempt(f"{rule.name}: {first}{others}\n  {_name_of(reasons[first])} is from {describe(reasons[first])}")
    if best is None:
        return Attempt(f"{rule.name}: there is no {' or '.join(rule.ops)} to start from")
    root, failure = best
    at = ""
    if failure.op is not None:
        hint = failure.op.results[0].name_hint if failure.op.results else None
        at = f"at {failure.op.name}{f' (%{hint})' if hint else ''}: "
    count = f"{failure.matched} of {rule.size} {'op' if rule.size == 1 else 'ops'}"
    places = {_name_of(op): describe(op) for op in (root, failure.op) if op is not None}
    lines = [
        f"{rule.name}: matched {count} up from {_name_of(root)}, then {at}{failure.reason}",
        *(f"  {name} is from {place}" for name, place in places.items()),
    ]
    is_whole = rule.size > 1 and failure.phase is not Phase.STRUCTURE
    is_almost = rule.size >= _WORTH_TELLING and 4 * failure.matched >= 3 * rule.size
    return Attempt("\n".join(lines), is_whole or is_almost)
