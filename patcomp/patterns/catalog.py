"""Sets of rules: collect them from Python modules, filter and combine them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import ModuleType

from patcomp.errors import RuleError, UnknownNameError, near_names
from patcomp.patterns.index import Index
from patcomp.patterns.language import OpNode
from patcomp.patterns.rule import Rule
from patcomp.patterns.stage import Stage


class RuleSet:
    """Rules in declared order, by name. Names are unique.

    Raises:
        RuleError: two rules have one name.
    """

    def __init__(self, rules: Iterable[Rule] = ()):
        self._rules: dict[str, Rule] = {}
        for rule in rules:
            known = self._rules.get(rule.name)
            if known is not None and known is not rule:
                raise RuleError(f"two rules are called {rule.name}: {known.source} and {rule.source}")
            self._rules[rule.name] = rule
        self._stages: dict[Stage | str, RuleSet] = {}

    @cached_property
    def index(self) -> Index:
        """The index of these rules. It is built once, and keeps the states that it has computed."""
        return Index(self)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules.values())

    def __len__(self) -> int:
        return len(self._rules)

    def __contains__(self, name: object) -> bool:
        return name in self._rules

    def __getitem__(self, name: str) -> Rule:
        """The rule of a name.

        Raises:
            UnknownNameError: there is no such rule. The error is also a `KeyError`.
        """
        try:
            return self._rules[name]
        except KeyError:
            raise UnknownNameError(f"no rule is called {name!r}; there are {near_names(name, self._rules)}") from None

    def __repr__(self) -> str:
        return f"<RuleSet of {len(self)}: {', '.join(self._rules)}>"

    def stage(self, name: Stage | str) -> RuleSet:
        """The rules of one stage, the same set on every call."""
        if name not in self._stages:
            self._stages[name] = self.filter(lambda rule: rule.stage == name)
        return self._stages[name]

    def filter(self, keep: Callable[[Rule], bool]) -> RuleSet:
        """The rules for which `keep` is true."""
        return RuleSet(rule for rule in self if keep(rule))

    def without(self, *names: str) -> RuleSet:
        """All rules except the named ones.

        Raises:
            KeyError: a name is not in the set.
        """
        for name in names:
            self[name]
        return self.filter(lambda rule: rule.name not in names)

    def preceded_by(self, other: Iterable[Rule], *, override: bool = False) -> RuleSet:
        """These rules with others in front: of rules with equal priority and size, the others are tried first.

        Args:
            other: rules, a `RuleSet` for instance.
            override: whether a rule of the same name replaces ours.

        Raises:
            RuleError: a name occurs in both, and `override` is false.
        """
        front = RuleSet(other)
        mine = [rule for rule in self if not (override and rule.name in front)]
        return RuleSet([*front, *mine])

    def __add__(self, other: Iterable[Rule]) -> RuleSet:
        return RuleSet([*self, *other])

    def procedural(self) -> list[Rule]:
        """The rules that have a function, without the decompositions."""
        return [rule for rule in self if not rule.is_declarative and rule.stage is not Stage.DECOMPOSE]

    def declarative(self) -> list[Rule]:
        """The rules that have a pattern and a target."""
        return [rule for rule in self if rule.is_declarative]

    def drawn(self) -> list[Rule]:
        """The rules whose tests are drawn from their patterns, in order."""
        return [rule for rule in self if rule.is_drawn]

    def decompositions(self, *, of_complex: bool = False) -> Mapping[str, Rule]:
        """The decompositions by op, either those for complex numbers or the others. If an op has several, the first."""
        found: dict[str, Rule] = {}
        for rule in self:
            if rule.stage is Stage.DECOMPOSE and rule.of_complex == of_complex:
                for op in rule.ops:
                    found.setdefault(op, rule)
        return found

    def _of_imported(self) -> Iterator[Rule]:
        """The rules of the stages that take an imported program."""
        for stage in (Stage.NORMALIZE, Stage.RECOVER, Stage.LOWER):
            yield from self.stage(stage)

    @cached_property
    def procedural_ops(self) -> frozenset[str]:
        """The names of the ops that procedural rules take of an imported program."""
        return frozenset(op for rule in self._of_imported() if not rule.is_declarative for op in rule.ops)

    @cached_property
    def pattern_ops(self) -> frozenset[str]:
        """The names of the ops in the patterns for an imported program."""
        nodes = (node for rule in self._of_imported() if rule.is_declarative for node in rule.graph.nodes)
        return frozenset(node.spec.name for node in nodes if isinstance(node, OpNode))

    def check(self) -> None:
        """Checks that every target op exists.

        Raises:
            RuleError: one does not.
        """
        for rule in self.declarative():
            rule.check_targets()


def collect(*modules: ModuleType) -> RuleSet:
    """The rules that Python modules declare, in declared order, checked.

    A rule that a module imports from another one counts once.

    Raises:
        RuleError: two rules have one name, or a target op does not exist.
        TypeError: an argument is not a module.
    """
    found: dict[int, Rule] = {}
    for module in modules:
        if not isinstance(module, ModuleType):
            raise TypeError(f"collect takes Python modules, got {module!r}")
        for value in vars(module).values():
            for rule in value if isinstance(value, list | tuple) else [value]:
                if isinstance(rule, Rule):
                    found.setdefault(id(rule), rule)
    rules = RuleSet(found.values())
    rules.check()
    return rules
