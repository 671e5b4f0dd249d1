"""Sets of rules that are loaded when a program needs one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, partial

from patcomp.errors import RuleError
from patcomp.patterns.catalog import RuleSet
from patcomp.patterns.rule import Rule
from patcomp.patterns.stage import Stage


class LoadedRuleSet(RuleSet):
    """Rules that are loaded when one is asked for: the target stage runs on every program, and asks for its rules only
    with a target.

    Args:
        load: loads them.
    """

    def __init__(self, load: Callable[[], Iterable[Rule]]):
        self._load = load
        self._stages = {}

    @cached_property
    def _rules(self) -> dict[str, Rule]:  # type: ignore[override]
        return RuleSet(self._load())._rules


class Decompositions:
    """The decompositions of a catalog, which are loaded when one of them is asked for.

    Args:
        load: loads them.
        index: the ops that they take, each with whether its numbers are complex; None if only loading tells.
    """

    def __init__(self, load: Callable[[], RuleSet], index: Iterable[tuple[str, bool]] | None = None):
        self._load, self.index = load, None if index is None else frozenset(index)

    @cached_property
    def rules(self) -> RuleSet:
        """The decompositions."""
        return self._load()

    def by_op(self, of_complex: bool) -> dict[str, Callable[[], Rule]]:
        """How to get the decomposition of each op, without loading what an index tells."""
        index = self.index if self.index is not None else {(op, of_complex) for op in self._of(of_complex)}
        return {op: partial(self._rule, op, of_complex) for op, flag in sorted(index) if flag == of_complex}

    def _of(self, of_complex: bool) -> Mapping[str, Rule]:
        return self.rules.decompositions(of_complex=of_complex)

    def _rule(self, op: str, of_complex: bool) -> Rule:
        return self._of(of_complex)[op]


INDEX = "ops.txt"
"""The file beside a package's `__init__.py` that lists the ops of its decompositions."""


def written(op: str, of_complex: bool) -> str:
    """An op as a line of an index."""
    return f"{op} complex" if of_complex else op


def read_index(text: str) -> set[tuple[str, bool]]:
    """The ops of an index: a line each, `aten.lgamma`, or `aten.lgamma complex` for its calls with complex numbers.

    Raises:
        RuleError: a line is something else.
    """
    found = set()
    for line in text.splitlines():
        op, *words = line.partition("#")[0].split() or [""]
        if words not in ([], ["complex"]):
            raise RuleError(
                f"{INDEX} has the line {line!r}; a line is the name of an op, aten.lgamma, or aten.lgamma complex"
            )
        if op:
            found.add((op, bool(words)))
    return found


def check_index(rules: RuleSet, index: Set[tuple[str, bool]]) -> RuleSet:
    """The rules of a package, checked against its index.

    Raises:
        RuleError: one is no decomposition, or they do not take what the index says.
    """
    if others := [rule for rule in rules if rule.stage is not Stage.DECOMPOSE]:
        raise RuleError(
            f"the rule {others[0].name} ({others[0].source}) is no decomposition, and a package with the file {INDEX} "
            "has only decompositions; name another package or module for other rules"
        )
    found = {(op, rule.of_complex) for rule in rules for op in rule.ops}
    reasons = [
        f"{INDEX} {what} {', '.join(written(*each) for each in sorted(wrong))}"
        for what, wrong in (("lacks", found - index), ("lists what no decomposition takes:", index - found))
        if wrong
    ]
    if reasons:
        raise RuleError("; ".join(reasons))
    return rules


class _ByOp(Mapping[str, Rule]):
    """Decompositions by op, each loaded when it is looked up."""

    def __init__(self, found: Mapping[str, Callable[[], Rule]]):
        self._found = found

    def __getitem__(self, op: str) -> Rule:
        return self._found[op]()

    def __contains__(self, op: object) -> bool:
        return op in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class DeferredRuleSet(RuleSet):
    """Rules that are loaded when they are asked for: decompositions op by op, all others stage by stage.

    Many programs need few decompositions, and to load them takes as long as to convert 100 nodes. The target stage runs
    only with a target.

    Args:
        parts: the decompositions, those of the first part first; called when one is asked for.
        load: the rules of another stage, the same set on every call.
        whole: makes all rules; by default those of the parts, then the others.
    """

    def __init__(
        self,
        parts: Callable[[], Sequence[Decompositions]],
        load: Callable[[Stage], RuleSet],
        whole: Callable[[], RuleSet] | None = None,
    ):
        self._parts_of, self.load, self._whole = parts, load, whole

    @cached_property
    def parts(self) -> Sequence[Decompositions]:
        """The decompositions."""
        return self._parts_of()

    @cached_property
    def rewrites(self) -> RuleSet:
        """The rules of all other stages, stage by stage."""
        return RuleSet(rule for stage in Stage if stage is not Stage.DECOMPOSE for rule in self.load(stage))

    @cached_property
    def _rules(self) -> dict[str, Rule]:  # type: ignore[override]
        if self._whole is not None:
            return self._whole()._rules
        return RuleSet([*(rule for part in self.parts for rule in part.rules), *self.rewrites])._rules

    @cached_property
    def _by_op(self) -> tuple[Mapping[str, Rule], Mapping[str, Rule]]:
        merged: tuple[dict[str, Callable[[], Rule]], dict[str, Callable[[], Rule]]] = ({}, {})
        for found, of_complex in zip(merged, (False, True), strict=True):
            for part in reversed(self.parts):
                found |= part.by_op(of_complex)
        return _ByOp(merged[0]), _ByOp(merged[1])

    def decompositions(self, *, of_complex: bool = False) -> Mapping[str, Rule]:
        return self._by_op[of_complex]

    @cached_property
    def _decompositions(self) -> RuleSet:
        return self.filter(lambda rule: rule.stage is Stage.DECOMPOSE)

    def stage(self, name: Stage | str) -> RuleSet:
        if name == Stage.DECOMPOSE:
            return self._decompositions
        return self.load(Stage(name)) if name in list(Stage) else RuleSet()

    def procedural(self) -> list[Rule]:
        return self.rewrites.procedural()

    def declarative(self) -> list[Rule]:
        return self.rewrites.declarative()
