"""`patcomp rule watch`: what rules do to a model, again when their file or that of the model is saved."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from patcomp_lab.commands import watch
from tests.helpers.command import Command

MODEL = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x.sin()) + x


def net():
    return Net().eval(), (torch.ones(2, 3),)
"""

RULE = """
from patcomp.authoring import AtenSource, AtenTarget
from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns import Capture, Rewrite, rule


@rule(into=aten_namespace, example={"x": "2xf32"})
def double_sine(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "sin(sin(x)) as cos(x), which is wrong and easy to see"
    return Rewrite(a.sin(a.sin(x)), to=c.cos(x), where=[x.rank == 1])
"""

FIRED = "rule double_sine: fired, 1 rewrite\n  %sin_1 at model.py:7\n"
MISSED = "condition `x.rank == 1` (x.rank is 2) is false"


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "rules.py").write_text(RULE)


def save(path: Path, text: str) -> None:
    """Write a file; two saves within one tick of the clock would have one time."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 1, before + 1))


def test_once(patcomp: Command, tmp_path: Path) -> None:
    done = patcomp("rule", "watch", "rules.py", "model.py:net", "--once")
    assert done.code == 0
    assert done.out.startswith("rule double_sine: fired nowhere\n  double_sine: matched 2 of 2 ops")
    assert MISSED in done.out
    assert done.out.endswith("the programs have the same structure\n")
    (tmp_path / "rules.py").write_text(RULE.replace("== 1]", "== 2]"))
    done = patcomp("rule", "watch", "rules.py", "model.py:net", "--once", "--html", "pages/report.html")
    assert done.out.startswith(FIRED)
    assert "    + coreai.cos : (tensor<2x3xf32>)" in done.out
    page = (tmp_path / "pages" / "report.html").read_text()
    assert re.search(r'"watched":\[\["double_sine","graph @main\\n  - coreai.sin[^]]*,true\]\]', page)


def test_each_save_is_answered(patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules, model = tmp_path / "rules.py", tmp_path / "model.py"

    def steps() -> Iterator[Callable[[], object] | None]:
        yield lambda: save(rules, RULE.replace("== 1]", "== 2]"))
        yield None  # nothing was saved
        yield lambda: save(rules, "def broken(:")
        yield lambda: rules.unlink()  # an editor replaces the file
        yield lambda: save(rules, "")
        yield lambda: save(rules, RULE)
        yield lambda: save(model, MODEL.replace("torch.ones(2, 3)", "torch.ones(2)"))

    step = steps()

    def pause() -> None:
        act = next(step, KeyboardInterrupt)
        if act is KeyboardInterrupt:
            raise KeyboardInterrupt
        if act is not None:
            act()

    monkeypatch.setattr(watch, "pause", pause)
    done = patcomp("rule", "watch", "rules.py", "model.py:net")
    assert done.code == 0
    first, second, third, fourth = re.split(r"(?=^rule double_sine)", done.out, flags=re.MULTILINE)[1:]
    assert MISSED in first
    assert second.startswith(FIRED)
    assert MISSED in third
    assert fourth.startswith(FIRED)
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 2
    assert errors[0].startswith("error: rules.py fails when it is run: SyntaxError")
    assert errors[1] == "error: rules.py has no rules"
    assert done.err.count("watching rules.py, model.py; Ctrl-C ends") == 6


def test_a_rule_that_fails_is_called_broken(patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATCOMP_STRICT", raising=False)
    text = RULE.replace("from patcomp.patterns import", "from patcomp.patterns import check,")
    (tmp_path / "rules.py").write_text(text.replace("x.rank == 1", "check('never', lambda match: 1 / 0)"))
    done = patcomp("rule", "watch", "rules.py", "model.py:net", "--once")
    assert done.out.startswith("rule double_sine is broken: ")
    assert "ZeroDivisionError" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.py", "model.py:net"], "there is no file none.py; `patcomp rule new NAME` writes one"),
        (["rules.py", "none.py:net"], "there is no file or folder none.py"),
        (["rules.py", "model.py:net", "--rule", "other"], "rules.py has no rule other; it has double_sine"),
        (["rules.py", "model.py:net", "--html", "."], "--html . is a folder; name a file"),
    ],
)
def test_wrong_uses(patcomp: Command, arguments: list[str], message: str) -> None:
    done = patcomp("rule", "watch", *arguments, "--once")
    assert done.code == 2 or "none.py" in message
    assert message in done.err
    assert len(done.err.splitlines()) == 1
