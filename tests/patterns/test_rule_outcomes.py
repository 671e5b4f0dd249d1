"""`patcomp rule test` tells a rule without a proof from a right one, and which rule takes an op first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from patcomp.proof import examination
from patcomp.proof.verdict import Strength, Verdict
from tests.patterns.test_seeded_mistakes import rule_test

DOUBLED = """
@rule(stage="optimize", source=coreai_namespace, target=coreai_namespace, example={"x": "2x3xf32"})
def times_one_gone(a, c, x):
    "x * 1 -> x"
    return Rewrite(x * 1.0, to=x, where=[x.dtype == "f32"])
"""

NEVER_SEEN = """
@lowering("aten.hardtanh", name="my hardtanh", examples=[example("2x3xf32"), example("2x3xf32", 0.0, 6.0)])
def hardtanh(op, c):
    "min(max(x, low), high)"
    return c.broadcasting_minimum(c.broadcasting_maximum(op["self"], op.min_val), op.max_val)
"""


@pytest.mark.parametrize(
    ("strength", "code", "shown"),
    [(Strength.NUMBERS, 4, "NOT PROVED"), (Strength.UNREACHED, 4, "NOT PROVED"), (Strength.APPROXIMATION, 0, "ok")],
)
def test_a_rule_without_a_proof_has_its_own_row_and_exit_code(
    strength: Strength, code: int, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    found = Verdict("times_one_gone", strength, on_numbers=Counter({"a reason": 1}), missed=Counter({"a reason": 1}))
    monkeypatch.setattr(examination, "prove", lambda *_, **__: found)
    given, out = rule_test(tmp_path, DOUBLED, monkeypatch, capsys)
    assert given == code
    (row,) = [line for line in out.splitlines() if line.startswith("│ proof")]
    assert shown in row
    assert ("1 rule, none of them wrong, 1 not proved" in out) == (code == 4)


def test_the_rule_that_takes_an_op_first_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = rule_test(tmp_path, NEVER_SEEN, monkeypatch, capsys)
    assert code == 3
    assert "never sees its op: rule normalize hardtanh (normalize/arithmetic.py:" in out
    assert "rejects its own example" not in out
