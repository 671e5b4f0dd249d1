"""Names of strangers, printed: a terminal obeys none of their characters, and a browser none of their tags."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from patcomp.commands.common import say, tell
from patcomp.commands.tables import print_table
from patcomp.errors import ConversionWarning, PatcompError, Problem, UnknownNameError, UnsupportedError, printable
from patcomp.ir.tables import text_of
from patcomp.program import notebook
from patcomp.report.page import difference_page
from patcomp_models.commands.bundles import inspect_bundle
from tests.emit.assets import adds

BAD = "w\x1b]0;owned\x07\u202e\r\x9b31m"
SEEN = r"w\x1b]0;owned\x07\u202e\r\x9b31m"


@pytest.mark.parametrize(
    ("text", "shown"),
    [(BAD, SEEN), ("a\n\tb é 名前 😀", "a\n\tb é 名前 😀"), ("\ud800\0\u200b", r"\ud800\x00\u200b"), ("", "")],
)
def test_characters_that_a_terminal_obeys_are_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_errors_problems_and_warnings_are_printable() -> None:
    problem = Problem(BAD, node=BAD, advice=BAD)
    for made in (
        PatcompError(BAD), UnknownNameError(BAD), problem, ConversionWarning(BAD), UnsupportedError(BAD, [problem]),
    ):  # fmt: skip
        assert SEEN in str(made)
        assert "\x1b" not in str(made)
    assert "\x1b" not in UnsupportedError(BAD, [problem]).without_code()
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn(BAD, ConversionWarning, stacklevel=1)
    assert str(caught[0].message) == SEEN


def test_the_command_prints_what_can_be_seen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from rich.table import Table

    table = Table("name")
    table.add_row(BAD)
    say(BAD), tell(BAD), print_table([BAD], [(BAD,)])
    assert "\x1b" not in text_of(table)
    (tmp_path / "metadata.json").write_text(json.dumps({"kind": BAD, "notes": [BAD], "assets": {BAD: BAD}}))
    with pytest.raises(PatcompError, match="assets") as raised:
        inspect_bundle(tmp_path, as_json=False)
    assert "\x1b" not in str(raised.value)
    (tmp_path / "metadata.json").write_text(json.dumps({"kind": BAD, "notes": [BAD], "name": BAD}))
    inspect_bundle(tmp_path, as_json=False)
    printed = "".join(capsys.readouterr())
    assert printed.count(SEEN) >= 5
    assert printed.count(r"w\x1b]0;owned") >= 7  # rich drops the other control characters from cells
    assert all(each.isprintable() or each == "\n" for each in printed)


def test_names_are_no_tags() -> None:
    module = adds(np.ones(2, np.float32))
    tag = "<img src=x>"
    page = difference_page((tag, "b"), (module, module), ({}, {}))
    assert tag not in page
    assert "&lt;img src=x&gt;" in page
    assert tag not in notebook._table([tag], [[tag]])
