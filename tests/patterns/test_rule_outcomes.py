"""`patcomp rule test` tells a rule without a proof from a right one, and which rule takes an op first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patterns.test_seeded_mistakes import rule_test

UNREACHED = """
@rule(stage="optimize", source=coreai_namespace, target=coreai_namespace, example={"x": "2x3xf32", "axis": 1})
def argmax_of_product(a, c, x, axis: Const):
    "argmax(x * 1) -> argmax(x), which symbols do not reach"
    y = a.argmax(x * 1.0, axis)
    return Rewrite(y, to=c.argmax(x, axis, result_type=y.type))
"""

NEVER_SEEN = """
@lowering("aten.hardtanh", name="my hardtanh", examples=[example("2x3xf32"), example("2x3xf32", 0.0, 6.0)])
def hardtanh(op, c):
    "min(max(x, low), high)"
    return c.broadcasting_minimum(c.broadcasting_maximum(op["self"], op.min_val), op.max_val)
"""


def test_a_rule_without_a_proof_has_its_own_row_and_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = rule_test(tmp_path, UNREACHED, monkeypatch, capsys)
    assert code == 4
    assert "NOT PROVED" in out
    assert "1 rule, none of them wrong, 1 not proved" in out


def test_the_rule_that_takes_an_op_first_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = rule_test(tmp_path, NEVER_SEEN, monkeypatch, capsys)
    assert code == 3
    assert "never sees its op: rule normalize hardtanh (normalize/arithmetic.py:" in out
    assert "rejects its own example" not in out
