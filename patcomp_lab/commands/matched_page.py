"""The pages of the ops in the patterns of rules: `a.NAME(...)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from patcomp.commands.common import counted
from patcomp.commands.tables import escaped
from patcomp.ir import aten
from patcomp.ir.coreai_table import COREAIX_ROWS, ROWS
from patcomp.ir.namespaces import OpSpec
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import Rule
from patcomp.patterns.expressions import Expression
from patcomp.patterns.language import Attr, Capture, Number, OpNode, PatternNode, shown
from patcomp_lab.commands.pages import PageEntry, Section, pages


def matched_pages(rules: Iterable[Rule]) -> dict[str, str]:
    """The pages docs/generated/pattern-ops.md and those that it lists."""
    found = uses_of_ops(rules)
    opening = [
        "Made by `patcomp catalog pattern-ops --markdown docs/generated` from the patterns of the catalog.",
        "`a.NAME(...)` in a pattern is an op of PyTorch, a composite that another rule has recovered or, in the",
        "optimize stage, an op of Core AI. A pattern can name any op; these are the ones that the catalog's patterns",
        "name, each as one of them writes it. `...` stands for another part of the pattern. Functions of one op, such",
        "as lowerings, have no pattern; [Supported ops](supported-ops.md) lists their ops.",
    ]
    sections = []
    for dialect, heading in (("aten", "Ops of PyTorch"), ("composite", "Composites"), ("coreai", "Ops of Core AI")):
        names = sorted(name for name in found if name.partition(".")[0] == dialect)
        entries = [PageEntry(name, _entry(name, *found[name])) for name in names]
        sections.append(Section(dialect, f"{heading} in patterns", "op", (), entries))
    return pages("pattern-ops", "Ops in patterns", opening, sections)


def _entry(name: str, spec: OpSpec, uses: list[PatternUse]) -> list[str]:
    """What the page says of an op."""
    matching = list(dict.fromkeys(f"{rule.name} ({rule.stage})" for _, rule in uses))
    call = pattern_call(uses[0][0])
    return ["", f"## {name}", "", *_described(spec), "", "```text", call, "```", "", f"In {_listed(matching)}."]


PatternUse = tuple[OpNode, Rule]
"""An op of a pattern, and the rule with the pattern."""


def uses_of_ops(rules: Iterable[Rule]) -> dict[str, tuple[OpSpec, list[PatternUse]]]:
    """The uses of each op, the shortest first."""
    found: dict[str, tuple[OpSpec, list[PatternUse]]] = {}
    for rule in rules:
        for node in rule.pattern.nodes if rule.pattern is not None else ():
            if isinstance(node, OpNode):
                found.setdefault(node.spec.name, (node.spec, []))[1].append((node, rule))
    return {
        name: (spec, sorted(uses, key=lambda use: len(pattern_call(use[0])))) for name, (spec, uses) in found.items()
    }


def pattern_call(node: OpNode) -> str:
    """An op as a pattern writes it; its operands are captures, numbers or `...`."""
    arguments = []
    for name, value in node.arguments.items():
        argument = node.spec.argument(name)
        keyword = argument.kind in ("attribute", "mixed", "element type")
        arguments.append(f"{name}={_written(value)}" if keyword else _written(value))
    short = node.spec.name.partition(".")[2]
    if node.spec.composite is None and node.spec.name.startswith("coreai."):
        return f"a.{short.rpartition('.')[2]}({', '.join(arguments)})"
    return f'a.op("{short}", {", ".join(arguments)})' if "." in short else f"a.{short}({', '.join(arguments)})"


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, PatternNode):
        return shown(value) if isinstance(value, Capture | Number) else "ANY" if str(value) == "ANY" else "..."
    if isinstance(value, Attr | Expression):
        return value.text
    return str(value) if isinstance(value, Attribute) else repr(value)


def _described(spec: OpSpec) -> list[str]:
    """What an op is: PyTorch's schema, the formula of a composite, or the row of a Core AI op."""
    if spec.composite is not None:
        return [escaped(" ".join(spec.composite.doc.partition("\n\n")[0].split()))]
    schema = aten.schema_of(spec.name)
    if schema is not None:
        return [f"`{schema.text}`"]
    row = next(row for row in (*ROWS, *COREAIX_ROWS) if row.op_name == spec.name)
    return [escaped(f"{row.doc[:1].upper()}{row.doc[1:]}.")]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{counted(len(names), 'rule')}: {escaped(', '.join(names[:8]))}{more}"
