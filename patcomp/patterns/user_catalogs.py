"""Catalogs of users: modules, packages and sets of rules. Their rules go in front of patcomp's own rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

from patcomp.errors import RuleError
from patcomp.patterns.catalog import RuleSet, collect
from patcomp.patterns.deferred import Decompositions, DeferredRuleSet
from patcomp.patterns.rule import Rule
from patcomp.targets import TARGETS, Target

Catalog = ModuleType | RuleSet
"""A module of rules, a package with all its modules, or a set of rules."""


def rules_of(catalog: Catalog) -> RuleSet:
    """The rules of a catalog.

    Raises:
        TypeError: the argument is no catalog.
        RuleError: two of its rules have one name, or a target op does not exist.
    """
    if isinstance(catalog, RuleSet):
        catalog.check()
        return catalog
    if not isinstance(catalog, ModuleType):
        raise TypeError(f"a catalog is a module, a package or a RuleSet, not {catalog!r}")
    return collect(*_modules_of(catalog))


def _modules_of(catalog: ModuleType) -> list[ModuleType]:
    """A module, or a package with all its modules."""
    inside = walk_packages(getattr(catalog, "__path__", ()), f"{catalog.__name__}.")
    return [catalog, *(import_module(name) for name in sorted(module.name for module in inside))]


def targets_of(catalogs: Iterable[Catalog]) -> dict[str, Target]:
    """The targets declared in the modules of catalogs, by name. A `Target` with the name of a target of patcomp does
    not count.

    Raises:
        RuleError: two of them have one name.
    """
    found: dict[str, Target] = {}
    for module in (each for catalog in catalogs if isinstance(catalog, ModuleType) for each in _modules_of(catalog)):
        for value in vars(module).values():
            if not isinstance(value, Target) or value.name in TARGETS:  # a variant of one of patcomp's has its name
                continue
            if found.setdefault(value.name, value) != value:
                raise RuleError(f"{module.__name__} declares a second target {value.name!r}; give it another name")
    return found


def module_of(function: Any) -> str:
    """The name of a function's module. For a partial function, this is the module of the inner function."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__module__", ""))


def listed(catalogs: Iterable[Catalog]) -> list[Catalog]:
    """Several catalogs as a list.

    Raises:
        TypeError: the argument is no list of catalogs, but a single catalog, for instance.
    """
    if isinstance(catalogs, str | ModuleType | RuleSet) or not isinstance(catalogs, Iterable):
        raise TypeError(f"catalog takes a list of modules, packages and RuleSets, got {catalogs!r}")
    return list(catalogs)


def in_front(own: RuleSet, catalogs: Sequence[RuleSet | Decompositions], without: Iterable[str] = ()) -> RuleSet:
    """patcomp's own rules with those of users in front of them. Equal arguments return the same set.

    Args:
        own: patcomp's rules. A user's rule replaces the rule of the same name.
        catalogs: users' rules; the first catalog is tried first. If all of them are decompositions that are not loaded
            yet, they stay so, and the errors come when one is asked for.
        without: the names of rules to leave out.

    Raises:
        RuleError: two users' rules have one name, or a user's rule has the name of a rule of patcomp with another
        purpose. ValueError: a name in `without` is not the name of a rule.
    """
    if isinstance(without, str):
        raise TypeError(f"without takes a list of names, got the string {without!r}")
    names = tuple(without)
    deferred = tuple(catalog for catalog in catalogs if isinstance(catalog, Decompositions))
    if isinstance(own, DeferredRuleSet) and not names and not any(set(catalogs).difference(deferred)):
        return _deferred(own, deferred) if deferred else own
    users = RuleSet(
        rule for catalog in catalogs for rule in (catalog.rules if isinstance(catalog, Decompositions) else catalog)
    )
    for rule in users:
        if rule.name in own:
            _check_replacement(rule, own[rule.name])
    return _in_front(tuple(own), tuple(users), names) if users or names else own


@lru_cache(maxsize=16)
def _deferred(own: DeferredRuleSet, users: tuple[Decompositions, ...]) -> DeferredRuleSet:
    """The combined rules, whose decompositions are loaded when one is asked for, those of users all at once."""

    def whole() -> RuleSet:
        return in_front(own, [each.rules for each in users])

    def checked() -> RuleSet:
        whole()
        return RuleSet(rule for each in users for rule in each.rules)

    together = Decompositions(checked, (op for each in users for op in each.index or ()))
    return DeferredRuleSet(lambda: [together, *own.parts], own.load, whole)


def _replacing(rule: Rule, own: RuleSet) -> Rule:
    """A user's rule. If it replaces a rule of patcomp and names no targets, it gets the targets of the replaced
    rule."""
    if rule.targets or rule.name not in own or not (targets := own[rule.name].targets):
        return rule
    return replace(rule, targets=targets)


@lru_cache(maxsize=16)
def _in_front(own: tuple[Rule, ...], users: tuple[Rule, ...], without: tuple[str, ...]) -> RuleSet:
    """The combined rules. The result is cached, because the indexes of its stages cost more than a small conversion."""
    replaced = RuleSet(own)
    rules = replaced.preceded_by([_replacing(rule, replaced) for rule in users], override=True)
    for name in without:
        try:
            rules[name]
        except KeyError as error:
            raise ValueError(error.args[0]) from None
    return rules.without(*without)


def _check_replacement(rule: Rule, own: Rule) -> None:
    """Check that a rule can replace patcomp's rule of the same name. If not, the equal name is probably an accident.

    Raises:
        RuleError: the rule has another stage, or lacks an op.
    """
    reason = ""
    if rule.stage != own.stage:
        reason = f"that one belongs to the stage {own.stage}, and this one to {rule.stage}"
    elif not rule.is_declarative and not own.is_declarative and (missing := set(own.ops) - set(rule.ops)):
        reason = f"this one does not take {', '.join(sorted(missing))}, as that one does"
    if reason:
        raise RuleError(
            f"rule {rule.name} ({rule.source}) has the name of one of patcomp's ({own.source}) and would replace it, "
            f"but {reason}; give it another name, name=..."
        )
