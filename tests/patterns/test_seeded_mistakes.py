"""Mistakes that authors of rules make: `patcomp rule test` finds each, and passes the corrected rule.

Each mistake is a right rule file and the text that makes it wrong. (`tests/patterns/test_equivalence.py` has more, in
Python.)
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from patcomp.cli import main
from patcomp_lab.proof import examination
from patcomp_lab.proof.verdict import Strength, Verdict
from tests.patterns.seeded_rules import MISTAKES as MORE_MISTAKES
from tests.patterns.seeded_rules import Mistake

HEAD = """
import torch

from patcomp.ir.composite import composite
from patcomp.ir.namespaces import aten_namespace, coreai_namespace
from patcomp.ir.types import element_type
from patcomp.patterns import ANY, Attr, CompositeTable, Const, Rewrite, check, compute, decomposition, example
from patcomp.patterns import lowering, normalization, op_rule, rule

table = CompositeTable("mine")
"""

NORM = """
@table.define
@composite("unit_norm", inputs=("x", "w"), attributes=("eps",))
def unit_norm(c, x, w, *, eps):
    size = c.reduce_mean(c.abs(x), [x.rank - 1])
    return c.broadcasting_mul(c.broadcasting_divide(x, c.broadcasting_add(size, eps)), w)


@rule(into=table, example={"x": "2x3x8xf32", "w": "8xf32", "eps": 0.5, "axis": 2})
def recovered_unit_norm(a, c, x, w, eps: Const, axis: Attr):
    "x / (mean |x| + eps) * w"
    size = a.op("mean.dim", a.abs(x), dim=[axis], keepdim=True, dtype=None)
    normal = x / (size + eps)
    return Rewrite(
        normal * w,
        to=c.unit_norm(x, w, eps=eps.value),
        where=[axis == x.rank - 1, w.rank == 1, w.shape[0] == x.shape[-1], x.dtype == "f32", w.dtype == "f32"],
    )
"""

SOFTMAX = """
@lowering("aten._softmax", examples=[example("2x3x4xf32", 1, False)])
def my_softmax(op, c):
    op.ignore("half_to_float", because="the result has the type")
    op.expect(op["self"].rank > 0, "a softmax of a number")
    x = c.cast(op["self"], op.result.element_type)
    return c.softmax(x, op.dim % x.rank)
"""

CUMSUM = """
@lowering("aten.cumsum", name="my_cumsum", examples=[example("2x3xf32", 1), example("4xsi32[0,5]", 0)])
def my_cumsum(op, c):
    op.ignore("dtype", because="the result has it")
    x = c.cast(op["self"], op.result.element_type)
    op.expect(x.rank > 0, "a number")
    return c.scan(x, op.dim % x.rank, False, scan_op="sum")
"""

SUM = """
@lowering("aten.sum.dim_IntList", name="my_sum", examples=[example("2x3x4xf32", [1], False)])
def my_sum(op, c):
    op.ignore("dtype", because="the result has it")
    x = c.cast(op["self"], op.result.element_type)
    op.expect(bool(op.dim) and x.rank > 0, "a sum of everything")
    made = c.reduce_sum(x, [axis % x.rank for axis in op.dim])
    return made if op.keepdim else c.reshape(made, op.result.shape)
"""

SUB = """
@lowering("aten.sub.Tensor", name="my_sub", examples=[example("2x3xf32", "3xf32")])
def my_sub(op, c):
    op.expect(op.result.element_type != element_type("i1"), "bools")
    x, y = (c.cast(op[name], op.result.element_type) for name in ("self", "other"))
    return c.broadcasting_sub(x, c.broadcasting_mul(y, op.alpha))
"""

DIFFERENCE = """
@rule(stage="normalize", into=aten_namespace, example={"x": "2x5xf32", "y": "2x5xf32"})
def difference(a, c, x, y):
    return Rewrite(x - y, to=c.add(x, c.neg(y)))
"""

LOGARITHM = """
@rule(stage="normalize", into=aten_namespace, example={"x": "2x5xf32[0.5,4]", "two": 2.0})
def logarithm(a, c, x, two: Const):
    return Rewrite(a.log(x) * two, to=c.add(c.log(x), c.log(x)), where=[two.value == 2.0])
"""

ADDMM = """
@lowering("aten.addmm", name="my_addmm", examples=[example("5xf32", "2x3xf32", "3x5xf32")])
def my_addmm(op, c):
    op.expect(op.result.element_type.name.startswith("f"), "integers")
    product = c.broadcasting_mul(c.broadcasting_batch_matmul(op.mat1, op.mat2), op.alpha)
    return c.broadcasting_add(product, c.broadcasting_mul(op["self"], op.beta))
"""

FACTOR = """
@rule(stage="normalize", into=aten_namespace, example={"x": "2x5xf32", "y": "2x5xf32"})
def factor(a, c, x, y):
    floats = [value.dtype.is_in("f16", "bf16", "f32") for value in (x, y)]
    return Rewrite(a.add(a.exp(x), y, alpha=2), to=c.sub(c.exp(x), c.mul(y, -2.0)), where=floats)
"""

MAX = """
@lowering("aten.max.dim", name="my_max", examples=[example("2x3x4xf32", 1)])
def my_max(op, c):
    op.expect(not op.keepdim, "kept dimensions")
    dim = op.dim % op["self"].rank
    op.expect(op["self"].rank > 0, "a number")
    op.expect(not op.used(1), "indices")
    op.expect(op.result.element_type != element_type("i1"), "bools")
    made = c.reshape(c.reduce_max(op["self"], [dim]), op.results[0].shape)
    return [made, c.cast(made, op.results[1].element_type)]
"""

TRANSPOSE = """
@normalization("aten.transpose.int", name="my transpose", examples=[example("2x3x4xf32", 0, 2)])
def transpose(op, c):
    rank = op["self"].rank
    first, second = op.dim0 % rank, op.dim1 % rank
    order = [second if axis == first else first if axis == second else axis for axis in range(rank)]
    return c.build("aten.permute", op.result, **{"self": op["self"], "dims": order})
"""

RELU = """
@lowering("aten.relu", name="my_relu", examples=[example("2x3xf32")])
def my_relu(op, c):
    return c.relu(op["self"])
"""

EXPONENTIALS = """
@rule(stage="target", source=coreai_namespace, into=coreai_namespace, example={"x": "2x3xf32", "y": "2x3xf32"},
      unspecified={"large numbers": "an infinity times zero was NaN", "infinities and zeros": "so it was there"})
def exponentials(a, c, x, y):
    return Rewrite(a.broadcasting_mul(a.exp(x), a.exp(y)), to=c.exp(c.broadcasting_add(x, y)))
"""

MATMUL = """
@decomposition("aten.addbmm", name="my addbmm", examples=[example("3x5xf32", "2x3x4xf32", "2x4x5xf32")])
def addbmm(self, batch1, batch2, *, beta=1, alpha=1):
    product = alpha * (batch1 @ batch2).sum(0, dtype=batch1.dtype)
    return product if beta == 0 else beta * self + product
"""


MISTAKES = [
    *MORE_MISTAKES,
    Mistake("wrong axis", NORM, "where=[axis == x.rank - 1, ", "where=[", "aten.mean.dim"),
    Mistake("ignored argument of a pattern", FACTOR, "alpha=2", "alpha=ANY", "aten.add.Tensor"),
    Mistake("wrong literal", LOGARITHM, "where=[two.value == 2.0]", "where=[]", "aten.log"),
    Mistake("eps in the wrong place", NORM, "normal = x / (size + eps)", "normal = x / size + eps", "aten.div"),
    Mistake("swapped operands", DIFFERENCE, "c.add(x, c.neg(y))", "c.add(c.neg(x), y)", "aten.sub"),
    Mistake("swapped operands of a lowering", SUB, "c.broadcasting_sub(x, c.broadcasting_mul(y, op.alpha))",
            "c.broadcasting_sub(c.broadcasting_mul(y, op.alpha), x)", "aten.sub"),
    Mistake("ignored argument", ADDMM, 'c.broadcasting_mul(op["self"], op.beta)',
            "(op.ignore('beta', because='it is 1'), op['self'])[1]", "beta = "),
    Mistake("argument that is not accounted for", ADDMM, 'c.broadcasting_mul(op["self"], op.beta)', 'op["self"]',
            "does not account for argument beta"),
    Mistake("forgotten second result", MAX,
            "return [made, c.cast(made, op.results[1].element_type)]", "return made", "2 results"),
    Mistake("sign lost", FACTOR, "-2.0", "2.0", "aten.exp"),
    Mistake("wrong shape", SUM, "made if op.keepdim else c.reshape(made, op.result.shape)",
            "(op.ignore('keepdim', because='the result has the shape'), made)[1]", "which is tensor<"),
    Mistake("wrong keepdim", SUM, "if op.keepdim else", "if not op.keepdim else", "which is tensor<"),
    Mistake("missing cast", CUMSUM, 'c.cast(op["self"], op.result.element_type)', 'op["self"]', "aten.cumsum"),
    Mistake("negative axis", TRANSPOSE, "op.dim0 % rank, op.dim1 % rank", "op.dim0, op.dim1", "dim0 = "),
    Mistake("no broadcast", SUB, "c.broadcasting_sub(x, ", "c.sub(x, ", "aten.sub"),
    Mistake("NaN becomes a number", RELU, 'c.relu(op["self"])',
            'c.where(c.broadcasting_greater(op["self"], 0.0), op["self"], c.broadcasting_mul(op["self"], 0.0))', "inf"),
    Mistake("wrong operation on Core AI", EXPONENTIALS,
            "c.broadcasting_add(x, y)", "c.broadcasting_sub(x, y)", "coreai.exp"),
    Mistake("softmax over the last axis", SOFTMAX, "op.dim % x.rank", "(op.dim, x.rank - 1)[1]", "aten._softmax"),
    Mistake("decomposition without beta", MATMUL, "beta * self + product", "self + product", "beta"),
]  # fmt: skip


def rule_test(
    folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Runs `patcomp rule test` on a file of rules: its exit code, and what it printed."""
    path = folder / "rules.py"
    path.write_text(HEAD + text)
    monkeypatch.setattr(sys, "argv", ["patcomp", "rule", "test", str(path), "--no-runtime"])
    with pytest.raises(SystemExit) as ending:
        main()
    printed = capsys.readouterr()
    return int(ending.value.code or 0), printed.out + printed.err


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_found(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mistake.rule.count(mistake.right) == 1
    code, out = rule_test(tmp_path, mistake.rule.replace(mistake.right, mistake.wrong), monkeypatch, capsys)
    assert code == 3
    assert "WRONG" in out
    assert "counterexample" in out
    assert mistake.shown in out


_MORE = {mistake.rule for mistake in MORE_MISTAKES}
CORRECTED = [
    pytest.param(rule, marks=[pytest.mark.slow] if rule in _MORE or place % 3 else [])
    for place, rule in enumerate(dict.fromkeys(mistake.rule for mistake in MISTAKES))
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", CORRECTED)
def test_the_corrected_rule_passes(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = rule_test(tmp_path, text, monkeypatch, capsys)
    assert code == 0, out


# ---- rules that are not wrong, and rules that are never tried ------------------------------------

DOUBLED = """
@rule(stage="optimize", source=coreai_namespace, into=coreai_namespace, example={"x": "2x3xf32"})
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
    monkeypatch.setattr(examination, "prove_rule", lambda *_, **__: found)
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
