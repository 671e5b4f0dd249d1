"""Matching one rule at one op."""

from __future__ import annotations

import numpy as np
import pytest

from patcomp.errors import RuleError
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block
from patcomp.patterns import ANY, Attr, Const, Context, Rewrite, RuleSet, any_of, check, rule, run, tag
from patcomp.patterns.index import Index
from patcomp.patterns.match import Matcher, same_literal
from tests.patterns.graphs import MATRIX, TABLE, Graph, declare, match


@declare
def norm(a, c, x, w, eps: Const):
    f = any_of(a._to_copy(x, dtype=ANY), x)
    n = f * a.rsqrt(a.mean(a.pow(f, 2.0), dim=[-1], keepdim=True, dtype=None) + eps)
    return Rewrite(
        any_of(a._to_copy(n, dtype=ANY), n) * w,
        to=c.made(x, w, eps=eps.value),
        where=[w.rank == 1, w.shape[0] == x.shape[-1]],
    )


def _norm(g, x, w, *, cast=False, swap=(False, False, False), power=2.0, dim=-1, eps=1e-5):
    def commuted(op, left, right, which):
        return op(right, left) if swap[which] else op(left, right)

    f = g._to_copy(x, dtype="f32") if cast else x
    mean = g.op("mean.dim", g.pow(f, power), dim=[dim], keepdim=True, types=[tensor((2, 1), "f32")])
    summed = commuted(g.add, mean, _constant(g, eps), 0)
    n = commuted(g.mul, f, g.rsqrt(summed), 1)
    n = g._to_copy(n, dtype="f16") if cast else n
    return commuted(g.mul, n, w, 2)


def _constant(g, values, element="f32"):
    with Builder(g.block):
        return coreai.constant(values, element)


@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("swap", [(False,) * 3, (True, False, False), (False, True, False), (True, True, True)])
def test_alternatives_and_operand_orders(cast, swap):
    g = Graph([MATRIX, tensor((8,), "f32")])
    x, w = g.inputs
    found = match(norm, _norm(g, x, w, cast=cast, swap=swap))
    assert found is not None
    assert found["x"] == x
    assert found["w"] == w
    assert norm.graph.captures["eps"].value.evaluate(found) == 1e-5
    assert len(found.ops) == (8 if cast else 6)


@pytest.mark.parametrize("changed", [{"power": 3.0}, {"dim": 0}])
def test_a_changed_literal_does_not_match(changed):
    g = Graph([MATRIX, tensor((8,), "f32")])
    assert match(norm, _norm(g, *g.inputs, **changed)) is None


def test_an_epsilon_that_is_not_constant_does_not_match():
    g = Graph([MATRIX, tensor((8,), "f32"), tensor((), "f32")])
    x, w, eps = g.inputs
    mean = g.op("mean.dim", g.pow(x, 2.0), dim=[-1], keepdim=True)
    assert match(norm, g.mul(g.mul(x, g.rsqrt(g.add(mean, eps))), w)) is None


def test_the_same_capture_is_the_same_value():
    square = declare(lambda a, c, x: Rewrite(x * x, to=c.made(x)), name="square")
    g = Graph()
    x, y = g.inputs
    assert match(square, g.mul(x, x)) is not None
    assert match(square, g.mul(x, y)) is None


def test_attribute_captures_unify_also_inside_lists():
    @declare
    def twice(a, c, x, d: Attr, e: Attr):
        return Rewrite(a.permute(a.permute(x, dims=[d, e]), dims=[e, d]), to=c.made(x), where=[d + e == 1])

    g = Graph()
    x = g.inputs[0]
    assert match(twice, g.permute(g.permute(x, dims=[1, 0]), dims=[0, 1]))["d"] == 1
    assert match(twice, g.permute(g.permute(x, dims=[1, 0]), dims=[1, 0])) is None
    assert match(twice, g.permute(g.permute(x, dims=[2, 0]), dims=[0, 2])) is None


def test_results_and_lists_of_tensors():
    @declare
    def halves(a, c, x):
        parts = a.op("split.Tensor", x, split_size=4, dim=1)
        return Rewrite(a.cat([-parts[1], parts[0]], dim=1), to=c.made(x))

    g = Graph()
    x = g.inputs[0]
    low, high = g.op("split.Tensor", x, 4, dim=1, types=[MATRIX, MATRIX])
    assert match(halves, g.cat([g.neg(high), low], dim=1)) is not None
    assert match(halves, g.cat([g.neg(low), high], dim=1)) is None
    low, high = g.op("split.Tensor", x, 4, dim=1, types=[MATRIX, MATRIX])
    assert match(halves, g.cat([g.neg(high), low, low], dim=1)) is None


def test_a_result_as_the_root_needs_the_other_results_unused():
    @declare
    def values_only(a, c, x):
        return Rewrite(a.op("max.dim", x, dim=1, keepdim=False)[0], to=c.made(x))

    g = Graph()
    values, indices = g.op("max.dim", g.inputs[0], dim=1, types=[MATRIX, MATRIX])
    g.use(values)
    found = match(values_only, values)
    assert found is not None
    assert found.replaced == [values.ssa]
    g.use(indices)
    assert match(values_only, values) is None


def test_optional_tensors_and_any():
    @declare
    def plain(a, c, x):
        return Rewrite(a.native_layer_norm(x, ANY, None, ANY, eps=ANY)[0], to=c.made(x))

    g = Graph()
    x, y = g.inputs
    types = [MATRIX] * 3
    norm_ = g.native_layer_norm(x, [8], None, y, 1e-5, types=types)
    assert match(plain, norm_[0]) is not None
    assert match(plain, g.native_layer_norm(x, [8], y, y, 1e-5, types=types)[0]) is None
    assert match(plain, g.native_layer_norm(x, [8], None, None, 1e-5, types=types)[0]) is None


def test_an_inner_value_must_not_escape():
    inner = declare(lambda a, c, x: Rewrite(a.relu(a.exp(x)), to=c.made(x)), name="inner")
    allowed = declare(lambda a, c, x: Rewrite(a.relu(a.escaping(a.exp(x))), to=c.made(x)), name="allowed")
    g = Graph()
    e = g.exp(g.inputs[0])
    r = g.relu(e)
    g.use(r)
    assert match(inner, r) is not None
    g.use(e)
    assert match(inner, r) is None
    assert match(allowed, r) is not None


def test_a_captured_value_may_be_used_elsewhere():
    @declare
    def gated(a, c, x):
        return Rewrite(x * a.sigmoid(x), to=c.made(x))

    g = Graph()
    e = g.exp(g.inputs[0])
    product = g.mul(g.sigmoid(e), e)
    g.use(e)
    assert match(gated, product)["x"] == e


def test_an_escaping_cast_falls_back_to_the_alternative_without_it():
    @declare
    def activation(a, c, x):
        return Rewrite(a.relu(any_of(a._to_copy(x, dtype=ANY), x, tag="form", tags=["cast", "plain"])), to=c.made(x))

    g = Graph()
    cast = g._to_copy(g.inputs[0], dtype="f32")
    r = g.relu(cast)
    assert match(activation, r).tags == {"form": "cast"}
    g.use(cast)
    found = match(activation, r)
    assert found.tags == {"form": "plain"}
    assert found["x"] == cast


def test_alternatives_at_the_root_and_conditions_on_the_tag():
    @declare
    def either(a, c, x):
        root = any_of(a.relu(x), any_of(a.neg(x), a.exp(x), tag="inner", tags=["neg", "exp"]), tag="root", tags="rn")
        return Rewrite(root, to=c.made(x), where=[(tag("root") == "r") | (tag("inner") == "exp")])

    g = Graph()
    x = g.inputs[0]
    assert match(either, g.relu(x)).tags == {"root": "r"}
    assert match(either, g.exp(x)).tags == {"root": "n", "inner": "exp"}
    assert match(either, g.neg(x)) is None
    assert match(either, g.sin(x)) is None


def test_the_search_reconsiders_an_order_when_a_later_goal_fails():
    @declare
    def ordered(a, c, x, y):
        return Rewrite((a.exp(x) + a.exp(y)) * x, to=c.made(x))

    g = Graph()
    x, y = g.inputs
    assert match(ordered, g.mul(g.add(g.exp(y), g.exp(x)), x)) is not None
    found = match(ordered, g.mul(g.add(g.exp(y), g.exp(x)), y))
    assert (found["x"], found["y"]) == (y, x)


def test_scaled_addition_does_not_commute():
    @declare
    def scaled(a, c, x, y):
        return Rewrite(a.add(a.exp(x), y, alpha=2), to=c.made(x, y))

    g = Graph()
    x, y = g.inputs
    assert match(scaled, g.add(g.exp(x), y, alpha=2)) is not None
    assert match(scaled, g.add(y, g.exp(x), alpha=2)) is None


def test_fuel_ends_a_search_with_too_many_orders():
    def ambiguous(a, c, x):
        node = a.mul(x, ANY)
        for _ in range(16):
            node = node * a.mul(ANY, ANY)
        return Rewrite(node, to=c.made(x), where=[check("never", lambda _: False)])

    g = Graph()
    x, y = g.inputs
    node = g.mul(x, y)
    for _ in range(16):
        node = g.mul(node, g.mul(x, y))
    matcher = Matcher(declare(ambiguous).graph, node.ssa.owner, fuel=5000)
    assert matcher.run() is None
    assert matcher.exhausted


@pytest.mark.parametrize(
    ("element", "value", "literal", "same"),
    [
        ("f32", 0.1, 0.1, True),
        ("f16", 0.1, 0.1, True),
        ("bf16", 0.1, 0.1, True),
        ("f32", 2, 2, True),
        ("f32", 0.1, 0.2, False),
        ("si64", 3, 3, True),
        ("si64", 3, 3.5, False),
        ("si8", 3, 300, False),
        ("i1", True, True, True),
        ("i1", True, 1, False),
        ("f32", 1.0, True, False),
        ("f32", np.full((2, 8), 2.0), 2.0, True),
        ("f32", np.full((1000, 1000), 2.0), 2.0, True),
        ("f32", [1.0, 2.0], 1.0, False),
        ("f32", float("inf"), float("inf"), True),
    ],
)
def test_literals_are_constants_rounded_to_their_element_type(element, value, literal, same):
    times = declare(lambda a, c, x: Rewrite(x * literal, to=c.made(x)), name="times")
    g = Graph()
    product = g.mul(g.inputs[0], _constant(g, value, element))
    assert (match(times, product) is not None) == same


def test_axes_of_the_lower_dialect_are_constants():
    @rule(source=coreai_namespace, into=TABLE)
    def swap(s, c, x):
        return Rewrite(s.transpose(x, [1, 0]), to=c.made(x))

    block = Block(arg_types=[MATRIX])
    with Builder(block):
        x = Value(block.args[0])
        swapped, kept = coreai.transpose(x, [1, 0]), coreai.transpose(x, [0, 1])
        gelu = coreai.gelu(x, approximate="tanh")
    assert match(swap, swapped) is not None
    assert match(swap, kept) is None

    def approximation(kind):
        def approximated(s, c, x):
            return Rewrite(s.gelu(x, approximate=kind), to=c.made(x))

        return rule(source=coreai_namespace, into=TABLE)(approximated)

    assert match(approximation("tanh"), gelu) is not None
    with pytest.raises(RuleError, match=r"approximate is none\|tanh\|sigmoid, not 'tan'"):
        approximation("tan")
    assert match(approximation("none"), gelu) is None


def test_dynamic_dimensions_satisfy_no_condition():
    @declare
    def square_shape(a, c, x):
        return Rewrite(a.relu(x), to=c.made(x), where=[x.shape[0] == x.shape[1]])

    unequal = declare(
        lambda a, c, x: Rewrite(a.relu(x), to=c.made(x), where=[x.shape[0] != x.shape[1]]), name="unequal"
    )
    g = Graph([tensor((None, None), "f32"), tensor((3, 3), "f32")])
    assert match(square_shape, g.relu(g.inputs[0])) is None
    assert match(unequal, g.relu(g.inputs[0])) is None
    assert match(square_shape, g.relu(g.inputs[1])) is not None


def test_element_types_are_names():
    @declare
    def to_half(a, c, x, d: Attr):
        return Rewrite(a._to_copy(a._to_copy(x, dtype="f16"), dtype=d), to=c.made(x), where=[d == x.dtype])

    g = Graph()
    x = g.inputs[0]
    assert match(to_half, g._to_copy(g._to_copy(x, dtype="f16"), dtype="f32"))["d"] == "f32"
    assert match(to_half, g._to_copy(g._to_copy(x, dtype="bf16"), dtype="f32")) is None


def test_a_state_depends_on_where_operands_stand_in_a_list():
    """w[:, x] before w[x] in one process: both ops have the same operands."""

    @declare
    def chosen(a, c, x, y):
        return Rewrite(a.exp(a.op("index.Tensor", y, indices=[x])), to=c.made(x, y))

    @declare
    def second(a, c, x, y):
        return Rewrite(a.exp(a.op("index.Tensor", y, indices=[None, x])), to=c.made(x, y))

    index = Index(RuleSet([chosen, second]))
    for indices, fired in (
        ([None, 0], {"second": 1}),
        ([0], {"chosen": 1}),
        ([0, None], {}),
        ([None, 0], {"second": 1}),
    ):
        g = Graph()
        x, y = g.inputs
        g.use(g.exp(g.op("index.Tensor", y, indices=[None if item is None else x for item in indices])))
        assert run(g.block, index, Context(namespace=TABLE)).fired == fired


LITERALS = [True, False, 1, 0, 2, -1, 1.0, 0.0, 2.5, "1", "", None, [], [1], [1.0], [True], (1,), [1, 2], [[1], 2], "x"]


def _same(literal, actual):
    """The definition, by the types that may stand for each other."""
    if isinstance(literal, list | tuple):
        pairs = zip(literal, actual, strict=True) if isinstance(actual, list | tuple) else ()
        return isinstance(actual, list | tuple) and len(actual) == len(literal) and all(_same(*pair) for pair in pairs)
    kinds = [{int: "number", float: "number"}.get(type(each), type(each)) for each in (literal, actual)]
    return kinds[0] == kinds[1] and literal == actual


@pytest.mark.parametrize("literal", LITERALS, ids=repr)
def test_which_arguments_equal_a_literal(literal):
    assert [actual for actual in LITERALS if same_literal(literal, actual)] == [
        actual for actual in LITERALS if _same(literal, actual)
    ]


def test_a_literal_that_cannot_be_compared_is_an_error():
    with pytest.raises(RuleError, match="cannot be compared"):
        same_literal(object(), 1)


def test_literals_of_rules_and_the_index():
    """A flag is not a number, to the matcher and to the index, whatever op was seen before."""

    def of_flag(flag):
        return lambda a, c, x: Rewrite(a.op("sum.dim_IntList", x, dim=ANY, keepdim=flag, dtype=ANY), to=c.made(x))

    def of_number(number):
        return lambda a, c, x: Rewrite(a.op("select.int", x, dim=number, index=ANY), to=c.made(x))

    rules = [declare(of_flag(flag), name=f"flag {flag}") for flag in (True, False)]
    numbers = [declare(of_number(number), name=f"number {number}") for number in (0, 1)]
    index = Index(RuleSet([*rules, *numbers]))
    for flag, number in ((True, 1), (False, 0), (True, 0), (False, 1)):
        g = Graph()
        total = g.op("sum.dim_IntList", g.inputs[0], dim=[0], keepdim=flag)
        chosen = g.op("select.int", g.inputs[0], number, 0)
        sweep = index.sweep()
        assert sweep.visit(total.ssa.owner) == (rules[0 if flag else 1],)
        assert sweep.visit(chosen.ssa.owner) == (numbers[1 if number else 0],)


def test_only_the_replaced_result_of_the_root_may_be_used_outside():
    def root(of):
        return declare(
            lambda a, c, x: Rewrite(of(a.op("max.dim", a.exp(x), dim=1, keepdim=False)), to=of([c.made(x), c.made(x)])),
            name="of",
        )

    first, second, both = root(lambda made: made[0]), root(lambda made: made[1]), root(lambda made: made)
    for used in ((0,), (1,), (0, 1)):
        g = Graph()
        results = g.op("max.dim", g.exp(g.inputs[0]), dim=1, types=[MATRIX, MATRIX])
        g.use(*(results[place] for place in used))
        assert (match(first, results[0]) is not None) == (used == (0,))
        assert (match(second, results[0]) is not None) == (used == (1,))
        assert match(both, results[0]) is not None


def test_another_result_of_an_inner_op_must_not_be_used_outside():
    inner = declare(
        lambda a, c, x: Rewrite(a.exp(a.op("max.dim", x, dim=1, keepdim=False)[0]), to=c.made(x)), name="inner"
    )
    g = Graph()
    values, indices = g.op("max.dim", g.inputs[0], dim=1, types=[MATRIX, MATRIX])
    e, f = g.exp(values), g.exp(indices)
    assert match(inner, e) is None
    f.ssa.owner.detach()
    f.ssa.owner.erase()
    assert match(inner, e) is not None
    assert match(inner, g.exp(g.neg(values))) is None
