"""Run rules over a module until no rule applies.

Users are visited before producers, so that the largest construct is found first. At one op the rules are tried by
priority, then size, then their order in the catalog: users' rules as declared, then patcomp's own by name. After a
rewrite, its new ops and the users of the replaced values are visited at once. Sweeps over the whole module repeat until
a sweep changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from patcomp.errors import StageError
from patcomp.ir.builder import Builder
from patcomp.ir.constants import is_constant
from patcomp.ir.locations import describe
from patcomp.ir.xdsl import (
    Block,
    LocationAttr,
    Operation,
    OpResult,
    Region,
    SSAValue,
    in_order,
    ops_inside,
    replace_uses,
    set_name,
)
from patcomp.patterns.apply import BrokenRuleError, Refusal, Replacement, apply
from patcomp.patterns.catalog import RuleSet
from patcomp.patterns.context import PLAIN, Context
from patcomp.patterns.index import Index
from patcomp.patterns.match import Matcher
from patcomp.patterns.rule import Rule
from patcomp.patterns.statistics import Overlap, Record, Statistics

_SKIPPED = "the rule was skipped there, and the conversion went on without it; tell the rule's author"

Scope = Operation | Block | Region


class EndlessRewritesError(StageError):
    """The rules of a stage rewrite without end; `cycles` lists the rules that rewrite each other's results."""

    def __init__(self, message: str, cycles: Sequence[Sequence[str]]):
        circles = "; ".join(" -> ".join([*cycle, cycle[0]]) for cycle in cycles)
        super().__init__(
            f"{message}; each rule rewrites what the one before it built: {circles}" if circles else message
        )
        self.cycles = cycles


def run(
    scope: Scope,
    rules: RuleSet | Index,
    context: Context = PLAIN,
    *,
    max_rewrites: int | None = None,
    max_sweeps: int = 200,
) -> Statistics:
    """Apply rules everywhere inside a scope until no rule applies.

    Args:
        scope: an op (a module or a graph), whose regions are rewritten, a region or a block.
        rules: the rules, or their `Index`, which several runs can share.
        context: what every rule is given.
        max_rewrites: the number of rewrites after which the run fails; by default 1000, and 20 for each op.
        max_sweeps: the number of sweeps after which the run fails.

    Raises:
        EndlessRewritesError: the rules do not come to an end; the message names those that keep rewriting.
        BrokenRuleError: if the context is strict: a condition or the function of a rule raised an exception, or a rule
            built an invalid replacement.
    """
    driver = _Driver(rules if isinstance(rules, Index) else Index(rules), context)
    limit = max_rewrites
    while True:
        ops = ops_inside(scope)
        if limit is None:
            limit = 1000 + 20 * len(ops)
        if not driver.sweep(ops, limit):
            return driver.statistics
        if driver.statistics.sweeps >= max_sweeps:
            raise driver.endless(f"after {max_sweeps} sweeps over the module the rules still rewrite it")


_WIDE = 64
"""The number of operands above which an op is tried once a sweep."""


class _Driver:
    def __init__(self, index: Index, context: Context):
        self.index, self.context = index, context
        self.statistics = Statistics()
        self.states = index.sweep()
        self.limit = 0
        self.made_by: dict[Operation, str] = {}
        """The rule that built each op."""
        self.feeds: deque[tuple[str, str]] = deque(maxlen=100)
        """Of the last rewrites, the rule that built a matched op and the rule that matched it."""

    def sweep(self, ops: Sequence[Operation], limit: int) -> bool:
        """Visit all ops once, the last ones first. Return whether a rule rewrote anything."""
        self.limit = limit
        before = len(self.statistics.records)
        self.states = self.index.sweep()
        visit = self.states.visit
        found = [(op, rules) for op in ops if (rules := visit(op))]
        for op, rules in reversed(found):
            if op.parent is not None:
                self._settle(op, rules)
        self.statistics.sweeps += 1
        return len(self.statistics.records) > before

    def endless(self, what: str) -> EndlessRewritesError:
        """The error that names the rules that keep rewriting."""
        last = self.statistics.records[-100:]
        counts = Counter(record.rule for record in last)
        names = ", ".join(f"{name} ({count})" for name, count in counts.most_common())
        places = ", ".join(dict.fromkeys(record.place for record in last[-2:]))
        message = f"{what}; of the last {len(last)} rewrites: {names}; the last ones at {places}"
        return EndlessRewritesError(message, _cycles(self.feeds))

    def _settle(self, op: Operation, rules: Sequence[Rule]) -> None:
        """Rewrite an op, then the ops that the rewrite built and their users, until no rule applies to them.

        A user of many values waits for the next sweep; otherwise, it would be tried again for each of them.
        """
        pending = [(op, rules)]
        while pending:
            op, rules = pending.pop()
            if op.parent is None or not rules:
                continue
            rewrite = self._first(op, rules)
            if rewrite is None:
                continue
            if len(self.statistics.records) >= self.limit:
                raise self.endless(f"{self.limit} rewrites are too many")
            created, values = rewrite
            users = dict.fromkeys(use.operation for value in values for use in value.uses)
            for new in created:
                pending.append((new, self.states.visit(new)))
                if new.regions:
                    pending.extend((inner, self.states.visit(inner)) for inner in ops_inside(new))
            near = (user for user in users if user not in created and len(user.operands) <= _WIDE)
            pending.extend((user, self.states.visit(user)) for user in near)

    def _first(self, op: Operation, rules: Sequence[Rule]) -> tuple[list[Operation], list[SSAValue]] | None:
        """Apply the first rule that matches the op. Return the new ops and the values that replace the old ones."""
        if self.context.budget.exhausted:
            return None
        block = op.parent
        assert block is not None
        builder = Builder(block, before=op, blobs=self.context.blobs)
        for position, rule in enumerate(rules):
            started = time.perf_counter()
            replacement = self._replacement(rule, op, builder)
            self.statistics.record(rule.name, replacement is not None, time.perf_counter() - started)
            if replacement is not None:
                self._note_overlaps(rule, op, rules[position + 1 :])
                return self._replace(rule, replacement, builder, op.location)
        return None

    def _replacement(self, rule: Rule, op: Operation, builder: Builder) -> Replacement | None:
        """The replacement that a rule builds for an op; None if it refuses the op or is skipped, with no ops left.

        Raises:
            BrokenRuleError: the rule is broken, and the context is strict.
        """
        try:
            made = apply(rule, op, builder, self.context)
        except BrokenRuleError as error:
            if self.context.strict:
                raise
            self.statistics.failures.setdefault(rule.name, replace(error.problem, advice=_SKIPPED))
            return None
        if isinstance(made, Refusal):
            if made.exhausted:
                self.statistics.exhausted[rule.name] += 1
            return None
        further = [value for value in made.replaced if value.owner is not op]
        if further and not _move_users(op, further, builder):
            builder.take_back(0)
            return None
        return made

    def _note_overlaps(self, rule: Rule, op: Operation, others: Sequence[Rule]) -> None:
        """Record the overlaps of a declarative rule at the op that it rewrites: other declarative rules of equal
        priority and size that match there as well."""
        for other in others if rule.is_declarative else ():
            if (other.priority, other.size) != (rule.priority, rule.size):
                break
            if other.is_declarative and self._matches(other, op):
                self.statistics.overlaps.append(Overlap(rule.name, other.name, describe(op)))

    def _matches(self, rule: Rule, op: Operation) -> bool:
        try:
            return Matcher(rule.graph, op, fuel=self.context.fuel, assumed=self.context.assumed).run() is not None
        except Exception:  # its condition is broken; this is reported where the rule is tried itself
            return False

    def _replace(
        self, rule: Rule, replacement: Replacement, builder: Builder, location: LocationAttr
    ) -> tuple[list[Operation], list[SSAValue]]:
        new = [value.ssa for value in replacement.values]
        created = set(builder.created)
        self.made_by.update(dict.fromkeys(created, rule.name))
        self.feeds.extend((self.made_by[op], rule.name) for op in replacement.matched if op in self.made_by)
        for was, now in zip(replacement.replaced, new, strict=True):
            if was.name_hint is not None and isinstance(now, OpResult) and now.op in created:
                set_name(now, was.name_hint)
            replace_uses(was, now)
        self._erase_dead(replacement.matched)
        self.statistics.records.append(record := Record(rule.name, location))
        self.context.budget.spend(record)
        return list(builder.created), new

    def _erase_dead(self, matched: Sequence[Operation]) -> None:
        """Erase the matched ops without uses, and their constants."""
        remaining = dict.fromkeys(matched)
        while dead := [op for op in remaining if not any(result.first_use for result in op.results)]:
            for op in dead:
                del remaining[op]
                below = [operand.op for operand in op.operands if isinstance(operand, OpResult)]
                for inner in op.walk():
                    self.states.forget(inner)
                self.made_by.pop(op, None)
                op.detach()
                op.erase()
                for producer in below:
                    if is_constant(producer) and producer.parent is not None and not producer.results[0].first_use:
                        self.states.forget(producer)
                        producer.detach()
                        producer.erase()


def _cycles(feeds: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The shortest circles of rules that feed each other, at most three; each begins with the first name."""
    import networkx as nx  # not needed unless rules are endless, and slow to import

    found = [list(cycle) for cycle in nx.simple_cycles(nx.DiGraph(feeds), length_bound=6)]
    turned = [cycle[cycle.index(min(cycle)) :] + cycle[: cycle.index(min(cycle))] for cycle in found]
    return sorted(turned, key=lambda cycle: (len(cycle), cycle))[:3]


def _move_users(root: Operation, values: Sequence[SSAValue], builder: Builder) -> bool:
    """Move the ops that depend on values behind the new ops in front of `root`. Return False, and move nothing, if a
    new op depends on the values itself."""
    block = root.parent
    assert block is not None
    replaced, made = set(values), set(builder.created)
    late: dict[Operation, None] = {}
    makers = (value.op for value in values if isinstance(value, OpResult) and value.op.parent is block)
    op: Operation | None = in_order([root, *makers])[0]
    while op is not None:  # no earlier op can depend on the values
        operands = (operand for inner in op.walk() for operand in inner.operands)
        if any(operand in replaced or operand.owner in late for operand in operands):
            if op in made or op is root:
                return False
            late[op] = None
        if op is root:
            break
        op = op.next_op
    for moved in late:
        moved.detach()
        block.insert_op_before(moved, root)
    return True
