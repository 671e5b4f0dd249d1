"""`patcomp lint-catalog`: silent about our catalog, and what it says about a suspicious one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patcomp.cli import main
from patcomp.patterns.driver import EndlessRewritesError
from patcomp_lab.proof import lint as linting
from patterns_catalog import default_rules
from tests.helpers.torchvision_ops import know_the_shape_of_nms

SUSPICIOUS = """
from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns import Rewrite, example, normalization, rule


@rule(stage="normalize", into=aten_namespace)
def untested(a, c, x):
    return Rewrite(a.sinh(a.cosh(x)), to=x)


@rule(stage="normalize", into=aten_namespace, example={"x": "2x3xf32"})
def first(a, c, x):
    "sin(tan(x))"
    return Rewrite(a.sin(a.tan(x)), to=c.cos(x))


@rule(stage="normalize", into=aten_namespace, example={"x": "2x3xf32"})
def second(a, c, x):
    "sin(tan(x)) again"
    return Rewrite(a.sin(a.tan(x)), to=c.cos(c.cos(x)))
"""


def lint(*arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Runs the command: its exit code, and what it printed."""
    monkeypatch.setattr(sys, "argv", ["patcomp", "lint-catalog", *arguments])
    with pytest.raises(SystemExit) as ending:
        main()
    return int(ending.value.code or 0), capsys.readouterr().out


@pytest.mark.slow
def test_our_catalog_has_no_findings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers.integrations.moe", reason="defines an operator that a rule knows")
    know_the_shape_of_nms()
    code, out = lint(monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0, out
    assert "no findings" in out


CIRCLE = """
from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns import Rewrite, rule


@rule(stage="normalize", into=aten_namespace, example={"x": "2x3xf32"})
def to_cosh(a, c, x):
    "sinh(x) -> cosh(x)"
    return Rewrite(a.sinh(x), to=c.cosh(x))


@rule(stage="normalize", into=aten_namespace, example={"x": "2x3xf32"})
def to_sinh(a, c, x):
    "cosh(x) -> sinh(x)"
    return Rewrite(a.cosh(x), to=c.sinh(x))
"""


def test_suspicious_catalogs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The corpus fires the rule `first`. All examples of our rules as the corpus would take twenty seconds more."""
    (tmp_path / "suspicious.py").write_text(SUSPICIOUS)
    (tmp_path / "circle.py").write_text(CIRCLE)
    (tmp_path / "model.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x): return x.tan().sin()\n"
        "def net(): return Net(), (torch.rand(2, 3),)\n"
    )
    catalogs = ("--catalog", str(tmp_path / "suspicious.py"), "--catalog", str(tmp_path / "circle.py"))
    code, out = lint(*catalogs, "--corpus", f"{tmp_path / 'model.py'}:net", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 3
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    found = {(kind, rule) for kind, rule, _ in rows if kind}  # a long reason has several lines
    assert found == {
        ("no description", "untested"),
        ("no example", "untested"),
        ("never fires", "untested"),
        ("overlap", "first"),
        ("shadowed", "second"),
        ("overlap", "second"),
        ("never fires", "second"),
        ("cycle", "to_cosh"),
        ("never fires", "to_cosh"),
        ("cycle", "to_sinh"),
        ("never fires", "to_sinh"),
        *(("not proved", name) for name in ("first", "second", "to_cosh", "to_sinh")),
    }
    assert "5 rules, 15 findings" in out
    assert "no program of the corpus fires it" in out
    reasons = " ".join(why for _, _, why in rows)
    assert "each rule rewrites what the one before it built: to_cosh -> to_sinh -> to_cosh" in reasons


def test_a_rule_is_in_a_cycle_if_one_of_several_cycles_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(rule: object, catalog: object) -> None:
        raise EndlessRewritesError("endless", [["times_one", "plus_zero"], ["cast_of_cast"]])

    monkeypatch.setattr("patcomp_lab.proof.lint._hidden", endless)
    rules = default_rules()
    found = linting.lint([rules["times_one"], rules["minus_zero"]], rules, {"times_one", "minus_zero"}, "a corpus")
    assert [finding.key for finding in found if finding.kind == "cycle"] == ["cycle: times_one"]
