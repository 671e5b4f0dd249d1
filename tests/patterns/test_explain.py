"""The texts that say where an op is from and why a rule did not apply."""

from __future__ import annotations

from patcomp.ir.types import tensor
from patcomp.patterns import ANY, Const, Rewrite, RuleSet, any_of, op_rule, run
from patcomp.questions.ops import explain, find, why_not
from tests.patterns.failing_rules import failing_condition, failing_function, unsigned
from tests.patterns.graphs import MATRIX, TABLE, Graph, declare


@declare
def rms_norm(a, c, x, w, eps: Const):
    "x * rsqrt(mean(x**2, -1) + eps) * w"
    f = any_of(a._to_copy(x, dtype=ANY), x)
    n = f * a.rsqrt(a.mean(a.pow(f, 2.0), dim=[-1], keepdim=True, dtype=None) + eps)
    return Rewrite(any_of(a._to_copy(n, dtype=ANY), n) * w, to=c.made(x, w, eps=eps.value), where=[w.rank == 1])


def _graph(spoil: str = "") -> Graph:
    g = Graph([MATRIX, MATRIX if spoil == "rank" else tensor((8,), "f32")])
    x, w = g.inputs
    f = g._to_copy(x, dtype="f32")
    mean = g.op("mean.dim", g.pow(f, 2.0), dim=[1 if spoil == "dim" else -1], keepdim=True)
    r = (g.sqrt if spoil == "op" else g.rsqrt)(g.add(mean, 1e-5))
    if spoil == "use":
        g.use(g.exp(r))
    g.use(g.mul(g._to_copy(g.mul(f, r), dtype="f16"), w, hint="normed"))
    return g


NORMED = "\n  %normed = aten.mul.Tensor is from %normed_9 in layer at model.py:19"


def test_why_not_names_the_place_and_the_reason():
    start = "up from %normed = aten.mul.Tensor, then at "
    assert why_not(rms_norm, _graph("use").block) == (
        f"rms_norm: matched 8 of 8 ops {start}aten.rsqrt (%rsqrt): "
        "its value is also used outside the match, by aten.exp\n"
        "  %normed = aten.mul.Tensor is from %normed_11 in layer at model.py:21\n"
        "  %rsqrt = aten.rsqrt is from %rsqrt_6 in layer at model.py:16"
    )
    assert why_not(rms_norm, _graph("dim").block) == (
        f"rms_norm: matched 7 of 8 ops {start}aten.mean.dim (%mean): argument dim is [1], not [-1]"
        f"{NORMED}\n  %mean = aten.mean.dim is from %mean.dim_3 in layer at model.py:13"
    )
    assert why_not(rms_norm, _graph("op").block) == (
        f"rms_norm: matched 4 of 8 ops {start}aten.sqrt (%sqrt): it is aten.sqrt, not aten.rsqrt"
        f"{NORMED}\n  %sqrt = aten.sqrt is from %sqrt_6 in layer at model.py:16"
    )
    assert why_not(rms_norm, _graph("rank").block) == (
        f"rms_norm: matched 8 of 8 ops {start}aten.mul.Tensor (%normed): condition `w.rank == 1` (w.rank is 2) is false"
        f"{NORMED}"
    )


def test_why_not_where_it_applies_and_where_nothing_starts():
    assert why_not(rms_norm, _graph().block).startswith("rms_norm: it matches at %normed = aten.mul.Tensor (%normed_")
    assert why_not(rms_norm, Graph().block) == "rms_norm: there is no aten.mul.Tensor to start from"


def test_why_not_leaves_the_module_alone():
    g = _graph("use")
    before = g.names
    why_not(rms_norm, g.block)
    assert g.names == before


def test_why_not_of_a_procedural_rule_quotes_its_reason():
    class Target:
        def __getattr__(self, name):
            return lambda x: x

    g = Graph([tensor((8,), "f32")])
    g.use(g.neg(g.inputs[0]))
    before = g.names
    assert why_not(unsigned, g.block, target=Target()) == (
        "unsigned: at %neg = aten.neg it says: only matrices\n  %neg = aten.neg is from %neg_0 in layer at model.py:10"
    )
    assert g.names == before
    assert why_not(unsigned, Graph().block).endswith("there is no aten.neg or aten.abs to start from")

    @op_rule("lower", "aten.exp")
    def forgets(op, b):
        return op.self if False else b

    g = Graph()
    g.use(g.exp(g.inputs[0]))
    assert "does not account for argument self" in why_not(forgets, g.block, target=g.inputs[0])


def test_explain_follows_the_location_back():
    g = _graph()
    run(g.block, RuleSet([rms_norm]))
    (op,) = find(g.block, "%normed")
    lines = explain([op], [rms_norm]).splitlines()
    assert lines[0] == "%normed = builtin.unrealized_conversion_cast"
    assert lines[1].startswith("  made by rule rms_norm (patterns/test_explain.py:")
    assert lines[1].endswith("): x * rsqrt(mean(x**2, -1) + eps) * w")
    assert "  from %mul_7 in layer at model.py:17" in lines
    assert explain([op]).splitlines()[1] == "  made by rule rms_norm"


def test_explain_of_an_imported_op_and_finding_by_line():
    g = _graph()
    (op,) = find(g.block, "model.py:10")
    assert explain([op]) == (
        "%to_copy = aten._to_copy\n  no rule made this op; the import did\n  from %_to_copy_0 in layer at model.py:10"
    )
    assert find(g.block, "_to_copy_0") == [op]
    assert find(g.block, "nothing") == []


def test_why_not_of_a_rule_that_fails():
    g = Graph()
    g.use(g.exp(g.inputs[0]))
    at = "at %exp = aten.exp"
    assert why_not(failing_condition, g.block).startswith(f"failing_condition: {at} it fails: ValueError: not enough")
    assert why_not(failing_function, g.block, target=TABLE) == (
        f"failing_function: {at} it fails: AttributeError: 'FunctionTable' object has no attribute 'relu'\n"
        "  %exp = aten.exp is from %exp_0 in layer at model.py:10"
    )


def test_explain_describes_the_ops_of_a_rule_together():
    g = Graph([MATRIX])
    for _ in range(3):
        g.use(g.exp(g.inputs[0]))
    g.use(g.neg(g.inputs[0]))
    first, second, third = [op for op in g.block.ops if op.name == "aten.exp"]
    text = explain([first, second, third])
    assert text.splitlines()[0].startswith("3 ops: %exp = aten.exp, ")
    assert text.splitlines()[1:] == [
        "  no rule made these ops; the import did",
        "  from %exp_0 in layer at model.py:10",
        "  from %exp_2 in layer at model.py:12",
        "  from %exp_4 in layer at model.py:14",
    ]
