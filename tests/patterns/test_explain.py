"""The texts that say where an op is from and why a rule did not apply."""

from __future__ import annotations

from patcomp.ir.types import tensor
from patcomp.patterns import ANY, Attr, Const, Context, Rewrite, RuleSet, any_of, op_rule, run
from patcomp.questions.ops import explain_ops, find, why_not_in
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
    assert why_not_in(rms_norm, _graph("use").block) == (
        f"rms_norm: matched 8 of 8 ops {start}aten.rsqrt (%rsqrt): "
        "its value is also used outside the match, by aten.exp\n"
        "  %normed = aten.mul.Tensor is from %normed_11 in layer at model.py:21\n"
        "  %rsqrt = aten.rsqrt is from %rsqrt_6 in layer at model.py:16"
    )
    assert why_not_in(rms_norm, _graph("dim").block) == (
        f"rms_norm: matched 7 of 8 ops {start}aten.mean.dim (%mean): argument dim is [1], not [-1]"
        f"{NORMED}\n  %mean = aten.mean.dim is from %mean.dim_3 in layer at model.py:13"
    )
    assert why_not_in(rms_norm, _graph("op").block) == (
        f"rms_norm: matched 4 of 8 ops {start}aten.sqrt (%sqrt): it is aten.sqrt, not aten.rsqrt"
        f"{NORMED}\n  %sqrt = aten.sqrt is from %sqrt_6 in layer at model.py:16"
    )
    assert why_not_in(rms_norm, _graph("rank").block) == (
        f"rms_norm: matched 8 of 8 ops {start}aten.mul.Tensor (%normed): condition `w.rank == 1` (w.rank is 2) is false"
        f"{NORMED}"
    )


def test_ops_without_names_are_counted():
    g = Graph()
    ops = [value.ssa.owner for value in (g.exp(g.inputs[0]), g.exp(g.inputs[1]), g.neg(g.inputs[0]))]
    for op in ops:
        op.results[0].name_hint = None
    assert explain_ops(ops).splitlines()[0] == "3 ops: 2 aten.exp, aten.neg"


def test_why_not_where_it_applies_and_where_nothing_starts():
    assert why_not_in(rms_norm, _graph().block).startswith("rms_norm matches at %normed = aten.mul.Tensor (%normed_")
    assert why_not_in(rms_norm, Graph().block) == "rms_norm: there is no aten.mul.Tensor to start from"


def test_why_not_leaves_the_module_alone():
    g = _graph("use")
    before = g.names
    why_not_in(rms_norm, g.block)
    assert g.names == before


def test_why_not_of_a_procedural_rule_quotes_its_reason():
    class Target:
        def __getattr__(self, name):
            return lambda x: x

    g = Graph([tensor((8,), "f32")])
    g.use(g.neg(g.inputs[0]))
    before = g.names
    assert why_not_in(unsigned, g.block, Context(namespace=Target())) == (
        "unsigned: at %neg = aten.neg the rule says: only matrices\n"
        "  %neg = aten.neg is from %neg_0 in layer at model.py:10"
    )
    assert g.names == before
    assert why_not_in(unsigned, Graph().block).endswith("there is no aten.neg or aten.abs to start from")

    @op_rule("lower", "aten.exp")
    def forgets(op, b):
        return op.self if False else b

    g = Graph()
    g.use(g.exp(g.inputs[0]))
    assert "does not account for argument self" in why_not_in(forgets, g.block, Context(namespace=g.inputs[0]))


def test_explain_follows_the_location_back():
    g = _graph()
    run(g.block, RuleSet([rms_norm]))
    (op,) = find(g.block, "%normed")
    lines = explain_ops([op], [rms_norm]).splitlines()
    assert lines[0] == "%normed = builtin.unrealized_conversion_cast"
    assert lines[1].startswith("  made by rule rms_norm (patterns/test_explain.py:")
    assert lines[1].endswith("): x * rsqrt(mean(x**2, -1) + eps) * w")
    assert "  from %mul_7 in layer at model.py:17" in lines
    assert explain_ops([op]).splitlines()[1] == "  made by rule rms_norm"


def test_explain_of_an_imported_op_and_finding_by_line():
    g = _graph()
    (op,) = find(g.block, "model.py:10")
    assert explain_ops([op]) == (
        "%to_copy = aten._to_copy\n  no rule made this op; the import did\n  from %_to_copy_0 in layer at model.py:10"
    )
    assert find(g.block, "_to_copy_0") == [op]
    assert find(g.block, "nothing") == []


def test_why_not_of_a_rule_that_fails():
    g = Graph()
    g.use(g.exp(g.inputs[0]))
    at = "at %exp = aten.exp"
    assert why_not_in(failing_condition, g.block).startswith(
        f"failing_condition: {at} the rule fails: ValueError: not enough"
    )
    assert why_not_in(failing_function, g.block, Context(namespace=TABLE)) == (
        f"failing_function: {at} the rule fails: AttributeError: 'Target' object has no attribute 'relu'\n"
        "  %exp = aten.exp is from %exp_0 in layer at model.py:10"
    )


def test_explain_describes_the_ops_of_a_rule_together():
    g = Graph([MATRIX])
    for _ in range(3):
        g.use(g.exp(g.inputs[0]))
    g.use(g.neg(g.inputs[0]))
    first, second, third = [op for op in g.block.ops if op.name == "aten.exp"]
    text = explain_ops([first, second, third])
    assert text.splitlines()[0].startswith("3 ops: %exp = aten.exp, ")
    assert text.splitlines()[1:] == [
        "  no rule made these ops; the import did",
        "  from %exp_0 in layer at model.py:10",
        "  from %exp_2 in layer at model.py:12",
        "  from %exp_4 in layer at model.py:14",
    ]


def test_groups_of_ops_are_listed_with_their_places():
    opened = declare(lambda a, c, x: Rewrite(a.exp(x), to=c.made(x)), name="opened")
    g = Graph()
    values = [g.exp(g.inputs[0]) for _ in range(12)]
    g.use(*values)
    run(g.block, RuleSet([opened]), Context(namespace=TABLE))
    made = [op for op in g.block.ops if op.results]
    lines = explain_ops(made, [opened]).splitlines()
    assert lines[0].startswith("12 ops: %exp = builtin.unrealized_conversion_cast, %exp = ")
    assert lines[0].count("%exp = ") == 10
    assert lines[0].endswith(", 2 more with names")
    assert lines[1].startswith("  made by rule opened (patterns/test_explain.py:")
    assert lines[1].endswith(": no description")
    assert len([line for line in lines if line.startswith("  from ")]) == 10
    assert lines[-1] == "  and from 2 more places"
    ten = explain_ops(made[:10]).splitlines()
    assert "more" not in "".join(ten)
    assert ten[1] == "  made by rule opened"
    for op in made[:3]:
        op.results[0].name_hint = None
    named = explain_ops(made[:4]).splitlines()[0]
    assert named == "4 ops: %exp = builtin.unrealized_conversion_cast, 3 builtin.unrealized_conversion_cast"
    one = explain_ops(made[:1]).splitlines()
    assert one[0] == "builtin.unrealized_conversion_cast"


def test_ops_that_no_rule_made():
    g = Graph()
    e, f = g.exp(g.inputs[0], hint="first"), g.neg(g.inputs[0], hint="second")
    g.use(e, f)
    assert explain_ops([e.ssa.owner]).splitlines() == [
        "%first = aten.exp",
        "  no rule made this op; the import did",
        "  from %first_0 in layer at model.py:10",
    ]
    assert explain_ops([e.ssa.owner, f.ssa.owner]).splitlines()[:2] == [
        "2 ops: %first = aten.exp, %second = aten.neg",
        "  no rule made these ops; the import did",
    ]
    last = list(g.block.ops)[-1]
    assert explain_ops([last]).splitlines()[-1] == "  from an unknown place"
    assert find(g.block, "%first") == find(g.block, "first_0") == find(g.block, "model.py:10") == [e.ssa.owner]
    assert find(g.block, "model.py:1") == find(g.block, "firs") == []


def test_why_not_counts_other_ops_and_takes_the_last_match():
    never = declare(lambda a, c, x: Rewrite(a.exp(x), to=c.made(x), where=[x.rank == 9]), name="never")
    refuses = op_rule("recover", "aten.exp", name="refuses")(lambda op, c: op.reject(f"no {op.operation.name}"))
    silent = op_rule("recover", "aten.exp", name="silent")(lambda op, c: None)
    g = Graph()
    first, second = g.exp(g.inputs[0], hint="a"), g.exp(g.inputs[1], hint="b")
    g.use(first, second)
    assert why_not_in(refuses, g.block, Context(namespace=TABLE)).splitlines() == [
        "refuses: at %a = aten.exp the rule says: no aten.exp (and at 1 other ops)",
        "  %a = aten.exp is from %a_0 in layer at model.py:10",
    ]
    assert why_not_in(silent, g.block, Context(namespace=TABLE)).startswith(
        "silent: at %a = aten.exp the rule returns no replacement (and"
    )
    assert why_not_in(never, g.block).startswith(
        "never: matched 1 of 1 op up from %a = aten.exp, then at aten.exp (%a): "
    )
    opened = declare(lambda a, c, x: Rewrite(a.exp(x), to=c.made(x)), name="opened")
    before = g.names
    assert why_not_in(opened, g.block) == "opened matches at %b = aten.exp (%b_1 in layer at model.py:11)"
    assert g.names == before


def test_why_not_says_which_argument_differs():
    @declare
    def twice(a, c, x, d: Attr):
        return Rewrite(a.permute(a.permute(x, dims=[d, ANY]), dims=[d, ANY]), to=c.made(x))

    @declare
    def affine(a, c, x):
        return Rewrite(a.native_layer_norm(x, ANY, ANY, None, eps=ANY)[0], to=c.made(x))

    @declare
    def shaped(a, c, x, y):
        root = a.relu(any_of(a.neg(x), a.exp(y)))
        return Rewrite(root, to=c.made(x), where=[(x.rank == 2) | (y.rank == 3)])

    g = Graph()
    inner = g.permute(g.inputs[0], dims=[1, 0])
    g.use(g.permute(inner, dims=[0, 1]))
    assert "argument dims is 1, not 0" in why_not_in(twice, g.block)
    g = Graph()
    g.use(*g.native_layer_norm(g.inputs[0], [8], None, None, 1e-5, types=[MATRIX] * 3))
    assert "an operand is None, not ANY" in why_not_in(affine, g.block)
    g = Graph()
    g.use(g.relu(g.exp(g.inputs[0])))
    reason = "`(x.rank == 2) | (y.rank == 3)` cannot hold: x is not part of the alternative that matched"
    assert reason in why_not_in(shaped, g.block)


def test_why_not_of_a_rule_with_a_function_that_applies():
    applies = op_rule("recover", "aten.exp", name="applies")(lambda op, c: op["self"])
    g = Graph()
    g.use(g.exp(g.inputs[0], hint="a"))
    assert (
        why_not_in(applies, g.block, Context(namespace=TABLE))
        == "applies applies at %a = aten.exp (%a_0 in layer at model.py:10)"
    )
    assert g.names[0] == "aten.exp"
