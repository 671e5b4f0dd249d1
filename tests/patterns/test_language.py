"""What a declaration may say, and what is wrong about the ones that cannot mean anything."""

from __future__ import annotations

import pytest

from patcomp.errors import RuleError
from patcomp.ir import coreai
from patcomp.ir.composite import composite
from patcomp.ir.namespaces import aten_namespace, coreai_namespace
from patcomp.patterns import (
    ANY,
    Attr,
    CompositeTable,
    Const,
    Rewrite,
    RuleSet,
    any_of,
    check,
    is_in,
    rule,
    tag,
)
from patcomp.patterns.language import SourceNamespace
from tests.patterns.graphs import TABLE, declare

a = SourceNamespace(aten_namespace)


def test_a_rule_knows_its_name_text_place_and_size():
    @rule(stage="recover", into=TABLE)
    def norm(a, c, x, w, eps: Const):
        "A norm."
        f = any_of(a._to_copy(x, dtype=ANY), x)
        n = f * a.rsqrt(a.mean(a.pow(f, 2.0), dim=[-1], keepdim=True, dtype=None) + eps)
        return Rewrite(any_of(a._to_copy(n, dtype=ANY), n) * w, to=c.made(x, w, eps=eps.value), where=[w.rank == 1])

    assert (norm.name, norm.stage, norm.doc, norm.size) == ("norm", "recover", "A norm.", 8)
    assert norm.source.startswith("patterns/test_language.py:")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x, y: a.mean(x, dim=[-1], keepdim=True, dtype=None), "aten.mean.dim"),
        (lambda x, y: a.mean(x, dtype=None), "aten.mean"),
        (lambda x, y: a.pow(x, 2.0), "aten.pow.Tensor_Tensor"),
        (lambda x, y: a.div(x, y), "aten.div.Tensor"),
        (lambda x, y: a.div(x, y, rounding_mode="floor"), "aten.div.Tensor_mode"),
        (lambda x, y: a.add(x, 1.0, alpha=1), "aten.add.Tensor"),
        (lambda x, y: a.sum(x, dim=[0], keepdim=ANY, dtype=ANY), "aten.sum.dim_IntList"),
        (lambda x, y: a.max(x, dim=1, keepdim=False), "aten.max.dim"),
        (lambda x, y: a.any(x, dim=[1], keepdim=False), "aten.any.dims"),
        (lambda x, y: a.any(x, dim=1, keepdim=False), "aten.any.dim"),
        (lambda x, y: a.where(x, y, 0.0), "aten.where.self"),
        (lambda x, y: a.op("pow.Tensor_Scalar", x, 2.0), "aten.pow.Tensor_Scalar"),
        (lambda x, y: -x, "aten.neg"),
        (lambda x, y: x @ y, "aten.matmul"),
        (lambda x, y: 1.0 / x, "aten.div.Tensor"),
        (lambda x, y: 2.0**x, "aten.pow.Tensor_Tensor"),
        (lambda x, y: 1 - x, "aten.sub.Tensor"),
    ],
)
def test_the_overload_follows_from_the_arguments(call, name):
    named = []

    def probe(a, c, x, y):
        named.append(call(x, y).spec.name)
        return Rewrite(x + y, to=c.made(x))

    declare(probe)
    assert named == [name]


def _error(function, **options) -> str:
    with pytest.raises(RuleError) as caught:
        declare(function, **options)
    return str(caught.value)


def test_an_argument_left_out_is_an_error_even_with_a_default():
    def broken(a, c, x):
        return Rewrite(a.mean(x, dim=[-1], keepdim=True), to=c.made(x))

    assert "aten.mean.dim does not mention dtype; give a literal, a capture or ANY" in _error(broken)
    assert "rule broken (patterns/test_language.py:" in _error(broken)


def test_an_explicit_op_names_what_is_missing():
    def broken(a, c, x):
        return Rewrite(a.op("mean.dim", x, dim=[-1], dtype=None), to=c.made(x))

    assert "aten.mean.dim does not mention keepdim" in _error(broken)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda a, x: a.no_such_op(x), "aten has no op 'no_such_op'"),
        (lambda a, x: a.op("mean.nothing", x), "aten has no op 'mean.nothing'"),
        (lambda a, x: a.cumsun(x), "aten has no op 'cumsun'; did you mean cumsum?"),
        (lambda a, x: a.op("aten.mean.dims", x), "aten has no op 'aten.mean.dims'; did you mean mean.dim"),
        (lambda a, x: a.relu(x, x), "takes 1 arguments"),
        (lambda a, x: a.relu(x, inplace=True), "has no argument inplace"),
        (lambda a, x: a.relu(x, self=x), "self is given twice"),
        (lambda a, x: a.relu("text"), "'text' cannot stand there"),
        (lambda a, x: a.cat(x, dim=0), "tensors is a list of tensors"),
        (lambda a, x: a.permute(x, dims=x), "dims is not a tensor; annotate x with Attr"),
        (lambda a, x: a.relu(a.op("max.dim", x, dim=1, keepdim=ANY)), "several results; pick one"),
        (lambda a, x: a.op("max.dim", x, dim=1, keepdim=ANY)[2], "has 2 results"),
        (lambda a, x: any_of(a.relu(x)), "at least two alternatives"),
        (lambda a, x: any_of(a.relu(x), a.neg(x), tag="t", tags=["one"]), "2 alternatives and 1 tags"),
        (lambda a, x: any_of(a.relu(x), a.neg(x), tags=["one", "two"]), "no tag= to read them by"),
        (lambda a, x: any_of(a.relu(x), x), "it would match every value"),
        (lambda a, x: x, "the source is"),
        (lambda a, x: a.permute(x, dims=[x.shape[0]]), "cannot be the expression `x.shape[0]`"),
        (lambda a, x: a.native_layer_norm(x, ANY, None, None, ANY) if x.rank == 1 else x, "no truth value"),
    ],
)
def test_source_errors(source, message):
    def broken(a, c, x):
        return Rewrite(source(a, x), to=c.made(x))

    assert message in _error(broken)


def test_capture_errors():
    def unused(a, c, x, y):
        return Rewrite(a.relu(x), to=c.made(x))

    def annotated(a, c, x: int):
        return Rewrite(a.relu(x), to=c.made(x))

    def unmatched(a, c, x):
        return Rewrite(a.relu(x), to=c.made(a.neg(x)))

    def tensor_attribute(a, c, x: Attr):
        return Rewrite(a.relu(x), to=c.made(x))

    def unknown_tag(a, c, x):
        return Rewrite(a.relu(x), to=c.made(x, form=tag("form")))

    def python_condition(a, c, x):
        return Rewrite(a.relu(x), to=c.made(x), where=[True])

    def returned_nothing(a, c, x):
        a.relu(x)

    assert "the source does not use the parameter y" in _error(unused)
    assert "a capture is Capture, Const or Attr" in _error(annotated)
    assert "the target uses aten.neg(x), which the source does not match" in _error(unmatched)
    assert "annotated Attr; drop the annotation" in _error(tensor_attribute)
    assert 'reads tag("form"), which no any_of sets' in _error(unknown_tag)
    assert "where= holds True" in _error(python_condition)
    assert "not a Rewrite" in _error(returned_nothing)
    assert "the captures are ['x']" in _error(lambda a, c, x: Rewrite(a.relu(x), to=c.made(x)), example={"y": "f32"})


def test_a_target_op_must_exist_when_rules_are_collected():
    table = CompositeTable("later")

    @rule(into=table)
    def uses_later(a, c, x):
        return Rewrite(a.relu(x), to=c.defined_later(x))

    rules = RuleSet([uses_later])
    with pytest.raises(RuleError, match="later has no op 'defined_later'"):
        rules.check()
    table.define(composite("defined_later", inputs=("x",))(lambda c, x: x))
    rules.check()
    with pytest.raises(RuleError, match="already has"):
        table.define(composite("defined_later", inputs=("x",))(noted))


def test_a_composite_can_be_defined_again_and_rules_keep_theirs():
    table = CompositeTable("again")

    def declared(factor):
        @table.define
        @composite("scaled", inputs=("x",))
        def scaled(c, x):
            return c.broadcasting_mul(x, factor)

        @rule(into=table, name=f"scaled {factor}")
        def relu_scaled(a, c, x):
            return Rewrite(a.relu(x), to=c.scaled(x))

        return scaled, relu_scaled

    first, old = declared(2)
    second, new = declared(3)
    assert [old.to.function, new.to.function] == [first, second]
    assert table.spec("scaled") is second


def noted(c, x):
    return x


def test_texts_of_arguments():
    texts = []

    def probe(a, c, x, eps: Const):
        texts.append(str(a.gelu(x + eps, approximate="tanh")))
        return Rewrite(a.relu(x + eps), to=c.made(x))

    declare(probe)
    assert texts == ["aten.gelu(aten.add.Tensor(x, eps, 1), approximate='tanh')"]


def test_conditions_keep_their_text():
    texts = []

    def probe(a, c, x, w, eps: Const, half: Attr, end: Attr):
        for condition in (
            x.rank == 1,
            x.shape[-1] == half * 2,
            (half + 1) * 2 == end,
            half - (end - 1) > 0,
            x.dtype == "f32",
            eps.value < 1e-2,
            (x.rank == 1) & ~(w.rank > 2) | (x.dtype != "f16"),
            is_in(x.dtype, "f16", "f32"),
            x.shape[:-1] == w.shape[:-1],
            half.is_in(1, 2),
            x.is_static,
            check("x is pretty", lambda match: True),
            -half + end // 2 % 3,
        ):
            texts.append(str(condition))
        return Rewrite(a.slice(x, 0, half, end, 1) * w + eps, to=c.made(x))

    declare(probe)
    assert texts == [
        "x.rank == 1",
        "x.shape[-1] == half * 2",
        "(half + 1) * 2 == end",
        "half - (end - 1) > 0",
        'x.dtype == "f32"',
        "eps.value < 0.01",
        '((x.rank == 1) & ~(w.rank > 2)) | (x.dtype != "f16")',
        'x.dtype.is_in("f16", "f32")',
        "x.shape[:-1] == w.shape[:-1]",
        "half.is_in(1, 2)",
        "x.is_static",
        "x is pretty",
        "-half + end // 2 % 3",
    ]


def test_rules_of_the_other_dialect():
    @rule(source=coreai_namespace, into=coreai_namespace, stage="optimize")
    def double_transpose(s, c, x, first: Const, second: Const):
        inner = s.transpose(x, first)
        return Rewrite(s.transpose(inner, second), to=c.transpose(x, first), where=[first.rank == 1])

    assert double_transpose.size == 2

    def mixed(a, c, x):
        return Rewrite(a.relu(SourceNamespace(coreai_namespace).relu(x)), to=c.made(x))

    assert "coreai.relu is not an op of aten" in _error(mixed)


def test_a_misspelt_op_of_core_ai_is_an_error_that_suggests_names():
    with pytest.raises(AttributeError, match=r"'reduce_summ'; did you mean reduce_sum"):
        coreai.reduce_summ  # noqa: B018

    @rule(source=coreai_namespace, into=coreai_namespace, stage="optimize")
    def misspelt(s, c, x):
        return Rewrite(s.relu(x), to=c.reluu(x))

    with pytest.raises(RuleError, match=r"coreai has no op 'reluu'; did you mean relu"):
        RuleSet([misspelt]).check()


def test_no_attribute_of_a_namespace_hides_an_op():
    for view in (aten_namespace, coreai_namespace):
        own = [name for name in dir(SourceNamespace(view)) if not name.startswith("_")]
        assert "op" in own
        assert [name for name in own if view.candidates(name)] == []
    assert a.view(a.relu(ANY), size=ANY).spec.name == "aten.view"
