"""The composites of the catalog: what each computes, how it is declared, and which rules recover it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from patcomp.commands.tables import escaped, markdown_table
from patcomp.ir.composite import Composite
from patcomp.patterns import Rule, Stage
from patcomp.patterns.formula import Formula
from patcomp_lab.commands.pages import PageEntry, Section, pages


def recovered_by(rules: Iterable[Rule]) -> dict[Composite, list[Rule]]:
    """The composites that rules make, by name, with the rules; read from targets and code without running them."""
    recovering = [rule for rule in rules if rule.stage is Stage.RECOVER]
    takes = {op: rule for rule in recovering if not rule.is_declarative for op in rule.ops}
    found: dict[Composite, list[Rule]] = {}
    for rule in recovering:
        made = set(_Reader(takes).made_by(rule))
        # A function may serve several rules, each named after its composite.
        for item in {item for item in made if item.name == rule.name} or made:
            found.setdefault(item, []).append(rule)
    return dict(sorted(found.items(), key=lambda item: item[0].name))


class _Reader:
    """Finds the composites that a rule makes, in its target or in the code of its functions.

    A rule may instead build an ATen op that another rule takes.
    """

    def __init__(self, takes: Mapping[str, Rule]):
        self.takes = takes
        self.seen: set[int] = set()

    def made_by(self, rule: Rule) -> Iterator[Composite]:
        for function in rule.function.written if isinstance(rule.function, Formula) else (rule.function,):
            yield from self.mentioned(function)
        for call in rule.target_calls():
            yield from self.mentioned(call.function)

    def mentioned(self, item: Any) -> Iterator[Composite]:
        """The item if it is a composite; otherwise the composites in the code of a function or class of the module."""
        if id(item) in self.seen:
            return
        self.seen.add(id(item))
        if isinstance(item, Composite):
            yield item
        elif inspect.isclass(item):
            for member in vars(item).values():
                if inspect.isfunction(member):
                    yield from self.mentioned(member)
        elif inspect.isfunction(item):
            variables = inspect.getclosurevars(item)
            for value in (*variables.globals.values(), *variables.nonlocals.values()):
                module = str(getattr(value, "__module__", None))
                is_near = module == item.__module__ or module.startswith("patterns_catalog.composites.")
                if isinstance(value, Composite) or is_near:
                    yield from self.mentioned(value)
            for constant in item.__code__.co_consts:
                if isinstance(constant, str) and constant in self.takes:
                    yield from self.made_by(self.takes[constant])


def composites_pages(rules: Iterable[Rule]) -> dict[str, str]:
    """The page docs/generated/composites.md, with a section for each composite."""
    opening = [
        "Made by `patcomp catalog composites --markdown docs/generated`. Which",
        "models have which is in [Composites recovered from unmodified models](recovered-composites.md).",
    ]
    entries = []
    for item, recovering in recovered_by(rules).items():
        attributes = [*item.attributes, f"version = {item.version}"]
        lines = ["", f"## {item.name}", "", _paragraphs(item.doc), ""]
        lines += [f"* inputs: {_listed(item.inputs)}", f"* attributes: {_listed(attributes)}"]
        lines += [f"* outputs: {_listed(item.outputs)}", ""]
        cells = [(rule.name, f"`{rule.source.partition(':')[0]}`", _origin(rule)) for rule in recovering]
        entries.append(PageEntry(item.name, [*lines, *markdown_table(["recovered by", "in", "from"], cells)]))
    return pages("composites", "The composites", opening, [Section("", "Composites", "composite", (), entries)])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _origin(rule: Rule) -> str:
    """What a rule finds: the first paragraph of its description, or its ops."""
    return _paragraphs(rule.doc.partition("\n\n")[0]) or ("" if rule.is_declarative else _listed(rule.ops))


def _paragraphs(text: str) -> str:
    """Text with one line for each paragraph."""
    return escaped("\n\n".join(" ".join(part.split()) for part in text.split("\n\n")))
