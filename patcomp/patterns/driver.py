"""Running rules over a module until none applies.

Users are visited before producers, so that the largest construct is found first; at one op the rules
are tried by priority, then size, then declared order. Ops that a rewrite made, and the users of what it
replaced, are visited at once; full sweeps repeat until one changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from patcomp.errors import RuleError, StageError
from patcomp.ir.builder import Builder
from patcomp.ir.constants import BlobStore, is_constant
from patcomp.ir.infer import InferenceError
from patcomp.ir.locations import describe, describe_location, fused
from patcomp.ir.types import is_dynamic
from patcomp.ir.value import Value, set_name
from patcomp.ir.xdsl import Block, LocationAttr, Operation, OpResult, Region, SSAValue
from patcomp.patterns.catalog import RuleSet
from patcomp.patterns.expressions import Expression, Undefined
from patcomp.patterns.index import Index
from patcomp.patterns.language import Attr, PatternNode
from patcomp.patterns.match import FUEL, Match, Matcher
from patcomp.patterns.procedural import OpRule, OpView, Rejected
from patcomp.patterns.rule import AnyRule, Rule
from patcomp.patterns.statistics import Overlap, Record, Statistics, rule_failure
from patcomp.patterns.targets import TargetCall, TargetResult

Scope = Operation | Block | Region


def run(
    scope: Scope,
    rules: RuleSet | Index,
    *,
    blobs: BlobStore | None = None,
    target: Any = None,
    fuel: int = FUEL,
    max_rewrites: int | None = None,
    max_sweeps: int = 200,
    strict: bool = True,
    assumed: Collection[str] = (),
) -> Statistics:
    """Applies rules everywhere inside a scope until none applies.

    Args:
        scope: an op (a module or a graph), whose regions are rewritten, a region or a block.
        rules: the rules, or an `Index` of them that is used for several runs.
        blobs: the weights of the module, for new large constants.
        target: what procedural rules build with, their second parameter.
        fuel: steps that one attempt of a declarative rule may take.
        max_rewrites: rewrites after which the run is given up; by default 1000 and 20 for each op.
        max_sweeps: sweeps after which it is given up.
        strict: whether an exception of a rule's condition or function ends the run. Otherwise the rule is skipped
            at that op, and `Statistics.failures` has its first exception.
        assumed: the names of the assumptions that hold.

    Raises:
        StageError: the rules do not come to an end; the message names those that keep rewriting.
        RuleError: a rule gave a value of another type than it replaces, or built an invalid op; if `strict`, also
            when a condition or the function of a rule raised.
    """
    driver = _Driver(rules if isinstance(rules, Index) else Index(rules), blobs, target, fuel, strict, assumed)
    limit = max_rewrites
    while True:
        ops = list(walk(scope))
        if limit is None:
            limit = 1000 + 20 * len(ops)
        if not driver.sweep(ops, limit):
            return driver.statistics
        if driver.statistics.sweeps >= max_sweeps:
            raise driver.endless(f"after {max_sweeps} sweeps over the module the rules still rewrite it")


def walk(scope: Scope) -> Iterator[Operation]:
    """The ops inside a scope in order, regions after the op that has them; an op itself is not included."""
    blocks: Iterable[Block] = [scope] if isinstance(scope, Block) else ()
    regions: Iterable[Region] = [scope] if isinstance(scope, Region) else ()
    if isinstance(scope, Operation):
        regions = scope.regions
    for region in regions:
        blocks = [*blocks, *region.blocks]
    for block in blocks:
        for op in block.ops:
            yield op
            if op.regions:
                yield from walk(op)


class _Driver:
    def __init__(
        self, index: Index, blobs: BlobStore | None, target: Any, fuel: int, strict: bool, assumed: Collection[str]
    ):
        self.index, self.blobs, self.target, self.fuel, self.strict = index, blobs, target, fuel, strict
        self.assumed = assumed
        self.statistics = Statistics()
        self.states = index.sweep()
        self.limit = 0

    def sweep(self, ops: Sequence[Operation], limit: int) -> bool:
        """Visits all ops once, last ones first; whether anything was rewritten."""
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

    def endless(self, what: str) -> StageError:
        """The error that names the rules that keep rewriting."""
        last = self.statistics.records[-100:]
        counts = Counter(record.rule for record in last)
        names = ", ".join(f"{name} ({count})" for name, count in counts.most_common())
        places = ", ".join(dict.fromkeys(record.place for record in last[-2:]))
        return StageError(f"{what}; of the last {len(last)} rewrites: {names}; the last ones at {places}")

    def _settle(self, op: Operation, rules: Sequence[AnyRule]) -> None:
        """Rewrites an op, then what the rewrite made and whatever uses it, until nothing more applies."""
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
                    pending.extend((inner, self.states.visit(inner)) for inner in walk(new))
            pending.extend((user, self.states.visit(user)) for user in users if user not in created)

    def _first(self, op: Operation, rules: Sequence[AnyRule]) -> tuple[list[Operation], list[SSAValue]] | None:
        """Applies the first rule that matches; the ops it made and the values it put in place."""
        for position, rule in enumerate(rules):
            started = time.perf_counter()
            if isinstance(rule, Rule):
                rewrite = self._declarative(rule, op, rules[position + 1 :])
            else:
                rewrite = self._procedural(rule, op)
            self.statistics.record(rule.name, rewrite is not None, time.perf_counter() - started)
            if rewrite is not None:
                return rewrite
        return None

    def _declarative(
        self, rule: Rule, op: Operation, others: Sequence[AnyRule]
    ) -> tuple[list[Operation], list[SSAValue]] | None:
        match = self._match(rule, op)
        if match is None:
            return None
        for other in others:
            if (other.priority, other.size) != (rule.priority, rule.size):
                break
            if isinstance(other, Rule) and self._match(other, op) is not None:
                self.statistics.overlaps.append(Overlap(rule.name, other.name, describe(op)))
        block = op.parent
        assert block is not None
        builder = Builder(block, before=op, blobs=self.blobs, location=lambda: fused(rule.name, match.ops))
        types = [value.type for value in match.replaced]
        values = self._built(rule, op, builder, lambda: _Instantiation(rule, match).root(rule.to, types))
        if values is None:
            return None
        return self._replace(rule, match.replaced, values, list(match.ops), builder, op.location)

    def _match(self, rule: Rule, op: Operation) -> Match | None:
        matcher = Matcher(rule.pattern, op, fuel=self.fuel, assumed=self.assumed)
        try:
            match = matcher.run()
        except RuleError:
            raise
        except Exception as error:
            self._failed(rule, op, error)
            return None
        if matcher.exhausted:
            self.statistics.exhausted[rule.name] = self.statistics.exhausted.get(rule.name, 0) + 1
        return match

    def _failed(self, rule: AnyRule, op: Operation, error: Exception) -> None:
        """Notes the exception of a rule, which is skipped at this op.

        Raises:
            RuleError: the run is strict.
        """
        if self.strict:
            raise RuleError(str(rule_failure(rule, op, error))) from error
        advice = "the rule was skipped there, and the conversion went on without it; tell the rule's author"
        self.statistics.failures.setdefault(rule.name, rule_failure(rule, op, error, advice))

    def _built(self, rule: AnyRule, op: Operation, builder: Builder, build: Callable[[], Any]) -> list[Value] | None:
        """What a rule builds; None, and nothing built, when it does not take the op or fails.

        Raises:
            RuleError: the rule built an invalid op, or it failed and the run is strict.
        """
        values: list[Value] | None = None
        try:
            with builder:
                values = build()
        except Rejected:
            pass
        except InferenceError as error:
            raise RuleError(f"rule {rule.name} ({rule.source}) built an invalid op for {op.name}: {error}") from error
        except RuleError:
            raise
        except Exception as error:
            # a rule that computes with dynamic sizes as if they were numbers does not take the op
            if not (isinstance(error, TypeError) and is_dynamic(op)):
                self._failed(rule, op, error)
        finally:
            if values is None:
                erase_created(builder)
        return values

    def _procedural(self, rule: OpRule, op: Operation) -> tuple[list[Operation], list[SSAValue]] | None:
        block = op.parent
        assert block is not None
        if self.target is None:
            raise RuleError(f"rule {rule.name} ({rule.source}) is procedural: run needs target=, what it builds with")
        view = OpView(op, op.arguments_by_name())  # type: ignore[attr-defined]
        builder = Builder(block, before=op, blobs=self.blobs, location=lambda: fused(rule.name, view.matched))
        values = self._built(rule, op, builder, lambda: rule(view, self.target))
        if values is None:
            return None
        if view.replaced and not _move_users(block, op, [old.ssa for old, _ in view.replaced], builder):
            erase_created(builder)
            return None
        old = [*op.results, *(old.ssa for old, _ in view.replaced)]
        new = [*values, *(new for _, new in view.replaced)]
        return self._replace(rule, old, new, view.matched, builder, op.location)

    def _replace(
        self,
        rule: AnyRule,
        old: Sequence[SSAValue],
        values: Sequence[Value],
        matched: list[Operation],
        builder: Builder,
        location: LocationAttr,
    ) -> tuple[list[Operation], list[SSAValue]]:
        new = [value.ssa for value in values]
        if len(old) != len(new):
            erase_created(builder)
            raise RuleError(
                f"rule {rule.name} ({rule.source}) gave {len(new)} values for {len(old)} results "
                f"at {describe_location(location)}"
            )
        for was, now in zip(old, new, strict=True):
            if was.type != now.type:
                erase_created(builder)
                raise RuleError(
                    f"rule {rule.name} ({rule.source}) gave a value of type {now.type} for one of type {was.type} "
                    f"at {describe_location(location)}"
                )
        created = set(builder.created)
        for was, now in zip(old, new, strict=True):
            if was.name_hint is not None and isinstance(now, OpResult) and now.op in created:
                set_name(now, was.name_hint)
            was.replace_all_uses_with(now)
        self._erase_dead(matched)
        self.statistics.records.append(Record(rule.name, location))
        return list(builder.created), new

    def _erase_dead(self, matched: list[Operation]) -> None:
        """Erases the matched ops that nothing uses any more, and their constants."""
        remaining = dict.fromkeys(matched)
        while dead := [op for op in remaining if not any(result.first_use for result in op.results)]:
            for op in dead:
                del remaining[op]
                below = [operand.op for operand in op.operands if isinstance(operand, OpResult)]
                for inner in op.walk():
                    self.states.forget(inner)
                op.detach()
                op.erase()
                for producer in below:
                    if is_constant(producer) and producer.parent is not None and not producer.results[0].first_use:
                        self.states.forget(producer)
                        producer.detach()
                        producer.erase()


def _move_users(block: Block, root: Operation, values: Sequence[SSAValue], builder: Builder) -> bool:
    """Moves what depends on values behind the ops that were made before `root`; whether none of those depends on it."""
    replaced, made = set(values), set(builder.created)
    late: dict[Operation, None] = {}
    for op in block.ops:
        operands = (operand for inner in op.walk() for operand in inner.operands)
        if any(operand in replaced or operand.owner in late for operand in operands):
            if op in made or op is root:
                return False
            late[op] = None
        if op is root:
            break
    for op in late:
        op.detach()
        block.insert_op_before(op, root)
    return True


def erase_created(builder: Builder) -> None:
    """Takes back everything that a builder inserted."""
    for op in reversed(builder.created):
        op.detach()
        op.erase()
    builder.created.clear()


class _Instantiation:
    """Builds the target of a match; a part that is used twice is built once."""

    def __init__(self, rule: Rule, match: Match):
        self.rule, self.match = rule, match
        self.built: dict[int, Any] = {}

    def root(self, target: Any, types: Sequence[Any]) -> list[Value]:
        """The replacement values."""
        if isinstance(target, list | tuple):
            made: Any = [self.value(item, None if len(types) != 1 else types) for item in target]
        else:
            made = self.value(target, types)
        return list(made) if isinstance(made, list | tuple) else [made]

    def value(self, part: Any, types: Sequence[Any] | None = None) -> Any:
        """A part of the target as a value, or the attribute that it stands for."""
        if isinstance(part, TargetCall):
            if id(part) not in self.built:
                arguments = [self.value(item) for item in part.arguments]
                keywords = {name: self.value(item) for name, item in part.keywords.items()}
                self.built[id(part)] = part.view.build(part.name, arguments, keywords, types)
            return self.built[id(part)]
        if isinstance(part, TargetResult):
            return self.value(part.call)[part.index]
        if isinstance(part, PatternNode):
            return self.match.value_of(part)
        if isinstance(part, Attr) and id(part) not in self.match.attributes:
            return None  # its alternative was not taken
        if isinstance(part, Expression):
            return self._attribute(part)
        if isinstance(part, list | tuple):
            return type(part)(self.value(item) for item in part)
        if isinstance(part, dict):
            return {name: self.value(item) for name, item in part.items()}
        return part

    def _attribute(self, part: Expression) -> Any:
        rule = self.rule
        try:
            return part.evaluate(self.match)
        except Undefined as reason:
            raise RuleError(
                f"rule {rule.name} ({rule.source}): the target's {part.text} has no value: {reason}"
            ) from None
