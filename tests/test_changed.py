"""Which tests a change selects for `make check`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.helpers.changed import ROOT, selected


class Item:
    """A collected test, of a rule from `source` if it is generated."""

    def __init__(self, path: str, source: str = ""):
        self.path, self.nodeid = ROOT / path, f"{path}::test"
        self.callspec = SimpleNamespace(params={"rule": SimpleNamespace(source=source)})


COMMAND, ROPE, EXTENTS = map(Item, ("tests/test_cli.py", "tests/catalog/test_rope.py", "tests/ir/test_extents.py"))
RULE = Item("tests/catalog/test_rules.py", "recover/rope.py:12")
OTHER_RULE = Item("tests/catalog/test_rules.py", "lower/rope.py:12")
MODEL = Item("tests/networks/test_models.py")
MODEL.nodeid += "[bert]"


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("tests/test_cli.py", {COMMAND}),
        ("patterns_catalog/recover/rope.py", {ROPE, RULE}),
        ("patcomp/ir/extents.py", {EXTENTS}),
        ("README.md", set()),
    ],
)
def test_a_change_selects_its_tests(file: str, wanted: set[Item]) -> None:
    items = [COMMAND, ROPE, EXTENTS, RULE, OTHER_RULE, MODEL]
    assert selected(items, {file}) == {MODEL, *wanted}  # type: ignore[arg-type]
