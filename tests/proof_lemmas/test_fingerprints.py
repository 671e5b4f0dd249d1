"""What the parts of proofs make is what they made before: see `fingerprints`."""

from __future__ import annotations

import pytest

from tests.proof_lemmas import made_inputs, made_programs, made_symbols
from tests.proof_lemmas.fingerprints import TABLES, made, stored

_ = made_inputs, made_programs, made_symbols  # imported for the tables that they register


@pytest.mark.parametrize("name", TABLES)
def test_what_is_made_is_what_was_made(name: str) -> None:
    """If the change is meant, `python -m tests.proof_lemmas.fingerprints` writes the file again."""
    expected, found = stored().get(name, {}), made(name)
    changed = {row: found.get(row) for row in {*expected, *found} if expected.get(row) != found.get(row)}
    assert changed == {}


def test_every_table_is_known() -> None:
    assert stored().keys() == TABLES.keys()
