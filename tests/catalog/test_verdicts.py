"""The table of verdicts: it has every rule, as the rule is declared now, and says what proofs say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from patcomp.patterns import Rule
from patcomp_lab.proof import table
from patcomp_lab.proof.lint import lint
from patcomp_lab.proof.verdict import Strength, prove
from patterns_catalog import all_rules, default_rules
from patterns_catalog.explained import EXPLAINED
from tests.helpers.torchvision_ops import know_the_shape_of_nms

RULES = list(all_rules())
UPDATE = "patcomp catalog verdicts --update, then patcomp catalog list --markdown docs/generated"


def test_the_table_has_every_rule_as_it_is_now() -> None:
    rows = table.read()
    missing = [rule.name for rule in RULES if rule.name not in rows]
    assert not missing, UPDATE
    old = sorted({rows[rule.name].file for rule in RULES if not table.is_current(rows[rule.name], rule)})
    assert not old, f"these files changed since their rules were proved: {UPDATE}"
    assert not set(rows) - {rule.name for rule in RULES}, UPDATE


def test_most_rules_are_proved() -> None:
    """The other rules are explained."""
    rows = table.read()
    shares = {stage: Counter(rows[rule.name].is_proof for rule in RULES if rule.stage == stage) for stage in LEAST}
    for stage, least in LEAST.items():
        assert shares[stage][True] >= least * shares[stage].total(), stage
    open_rules = {name for name, row in rows.items() if not row.is_proof}
    assert open_rules == {key.partition(": ")[2] for key in EXPLAINED if key.startswith("not proved: ")}
    assert not [row.rule for row in rows.values() if row.verdict == Strength.REFUTED.value]
    approximations = {row.rule for row in rows.values() if row.verdict == Strength.APPROXIMATION.value}
    assert approximations == {rule.name for rule in RULES if rule.approximation is not None}


LEAST = {"optimize": 0.95, "normalize": 0.95, "recover": 0.9, "target": 0.8, "lower": 0.8, "import": 0.8}


@pytest.mark.parametrize("name", ["times_one", "transpose_of_transpose", "decompose lcm"])
def test_a_proof_says_what_the_table_says(name: str) -> None:
    verdict = prove(all_rules()[name], default_rules(), programs=table.PROGRAMS)
    row = table.read()[name]
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
    verdict = prove(rule, default_rules(), programs=table.PROGRAMS)
    assert verdict.strength.value == table.read()[rule.name].verdict


def test_the_text_of_a_table() -> None:
    rows = list(table.read().values())
    assert table.text(rows) == table.PATH.read_text()
    some = [replace(rows[0], rule='a, "b"', remark="c\nd")]
    assert len(table.text(some).splitlines()) == 3


def test_a_rule_is_proved_again_after_its_file_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rule = default_rules()["times_one"]
    (tmp_path / "optimize").mkdir()
    file = tmp_path / "optimize" / "algebra.py"
    text = (table.FOLDER / "optimize" / "algebra.py").read_text()
    file.write_text(text)
    monkeypatch.setattr(table, "FOLDER", tmp_path)
    table.fingerprint.cache_clear()
    try:
        row = table.read()["times_one"]
        assert table.is_current(row, rule)
        file.write_text("# a comment\n\n" + text)
        table.fingerprint.cache_clear()
        assert table.is_current(row, rule)
        file.write_text(text.replace("x * 1", "x * 2"))
        table.fingerprint.cache_clear()
        assert not table.is_current(row, rule)
        (finding,) = [each for each in lint([rule], default_rules(), {rule.name}, "") if each.kind == "not proved"]
        assert "changed since its proof" in finding.message
        made: list[table.Row] = []
        (new,) = table.updated([rule], default_rules(), {rule.name: row}, made.append)
        assert made == [new]
        assert (new.verdict, new.remark) == (row.verdict, row.remark)
        assert table.updated([rule], default_rules(), {rule.name: new}, made.append) == [new]
        assert len(made) == 1
    finally:
        table.fingerprint.cache_clear()


def test_rules_from_elsewhere_have_no_row() -> None:
    assert table.file_of(replace(default_rules()["times_one"], source=f"{Path(__file__)}:1")) == ""
    assert table.file_of(replace(default_rules()["times_one"], source="")) == ""
