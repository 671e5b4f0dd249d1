"""The types of the namespaces: they say what the tables say, and mypy finds mistakes of a rule with them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from patcomp.authoring import Aten, AtenSource, Composites, Coreai, OpView, Targets, aten, coreai
from patcomp.errors import RuleError
from patcomp.ir.builder import Builder
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block
from patcomp.patterns import CompositeTable

ROOT = Path(__file__).parents[1]
RULES = """
from patcomp.authoring import Aten, AtenSource, Composites, Coreai, OpView
from patcomp.ir.value import Value
from patcomp.patterns import ANY, Capture, Const, Rewrite, lowering, normalization, rule

@lowering("aten.amax")
def lowered(op: OpView, c: Coreai) -> Value:
    x: Value = op["self"]
    c.reduce_mean(x, [1])
    c.reduce_meen(x, [1])  # no attribute "reduce_meen"
    c.reduce_mean(x)  # Missing positional argument "axes"
    c.softmax(x, dim=1)  # Unexpected keyword argument "dim"
    return c.split(x, 2, 0)  # "list[Value]"

@normalization("aten.stack")
def normalized(op: OpView, aten: Aten) -> Value:
    aten.cat(op.result, op.tensors, dimension=0)  # Unexpected keyword argument "dimension"
    return aten.mul.Tensors(op.result, op.x, op.x)  # no attribute "Tensors"

@rule(name="recovered", example={"x": "2x3xf32", "w": "3xf32", "eps": 1e-6})
def recovered(a: AtenSource, c: Composites, x: Capture, w: Capture, eps: Const) -> Rewrite:
    a.unsqueezed(x, 1)  # no attribute "unsqueezed"
    a.unsqueeze(x)  # Missing positional argument "dim"
    root = a.rsqrt(a.mean(x * x, dim=[ANY], keepdim=True, dtype=None) + eps)
    c.op("rms_norm", x)
    return Rewrite(x * root * w, to=c.rms_norm(x, w, eps=eps.value))  # Missing named argument "axes"
"""


def test_mypy_finds_the_mistakes_of_a_rule(tmp_path: Path) -> None:
    # in a process of its own, because other tests declare ops and composites
    subprocess.run([sys.executable, "-m", "patcomp_lab.commands.stubs"], cwd=ROOT, check=True)
    path = tmp_path / "rules.py"
    path.write_text(RULES)
    quick = ("--no-site-packages", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"))
    command = [sys.executable, "-m", "mypy", *quick, str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    found = dict(re.findall(r"rules\.py:(\d+): error: (.*)", shown))
    wanted = {
        str(number): line.partition("  # ")[2] for number, line in enumerate(RULES.split("\n"), 1) if "  # " in line
    }
    assert found.keys() == wanted.keys(), shown
    for number, message in wanted.items():
        assert message in found[number]


def test_the_names_exist_when_a_rule_runs() -> None:
    assert [kind.__name__ for kind in (AtenSource, Composites, Targets, OpView)] == [
        "SourceNamespace", "TargetNamespace", "TargetNamespace", "OpView"
    ]  # fmt: skip
    assert isinstance(aten, Aten)
    assert isinstance(coreai, Coreai)


def test_aten_ops_are_built_by_name() -> None:
    type_ = tensor((2, 3), "f32")
    block = Block(arg_types=[type_, type_])
    with Builder(block):
        x, y = map(Value, block.args)
        made = aten.cat(tensor((4, 3), "f32"), [aten.mul.Tensor(type_, x, y), aten.relu(type_, x)])
    assert [op.name for op in block.ops] == ["aten.mul.Tensor", "aten.relu", "aten.cat"]
    assert made.ssa.owner.arguments_by_name()["dim"] == 0
    with pytest.raises(AttributeError, match=r"aten\.mul has no overload 'Tensors'"):
        aten.mul.Tensors  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'mull'"):
        aten.mull  # noqa: B018
    with Builder(block), pytest.raises(TypeError, match=r"aten\.relu takes 1 arguments \(self\), got 2"):
        aten.relu(type_, x, y)


def test_a_table_of_composites_takes_no_other_function() -> None:
    table = CompositeTable("mine")

    def doubled(x: Value) -> Value:
        return coreai.broadcasting_add(x, x)

    with pytest.raises(RuleError, match=r"mine: doubled is not a composite; declare it with @composite\(...\)"):
        table.define(doubled)
