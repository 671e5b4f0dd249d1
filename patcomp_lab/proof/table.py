"""Tables of verdicts: what `prove` said of each rule of a catalog that is a package, and of which text of the rule's
file.

`patcomp catalog verdicts --update` writes them. Pages and lints read them, because proving all rules takes minutes. A
rule's table is beside the `__init__.py` of the package that declares it. A row is out of date if the file of its rule
has changed, but for comments and blank lines.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cache
from io import StringIO
from pathlib import Path

from patcomp.patterns import Rule, RuleSet
from patcomp_lab.proof.verdict import Strength, Verdict, prove_rule

TABLE_NAME = "verdicts.csv"
"""The name of the file of a table."""

TABLE_PROGRAMS = 2
"""With how many programs of each kind the rules of the table are proved, which is some dozens for each rule."""


@dataclass(frozen=True)
class VerdictRow:
    """The verdict on one rule."""

    rule: str
    file: str
    """Its file, relative to the folder of the table."""
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


def folder_of(rule: Rule) -> Path | None:
    """The folder of a rule's table: of the outermost package that its file is in; None for a rule of no package."""
    folder = None
    for parent in Path(rule.file).parents if rule.file else ():
        if not (parent / "__init__.py").is_file():
            break
        folder = parent
    return folder


def row_of(rule: Rule) -> VerdictRow | None:
    """The row of a rule in the table of its package, or None."""
    folder = folder_of(rule)
    return None if folder is None else read_table(folder).get(rule.name)


@cache
def read_table(folder: Path) -> dict[str, VerdictRow]:
    """The rows of the table in a folder by the names of their rules; none if there is no table."""
    path = folder / TABLE_NAME
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        _, *rows = csv.reader(file)
    return {
        name: VerdictRow(name, file, hashed, verdict, int(count), remark)
        for name, file, hashed, verdict, count, remark in rows
    }


def write(folder: Path, rows: Iterable[VerdictRow]) -> None:
    """Write the table of a folder."""
    (folder / TABLE_NAME).write_text(table_text(rows))
    read_table.cache_clear()


def table_text(rows: Iterable[VerdictRow]) -> str:
    """The text of a table."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in fields(VerdictRow)])
    writer.writerows(astuple(row) for row in rows)
    return out.getvalue()


@cache
def fingerprint(path: Path) -> str:
    """A hash of a file, without comments on lines of their own and blank lines."""
    lines = [line.rstrip() for line in path.read_text().splitlines()]
    code = "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))
    return hashlib.blake2b(code.encode(), digest_size=6).hexdigest()


def is_current(row: VerdictRow, rule: Rule) -> bool:
    """Whether a row of the table of a rule's package is about the rule as it is declared now."""
    return row == replace(row, file=_file_of(rule), fingerprint=fingerprint(Path(rule.file)))


def new_row(rule: Rule, verdict: Verdict) -> VerdictRow:
    """The row of a rule of a package."""
    hashed = fingerprint(Path(rule.file))
    return VerdictRow(rule.name, _file_of(rule), hashed, verdict.strength.value, verdict.programs, verdict.reason)


def _file_of(rule: Rule) -> str:
    folder = folder_of(rule)
    assert folder is not None
    return Path(rule.file).relative_to(folder).as_posix()


def updated(
    rules: Sequence[Rule], catalog: RuleSet, known: dict[str, VerdictRow], proved: Callable[[VerdictRow], object]
) -> list[VerdictRow]:
    """The rows of all rules: those that are known and current, and new ones for the others.

    Args:
        rules: the rules of a package.
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
            row = new_row(rule, prove_rule(rule, catalog, programs=TABLE_PROGRAMS))
            proved(row)
        rows.append(row)
    return rows
