"""How each op of Core AI is stored in an asset, as its row in `coreai_table` says.

The operands have the same order in both. The stored name follows from the op's name, unless the row has another:
`coreai.abs` is `primitive.abs_v1`, and `coreai.decomposable.broadcasting_add` is `broadcasting_add_v1`. An enumeration
is stored under the name of its property, as an attribute of this name, which has the position of the word.
"""

from __future__ import annotations

from dataclasses import dataclass

from patcomp.ir.coreai_table import COREAIX_ROWS, ROWS
from patcomp.ir.rows import Row


@dataclass(frozen=True)
class StoredForm:
    """How an op is stored."""

    name: str
    """Without the prefix `aicode.`."""
    date: int
    """The version of the format, such as 20250814."""
    property: str = ""
    """The stored name of the op's enumeration, if it has one."""
    kind: str = ""
    """The kind of the attribute of this property."""


def _form(row: Row) -> StoredForm:
    date, *further = row.stored.split()
    dialect, _, plain = row.name.rpartition(".")
    prefix = {"": "primitive.", "coreaix": "ax.", "decomposable": ""}[dialect]
    name = next((word for word in further if "=" not in word), f"{prefix}{plain}_v1")
    declared = next((declared.name for declared in row.properties if declared.words), "")
    default = f"{declared}={declared}_v1" if declared else ""
    key, _, kind = next((word for word in further if "=" in word), default).partition("=")
    return StoredForm(name, int(date), key, kind)


FORMS: dict[str, StoredForm] = {row.op_name: _form(row) for row in (*ROWS, *COREAIX_ROWS) if row.stored}
"""The stored form of each op by its name in the IR."""

OPS_BY_FORM: dict[str, str] = {form.name: op for op, form in FORMS.items()}
"""The op of each stored name."""

DATES: dict[str, int] = {form.name: form.date for form in FORMS.values()}
"""The date of each stored name."""
