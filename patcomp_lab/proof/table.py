"""The table of verdicts: what `prove` said of each rule of patcomp's catalog, and of which text of the rule's file.

`patcomp catalog verdicts --update` writes it. Pages and lints read it, because proving all rules takes minutes. A row
is out of date if the file that declares its rule has changed, but for comments and blank lines.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from io import StringIO
from pathlib import Path

import patterns_catalog
from patcomp.patterns import Rule, RuleSet
from patcomp_lab.proof.verdict import Strength, Verdict, prove

FOLDER = Path(patterns_catalog.__file__).parent
PATH = FOLDER / "verdicts.csv"

PROGRAMS = 2
"""With how many programs of each kind the rules of the table are proved, which is some dozens for each rule."""


@dataclass(frozen=True)
class Row:
    """The verdict on one rule."""

    rule: str
    file: str
    fingerprint: str
    """A hash of the file."""
    verdict: str
    """The value of a `Strength`."""
    programs: int
    """How many programs were compared."""
    remark: str
    """The lemmas or the bound of a proof, or why there is none."""

    @property
    def is_proof(self) -> bool:
        return Strength(self.verdict).is_proof


@cache
def read() -> dict[str, Row]:
    """The rows by the names of their rules."""
    with PATH.open(newline="") as file:
        _, *rows = csv.reader(file)
    return {
        name: Row(name, file, hashed, verdict, int(count), remark)
        for name, file, hashed, verdict, count, remark in rows
    }


def text(rows: Iterable[Row]) -> str:
    """The text of a table."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in fields(Row)])
    writer.writerows(astuple(row) for row in rows)
    return out.getvalue()


def file_of(rule: Rule) -> str:
    """The file of a rule of patcomp's catalog, relative to the catalog; empty for a rule from elsewhere."""
    name = rule.source.partition(":")[0]
    return name if name and not Path(name).is_absolute() and (FOLDER / name).is_file() else ""


@cache
def fingerprint(file: str) -> str:
    """A hash of a file of the catalog, without comments on lines of their own and blank lines."""
    lines = [line.rstrip() for line in (FOLDER / file).read_text().splitlines()]
    code = "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))
    return hashlib.blake2b(code.encode(), digest_size=6).hexdigest()


def is_current(row: Row | None, rule: Rule) -> bool:
    """Whether a row is about a rule as it is declared now."""
    return row is not None and row.file == file_of(rule) != "" and row.fingerprint == fingerprint(row.file)


def row_of(rule: Rule, verdict: Verdict) -> Row:
    """The row of a rule of patcomp's catalog."""
    file = file_of(rule)
    return Row(rule.name, file, fingerprint(file), verdict.strength.value, verdict.programs, verdict.reason)


def updated(
    rules: Sequence[Rule], catalog: RuleSet, known: dict[str, Row], proved: Callable[[Row], object]
) -> list[Row]:
    """The rows of all rules: those that are known and current, and new ones for the others.

    Args:
        rules: the rules of patcomp's catalog.
        catalog: the rules that compile programs.
        known: the rows that may be kept, by rule.
        proved: called with each new row.
    """
    from patcomp.evaluate.eager import overload_of

    overload_of("quantized_decomposed.dequantize_per_channel")  # PyTorch registers these ops when one is asked for
    rows = []
    for rule in rules:
        row = known.get(rule.name)
        if row is None or not is_current(row, rule):
            row = row_of(rule, prove(rule, catalog, programs=PROGRAMS))
            proved(row)
        rows.append(row)
    return rows
