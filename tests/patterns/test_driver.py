"""Running rules over blocks: order, replacement, dead ops, locations, ends."""

from __future__ import annotations

import re
from typing import Any

import pytest

from patcomp.errors import RuleError, StageError
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.locations import origins, rules
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block, OpResult
from patcomp.patterns import (
    Attr,
    Const,
    Context,
    Index,
    Rewrite,
    RuleSet,
    any_of,
    call,
    check,
    compute,
    op_rule,
    rule,
    run,
    tag,
)
from tests.patterns.failing_rules import _unpack, failing_condition, failing_function, unsigned
from tests.patterns.graphs import CALLS, MATRIX, TABLE, Graph, declare

MADE = "builtin.unrealized_conversion_cast"


@declare
def silu(a, c, x):
    return Rewrite(x * a.sigmoid(x), to=c.made(x, kind="silu"))


@declare
def swiglu(a, c, x, y):
    return Rewrite(x * a.sigmoid(x) * y, to=c.made(x, y, kind="swiglu"))


def test_the_largest_rule_is_found_first():
    g = Graph()
    x, y = g.inputs
    g.use(g.mul(y, g.mul(g.sigmoid(x), x)))
    statistics = run(g.block, RuleSet([silu, swiglu]))
    assert statistics.fired == {"swiglu": 1}
    assert g.names == [MADE, MADE]
    assert statistics.sweeps == 2


def test_dead_ops_and_their_constants_are_erased_and_others_stay():
    scale = declare(lambda a, c, x, k: Rewrite(a.exp(x) * 2.0 + k, to=c.made(x, k)), name="scale")
    g = Graph()
    x, y = g.inputs
    with Builder(g.block):
        two, kept = coreai.constant(2.0), coreai.constant(2.0)
    unrelated = g.sin(x)
    g.use(g.add(g.mul(g.exp(x), two), y), kept)
    run(g.block, RuleSet([scale]))
    assert unrelated.ssa.owner.parent is g.block
    assert g.names == ["coreai.constant", "aten.sin", MADE, MADE]


def test_locations_names_and_attributes_of_what_is_made():
    scale = declare(
        lambda a, c, x, k: Rewrite(a.exp(x) * k, to=c.made(x, twice=compute("2", lambda match: 2), rank=x.rank)),
        name="scale",
    )
    g = Graph()
    x, y = g.inputs
    g.use(g.mul(g.exp(x), y, hint="product"))
    run(g.block, RuleSet([scale]))
    new = g.block.first_op
    assert new.name == MADE
    assert new.results[0].name_hint == "product"
    assert rules(new.location) == ("scale",)
    assert [origin.node for origin in origins(new.location)] == ["product_1", "exp_0"]
    assert CALLS[-1] == {"twice": 2, "rank": 2}


def test_rewrites_cascade_through_what_they_make():
    @rule(stage="normalize", into=aten_namespace)
    def double_neg(a, c, x):
        return Rewrite(a.neg(-x), to=x)

    @rule(stage="normalize", into=aten_namespace)
    def sub_to_add(a, c, x, y):
        return Rewrite(x - y, to=c.add(x, c.neg(y)))

    g = Graph()
    x, y = g.inputs
    g.use(g.sub(x, g.neg(g.neg(g.neg(y)))))
    statistics = run(g.block, RuleSet([double_neg, sub_to_add]))
    assert g.names == ["aten.add.Tensor", MADE]
    assert statistics.fired == {"sub_to_add": 1, "double_neg": 2}
    assert statistics.sweeps == 2


def test_a_long_chain_folds_in_one_sweep():
    @rule(stage="normalize", into=aten_namespace)
    def permute_permute(a, c, x):
        return Rewrite(a.permute(a.permute(x, dims=[0, 1]), dims=[0, 1]), to=c.permute(x, dims=[0, 1]))

    g = Graph()
    value = g.inputs[0]
    for _ in range(300):
        value = g.permute(value, dims=[0, 1])
    g.use(value)
    statistics = run(g.block, RuleSet([permute_permute]))
    assert g.names == ["aten.permute", MADE]
    assert statistics.sweeps == 2


def test_several_results_and_optional_captures():
    @declare
    def normed(a, c, x, w, b, eps: Attr):
        layer = any_of(
            a.native_layer_norm(x, [8], w, b, eps)[0],
            a.native_layer_norm(x, [8], w, None, eps)[0],
            tag="form",
            tags=["affine", "scaled"],
        )
        return Rewrite(layer, to=c.made(x, w, b, eps=eps, form=tag("form")))

    @declare
    def maximum(a, c, x, d: Attr):
        return Rewrite(a.op("max.dim", x, d, False), to=c.made(x, axis=d))

    g = Graph()
    x, y = g.inputs
    values, indices = g.op("max.dim", x, dim=1, types=[MATRIX, MATRIX], hint="m")
    layer = g.native_layer_norm(x, [8], y, None, 1e-5, types=[MATRIX] * 3)[0]
    g.use(values, indices, layer)
    statistics = run(g.block, RuleSet([normed, maximum]))
    assert statistics.fired == {"normed": 1, "maximum": 1}
    first, second, _ = g.block.ops
    assert [result.name_hint for result in first.results] == ["m", "m"]
    assert len(second.operands) == 2
    assert {"eps": 1e-5, "form": "scaled"} in CALLS


def test_regions_are_rewritten_but_matches_do_not_cross_them():
    g = Graph()
    x, _ = g.inputs
    s = g.sigmoid(x)
    with Builder(g.block) as builder:

        def body(*_):
            return [aten_namespace.build("mul", [x, s], {}, [MATRIX])]

        def whole(*_):
            inside = aten_namespace.build("sigmoid", [x], {}, [MATRIX])
            return [aten_namespace.build("mul", [x, inside], {}, [MATRIX])]

        condition = builder.constant(*_boolean())
        results = coreai.if_(condition, lambda: body(), lambda: whole())
    g.use(*results)
    statistics = run(g.block, RuleSet([silu]))
    assert statistics.fired == {"silu": 1}
    inner = next(op for op in g.block.ops if op.name == "coreai.if")
    assert [[op.name for op in region.block.ops] for region in inner.regions] == [
        ["aten.mul.Tensor", "coreai.yield"],
        [MADE, "coreai.yield"],
    ]


def test_what_a_rule_builds_inside_regions_is_rewritten_at_once():
    @op_rule("recover", "aten.exp")
    def branches(op, c):
        x = op["self"]
        product = aten_namespace.build
        inside = lambda: [product("mul", [x, product("sigmoid", [x], {}, [MATRIX])], {}, [MATRIX])]  # noqa: E731
        return coreai.if_(coreai.constant(True, "i1"), inside, inside)[0]

    g = Graph()
    g.use(g.exp(g.inputs[0]))
    statistics = run(g.block, RuleSet([branches, silu]), Context(namespace=TABLE))
    assert statistics.fired == {"branches": 1, "silu": 2}
    assert statistics.sweeps == 2


def _boolean():
    from patcomp.ir.elements import to_numpy

    return to_numpy(True, "i1")


def test_rules_that_undo_each_other_are_named():
    there = rule(into=aten_namespace, name="there")(lambda a, c, x, y: Rewrite(x + y, to=c.sub(x, y)))
    back = rule(into=aten_namespace, name="back")(lambda a, c, x, y: Rewrite(x - y, to=c.add(x, y)))
    g = Graph()
    g.use(g.add(*g.inputs))
    with pytest.raises(
        StageError, match=r"of the last 100 rewrites: (there|back) \(50\), (there|back) \(50\)"
    ) as caught:
        run(g.block, RuleSet([there, back]))
    assert "%add_0 in layer at model.py:10" in str(caught.value)


def test_a_rule_that_grows_the_module_for_ever_is_stopped():
    grow = rule(into=aten_namespace, name="grow")(lambda a, c, x: Rewrite(a.neg(x), to=c.neg(c.neg(x))))
    g = Graph()
    g.use(g.neg(g.inputs[0]))
    with pytest.raises(StageError, match=r"200 rewrites are too many; .* grow \(100\)"):
        run(g.block, RuleSet([grow]), max_rewrites=200)


def test_as_many_rewrites_as_the_limit_are_too_many():
    opened = declare(lambda a, c, x: Rewrite(a.exp(x), to=c.made(x)), name="opened")

    def exponentials() -> Block:
        g = Graph()
        g.use(*(g.exp(g.inputs[0]) for _ in range(3)))
        return g.block

    assert run(exponentials(), RuleSet([opened]), max_rewrites=4).rewrites == 3
    with pytest.raises(StageError, match="3 rewrites are too many"):
        run(exponentials(), RuleSet([opened]), max_rewrites=3)


def test_the_search_fuel_is_reported():
    def ambiguous(a, c, x, y):
        return Rewrite((x * y) * (y * x), to=c.made(x))

    g = Graph()
    x, y = g.inputs
    g.use(g.mul(g.mul(x, y), g.mul(x, y)))
    statistics = run(g.block, RuleSet([declare(ambiguous)]), Context(fuel=3))
    assert statistics.exhausted == {"ambiguous": 1}
    assert statistics.rewrites == 0


def test_the_replacement_must_have_the_type():
    @rule(into=TABLE)
    def wrong(a, c, x):
        return Rewrite(a.exp(x), to=x)

    g = Graph([tensor((2, 4), "f32")])
    g.use(g.exp(g.inputs[0]))
    with pytest.raises(
        RuleError, match=r"wrong .* gives tensor<2x4xf32> for result 0 of aten.exp, which is tensor<2x8xf32>"
    ):
        run(g.block, RuleSet([wrong]))
    assert g.names == ["aten.exp", MADE]


def test_a_target_that_builds_an_invalid_op_is_reported_and_taken_back():
    from patcomp.ir.namespaces import coreai_namespace

    @rule(into=coreai_namespace)
    def invalid(a, c, x, y):
        return Rewrite(x + y, to=c.add(c.exp(x), y))

    g = Graph([MATRIX, tensor((3, 5), "f32")])
    g.use(g.add(*g.inputs))
    with pytest.raises(RuleError, match=r"rule invalid .* built an invalid op for aten.add.Tensor"):
        run(g.block, RuleSet([invalid]))
    assert g.names == ["aten.add.Tensor", MADE]


def test_equal_rules_are_reported_as_overlapping():
    first = declare(lambda a, c, x, y: Rewrite(a.exp(x) * y, to=c.made(x)), name="first")
    second = declare(lambda a, c, x, y: Rewrite(x * a.exp(y), to=c.made(x)), name="second")
    g = Graph()
    x, y = g.inputs
    g.use(g.mul(g.exp(x), y))
    statistics = run(g.block, RuleSet([first, second]))
    overlap = statistics.overlaps[0]
    assert (overlap.taken, overlap.other, overlap.place) == ("first", "second", "%mul_1 in layer at model.py:11")


def test_priority_goes_before_size():
    preferred = declare(lambda a, c, x: Rewrite(x * a.sigmoid(x), to=c.made(x)), name="preferred", priority=1)
    g = Graph()
    x, y = g.inputs
    g.use(g.mul(g.mul(g.sigmoid(x), x), y))
    everything = declare(lambda a, c, x, y: Rewrite(x * y, to=c.made(x)), name="everything", priority=2)
    assert run(g.block, RuleSet([swiglu, preferred, everything])).fired == {"everything": 2}


# ---- procedural rules -----------------------------------------------------------------------------


class _Target:
    def __getattr__(self, name):
        return lambda x: aten_namespace.build(name, [x], {}, [x.ssa.type])


def test_procedural_rules_run_beside_declarative_ones():
    g = Graph([MATRIX, tensor((8,), "f32")])
    x, w = g.inputs
    g.use(g.neg(x), g.abs(x), g.neg(w), g.mul(x, g.sigmoid(x)))
    statistics = run(g.block, RuleSet([unsigned, silu]), Context(namespace=_Target()))
    assert statistics.fired == {"unsigned": 1, "silu": 1}
    assert statistics.rules["unsigned"].tries >= 3
    assert g.names == ["aten.relu", "aten.exp", "aten.abs", "aten.neg", MADE, MADE]
    assert rules(list(g.block.ops)[1].location) == ("unsigned",)


def test_procedural_rules_need_a_namespace():
    g = Graph()
    g.use(g.neg(g.inputs[0]))
    with pytest.raises(RuleError, match="needs namespace="):
        run(g.block, RuleSet([unsigned]))


def test_an_index_serves_several_runs():
    index = Index([silu, swiglu])
    for _ in range(3):
        g = Graph()
        x, y = g.inputs
        g.use(g.mul(g.mul(x, g.sigmoid(x)), y))
        assert run(g.block, index).fired == {"swiglu": 1}


def test_an_index_forgets_what_many_models_would_fill_it_with(monkeypatch):
    monkeypatch.setattr("patcomp.patterns.index.LIMIT", 2)
    index, sizes = Index([silu, swiglu]), []
    for number in range(6):
        g = Graph()
        x, y = g.inputs
        g.use(g.mul(g.mul(x, g.sigmoid(x)), y), g.pow(x, float(number)))
        assert run(g.block, index).fired == {"swiglu": 1}
        sizes.append(index.transitions)
    assert len(set(sizes)) == 1


def test_a_condition_on_types_and_constants_is_asked_once_for_all_ops_that_have_them():
    asked: list[tuple[Any, float]] = []

    def wanted(shape: Any, number: float) -> bool:
        asked.append((shape, number))
        return shape == (2, 8) and number == 3

    @declare
    def power(a, c, x, k: Const):
        return Rewrite(a.pow(x, k), to=c.made(x), where=[call(wanted, x.shape, k.value)])

    index, row = Index([power]), tensor((8,), "f32")
    for _ in range(2):
        g = Graph([MATRIX, MATRIX, row])
        x, y, z = g.inputs
        g.use(g.pow(x, 2.0), g.pow(y, 2.0), g.pow(x, 3.0), g.pow(z, 3.0, types=[row]))
        assert run(g.block, index).fired == {"power": 1}
    refused = [((2, 8), 2.0), ((8,), 3.0)]
    assert [asked.count(facts) for facts in refused] == [1, 1]
    assert set(asked) == {*refused, ((2, 8), 3.0)}


def test_a_condition_on_other_ops_is_asked_at_each_op():
    @declare
    def of_sine(a, c, x):
        return Rewrite(a.exp(x), to=c.made(x), where=[check("x is a sine", lambda m: made_by(m["x"], "aten.sin"))])

    def made_by(value: Value, name: str) -> bool:
        return isinstance(value.ssa, OpResult) and value.ssa.op.name == name

    index = Index([of_sine])
    for function, fired in (("cos", {}), ("sin", {"of_sine": 1})):
        g = Graph()
        g.use(g.exp(getattr(g, function)(g.inputs[0])))
        assert run(g.block, index).fired == fired


def test_equal_operands_are_told_from_different_ones_of_their_type():
    @declare
    def twice(a, c, x):
        return Rewrite(x + x, to=c.made(x), where=[x.rank == 2])

    index = Index([twice])
    for position, fired in ((1, {}), (0, {"twice": 1}), (1, {})):
        g = Graph()
        g.use(g.add(g.inputs[0], g.inputs[position]))
        assert run(g.block, index).fired == fired


def test_constants_captured_by_the_rule():
    @declare
    def power(a, c, x, k: Const):
        return Rewrite(a.pow(x, k), to=c.made(x, power=k.value), where=[k.value == 3])

    block = Graph()
    x = block.inputs[0]
    block.use(block.pow(x, 3.0), block.pow(x, 2.0))
    run(block.block, RuleSet([power]))
    assert CALLS[-1] == {"power": 3.0}
    assert block.names == [MADE, "coreai.constant", "aten.pow.Tensor_Tensor", MADE]


def test_nothing_to_do_on_an_empty_block():
    assert run(Block(), RuleSet([silu])).sweeps == 1
    assert Value(Graph().block.args[0]).rank == 2


# ---- procedural rules that replace results of several ops --------------------------------------------


@op_rule("recover", "aten.sin", size=2)
def pair(op, c):
    "exp(x) and sin(x) are made together"
    x = op["self"]
    (other,) = [use.operation for use in x.ssa.uses if use.operation.name == "aten.exp"]
    op.cover(other)
    made, again = TABLE.build("made", [x, x], {}, [MATRIX, MATRIX])
    op.replace(Value(other.results[0]), again)
    return made


def test_users_of_values_that_a_rule_replaces_besides_its_op_are_moved_behind_it():
    g = Graph()
    x, y = g.inputs
    g.use(g.neg(g.mul(g.exp(x), y)), g.cos(y), g.sin(x))
    statistics = run(g.block, RuleSet([pair]), Context(namespace=TABLE))
    assert statistics.fired == {"pair": 1}
    assert g.names == ["aten.cos", MADE, "aten.mul.Tensor", "aten.neg", MADE]


def test_users_behind_the_op_stay_where_they_are():
    g = Graph()
    x, _ = g.inputs
    e, s = g.exp(x), g.sin(x)
    g.use(g.mul(g.cos(s), e))
    assert run(g.block, RuleSet([pair]), Context(namespace=TABLE)).fired == {"pair": 1}
    assert g.names == [MADE, "aten.cos", "aten.mul.Tensor", MADE]


def test_a_rule_that_would_depend_on_what_it_replaces_does_not_happen():
    @op_rule("recover", "aten.sin", size=2)
    def circular(op, c):
        x = op["self"]
        op.replace(Value(x.ssa.owner.operands[0]), TABLE.build("made", [x], {}, [MATRIX]))
        return x

    g = Graph()
    x, _ = g.inputs
    g.use(g.sin(g.neg(g.exp(x))))
    assert run(g.block, RuleSet([circular]), Context(namespace=TABLE)).fired == {}
    assert g.names == ["aten.exp", "aten.neg", "aten.sin", MADE]


# ---- rules that fail ---------------------------------------------------------------------------------


@declare
def failing_target(a, c, x):
    return Rewrite(a.exp(x), to=c.made(c.made(x), first=compute("the first", _unpack)))


@pytest.mark.parametrize("failing", [failing_condition, failing_target, failing_function], ids=lambda rule: rule.name)
def test_a_rule_that_fails_is_skipped_and_noted_once_or_ends_a_strict_run(failing):
    g = Graph()
    x, y = g.inputs
    g.use(g.exp(x), g.exp(y), g.mul(x, g.sigmoid(x)))
    with pytest.raises(RuleError, match=rf"rule {failing.name} \({re.escape(failing.source)}\) failed: \w+Error: "):
        run(g.block, RuleSet([failing]), Context(namespace=_Target()))
    statistics = run(g.block, RuleSet([failing, silu]), Context(namespace=_Target(), strict=False))
    assert g.names == ["aten.exp", "aten.exp", MADE, MADE]
    assert statistics.fired == {"silu": 1}
    ((name, problem),) = statistics.failures.items()
    assert name == failing.name
    assert problem.message.startswith(f"rule {name} ({failing.source}) failed: ")
    assert (problem.op, problem.module_path, problem.source) == ("aten.exp", "layer", "model.py:11")
    assert "skipped" in problem.advice


def test_a_rule_that_breaks_its_promise_is_broken_too():
    @op_rule("recover", "aten.exp")
    def gives_a_number(op, c):
        return op["self"].rank

    g = Graph()
    g.use(g.exp(g.inputs[0]))
    with pytest.raises(
        RuleError, match=r"the function returned 2 for aten.exp, which is not a value \(op aten.exp, node %exp_0, "
    ):
        run(g.block, RuleSet([gives_a_number]), Context(namespace=_Target()))
    statistics = run(g.block, RuleSet([gives_a_number]), Context(namespace=_Target(), strict=False))
    assert "the function returned 2 for aten.exp, which is not a value" in statistics.failures["gives_a_number"].message
    assert not statistics.fired


def test_a_result_that_nobody_reads_needs_no_value():
    @op_rule("recover", "aten.max.dim")
    def without_indices(op, c):
        op.ignore("dim", "keepdim", because="the test")
        return [c.relu(op["self"]), None]

    for used in ((0,), (0, 1)):
        g = Graph()
        results = g.op("max.dim", g.inputs[0], dim=1, types=[MATRIX, MATRIX], hint="m")
        for index in used:
            g.use(results[index])
        if used == (0,):
            assert run(g.block, RuleSet([without_indices]), Context(namespace=_Target())).fired == {
                "without_indices": 1
            }
            assert g.names[0] == "aten.relu"
        else:
            with pytest.raises(RuleError, match=r"the function returned None for aten.max.dim, which is not a value"):
                run(g.block, RuleSet([without_indices]), Context(namespace=_Target()))
