"""The tables of verdicts: they have every rule, as the rule is declared now, and say what proofs say."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import patterns_catalog
import special_functions_catalog.explained
from patcomp.cli import main
from patcomp.patterns import Rule
from patcomp_lab.proof import table
from patcomp_lab.proof.lint import lint
from patcomp_lab.proof.verdict import Strength, prove_rule
from patterns_catalog import all_rules, default_rules
from patterns_catalog.explained import EXPLAINED
from tests.helpers.torchvision_ops import know_the_shape_of_nms

RULES = list(all_rules())
ROWS = {rule.name: row for rule in RULES if (row := table.row_of(rule)) is not None}
FOLDER = Path(patterns_catalog.__file__).parent
UPDATE = "patcomp catalog verdicts --update, then patcomp catalog list --markdown docs/generated"


def test_the_table_has_every_rule_as_it_is_now() -> None:
    rows = {rule: table.row_of(rule) for rule in RULES}
    missing = [rule.name for rule, row in rows.items() if row is None]
    assert not missing, UPDATE
    old = sorted({rule.source for rule, row in rows.items() if row is not None and not table.is_current(row, rule)})
    assert not old, f"these files changed since their rules were proved: {UPDATE}"
    packages = {folder for rule in RULES if (folder := table.folder_of(rule)) is not None}
    assert {folder.name for folder in packages} == {"patterns_catalog", "special_functions_catalog"}
    assert sum(len(table.read_table(folder)) for folder in packages) == len(RULES), UPDATE


def test_most_rules_are_proved() -> None:
    """The other rules are explained."""
    rows = ROWS
    shares = {stage: Counter(rows[rule.name].is_proof for rule in RULES if rule.stage == stage) for stage in LEAST}
    for stage, least in LEAST.items():
        assert shares[stage][True] >= least * shares[stage].total(), stage
    open_rules = {name for name, row in rows.items() if not row.is_proof}
    explained = [*EXPLAINED, *special_functions_catalog.explained.EXPLAINED]
    assert open_rules == {key.partition(": ")[2] for key in explained if key.startswith("not proved: ")}
    assert not [row.rule for row in rows.values() if row.verdict == Strength.REFUTED.value]
    approximations = {row.rule for row in rows.values() if row.verdict == Strength.APPROXIMATION.value}
    assert approximations == {rule.name for rule in RULES if rule.approximation is not None}


LEAST = {"optimize": 0.95, "normalize": 0.95, "recover": 0.9, "target": 0.8, "lower": 0.8, "decompose": 0.8}


@pytest.mark.parametrize("name", ["times_one", "transpose_of_transpose", "decompose lcm"])
def test_a_proof_says_what_the_table_says(name: str) -> None:
    verdict = prove_rule(all_rules()[name], default_rules(), programs=table.TABLE_PROGRAMS)
    row = ROWS[name]
    assert (verdict.strength.value, verdict.reason) == (row.verdict, row.remark)


@pytest.fixture(scope="module")
def libraries() -> None:
    """The ops of libraries, as far as they are here."""
    know_the_shape_of_nms()
    pytest.importorskip("transformers.integrations.moe")


@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_proof_says_what_the_table_says(rule: Rule) -> None:
    verdict = prove_rule(rule, default_rules(), programs=table.TABLE_PROGRAMS)
    assert verdict.strength.value == ROWS[rule.name].verdict


def test_the_text_of_a_table() -> None:
    rows = list(table.read_table(FOLDER).values())
    assert table.table_text(rows) == (FOLDER / table.TABLE_NAME).read_text()
    some = [replace(rows[0], rule='a, "b"', remark="c\nd")]
    assert len(table.table_text(some).splitlines()) == 3


def test_a_rule_is_proved_again_after_its_file_changed(tmp_path: Path) -> None:
    text = (FOLDER / "optimize" / "algebra.py").read_text()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    file = tmp_path / "mine" / "algebra.py"
    file.write_text(text)
    own = default_rules()["times_one"]
    rule = replace(own, file=str(file))
    row = replace(ROWS["times_one"], file="algebra.py")
    assert table.folder_of(rule) == file.parent
    assert table.row_of(rule) is None  # its package has no table yet
    table.write(file.parent, [row])
    try:
        assert table.row_of(rule) == row
        assert table.is_current(row, rule)
        file.write_text("# a comment\n\n" + text)
        table.fingerprint.cache_clear()
        assert table.is_current(row, rule)
        file.write_text(text.replace("x * 1", "x * 2"))
        table.fingerprint.cache_clear()
        assert not table.is_current(row, rule)
        assert not table.is_current(replace(row, file="other.py"), replace(rule, file=own.file))
        (finding,) = [each for each in lint([rule], default_rules(), {rule.name}, "") if each.kind == "not proved"]
        assert "changed since its proof" in finding.message
        made: list[table.VerdictRow] = []
        (new,) = table.updated([rule], default_rules(), {rule.name: row}, made.append)
        assert made == [new]
        assert (new.verdict, new.remark) == (row.verdict, row.remark)
        assert table.updated([rule], default_rules(), {rule.name: new}, made.append) == [new]
        assert len(made) == 1
    finally:
        table.fingerprint.cache_clear()
        table.read_table.cache_clear()


def test_rules_of_no_package_have_no_row(tmp_path: Path) -> None:
    rule = default_rules()["times_one"]
    for file in ("", "<stdin>", str(tmp_path / "mine.py")):
        assert table.folder_of(replace(rule, file=file)) is None
        assert table.row_of(replace(rule, file=file)) is None


COMMANDS = """
from patcomp.authoring import CoreaiSource, CoreaiTarget
from patcomp.ir.namespaces import coreai_namespace
from patcomp.patterns import Capture, Rewrite, rule


@rule(stage="optimize", source=coreai_namespace, into=coreai_namespace, example={"x": "2x3xf32"})
def abs_of_abs_of_abs(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "abs(abs(abs(x))) -> abs(x)"
    y = a.abs(a.abs(a.abs(x)))
    return Rewrite(y, to=c.abs(x))
"""


def test_the_commands_prove_and_check_a_users_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the rules in the modules of a package."""
    package = tmp_path / "their_catalog"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "absolutes.py").write_text(COMMANDS)
    (tmp_path / "one_file.py").write_text(COMMANDS.replace("of_abs", ""))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["patcomp", *arguments])
        try:
            main()
        except SystemExit as ending:
            return int(ending.code or 0), "".join(capsys.readouterr())
        return 0, "".join(capsys.readouterr())

    code, out = run("catalog", "check", "--catalog", "their_catalog")
    assert (code, out) == (0, "1 rule, no findings\n")
    code, out = run("catalog", "verdicts", "--update", "--catalog", "their_catalog")
    assert code == 0
    assert "1 rule: equal" in out
    assert "abs_of_abs_of_abs,absolutes.py," in (package / table.TABLE_NAME).read_text()
    code, out = run("catalog", "verdicts", "--update", "--catalog", "one_file.py")
    assert code != 0
    assert "one_file is no package, so that it has no table of verdicts" in out
    assert "abs_of_abs_of_abs" not in (FOLDER / table.TABLE_NAME).read_text()
