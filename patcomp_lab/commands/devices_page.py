"""The pages of what is publicly known of devices: `patcomp/devices/known`, a table a subject.

python -m patcomp_lab.commands.devices_page docs/generated
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from patcomp.commands.tables import escaped, markdown_table
from patcomp.devices import Fact
from patcomp.families import modules_in
from patcomp_lab.commands.pages import Section, page_rows, pages, write_pages

_HEADINGS = ("fact", "construct", "units", "what happens", "seen on", "what patcomp does", "what to do", "source")


def devices_pages() -> dict[str, str]:
    """The pages by the names of their files."""
    tables = modules_in("patcomp.devices.known")
    count = sum(len(table.FACTS) for table in tables)
    opening = [
        "Made by `python -m patcomp_lab.commands.devices_page docs/generated` from the tables in",
        f"`patcomp/devices/known`: {count} facts, each with its public source. Nothing here was measured by us: no",
        "device was at hand. [What devices do](../devices.md) says how patcomp uses them.",
    ]
    return pages("device-facts", "Device facts", opening, [_section(table) for table in tables])


def _section(table: ModuleType) -> Section:
    name, facts = table.__name__.rpartition(".")[2], table.FACTS
    doc = (table.__doc__ or "").split(".")[0]
    head, entries = page_rows(markdown_table(_HEADINGS, map(_row, facts)), [fact.name for fact in facts])
    return Section(name, doc, "fact", head, entries)


def _row(fact: Fact) -> list[str]:
    units = ", ".join(unit.replace("_", " ") for unit in fact.units)
    healed = f"; healed: {fact.healed}" if fact.healed else ""
    cells = [fact.name, fact.construct, units, f"{fact.severity}: {fact.says}", f"{fact.seen}{healed}"]
    sources = " ".join(f"[{number}]({address})" for number, address in enumerate(fact.source, 1))
    return [*map(escaped, (*cells, _done(fact), fact.advice)), sources]


def _done(fact: Fact) -> str:
    """What patcomp does about a fact."""
    said = [f"rule {rule!r}" for rule in fact.rules]
    if fact.avoided:
        said.append(fact.avoided)
    if fact.warned:
        said.append("a conversion warns")
    elif fact.audited or fact.finding:
        said.append("an audit lists it")
    if fact.quiet:
        said.append(f"a conversion is quiet: {fact.quiet}")
    return "; ".join(said)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]), devices_pages())
