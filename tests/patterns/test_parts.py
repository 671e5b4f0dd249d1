"""The small parts of the pattern language, one at a time: expressions, patterns, types of examples, budgets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from patcomp.errors import RuleError
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.types import TOKEN, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block
from patcomp.patterns import (
    ANY,
    Attr,
    Const,
    Context,
    Rewrite,
    RuleSet,
    any_of,
    check,
    decomposition,
    example,
    op_rule,
    rule,
    run,
)
from patcomp.patterns.apply import mismatch
from patcomp.patterns.aspects import SPECIAL, VARIED, FurtherResults, check_unspecified, is_left_open
from patcomp.patterns.context import Budget
from patcomp.patterns.driver import EndlessRewritesError
from patcomp.patterns.example_types import ExampleType, limits_of, parse_type
from patcomp.patterns.expressions import Assumption, Expression, Tag, Undefined, call, lift
from patcomp.patterns.index import Index
from patcomp.patterns.language import Capture
from patcomp.patterns.match import Matcher
from patcomp.patterns.pattern import pattern
from tests.patterns.graphs import MATRIX, TABLE, Graph, declare, match

# ---- expressions ---------------------------------------------------------------------------------


class Bound:
    """What a match binds: attributes and values by name."""

    def __init__(self, **values: Any):
        self.values, self.tags, self.assumed = values, {"form": "cast"}, {"finite"}

    def attribute_of(self, attribute: Attr) -> Any:
        if attribute.name not in self.values:
            raise Undefined(f"{attribute.name} is not there")
        return self.values[attribute.name]

    def value_of(self, node: Capture) -> Any:
        return self.values.get(node.name)


p, q, items, none, missing, holes = map(Attr, ("p", "q", "items", "none", "missing", "holes"))
x, scalar, gone = Capture("x"), Capture("scalar"), Capture("gone")
BOUND = Bound(
    p=7,
    q=-2,
    items=[3, 1, 2],
    none=None,
    holes=[None, 3],
    x=Value(Graph([tensor((2, None, 4), "f16")]).block.args[0]),
    scalar=Value(Graph([tensor((), "si64")]).block.args[0]),
)
VALUES: list[tuple[Any, Any]] = [
    (p + q, 5), (p - q, 9), (p * q, -14), (p // q, -4), (p % 4, 3), (p / 2, 3.5), (-p, -7), (abs(q), 2), (1 + p, 8),
    (10 - p, 3), (2 * p, 14), (p == 7, True), (p != 7, False), (p < 7, False), (p <= 7, True), (p > 7, False),
    (p >= 7, True), (p < 7, False), (~(p == 7), False), ((p == 7) & (q == -2), True), ((p == 7) & (q == 2), False),
    ((p == 1) & (q == -2), False), ((p == 1) | (q == -2), True), ((p == 7) | (q == 0), True),
    ((p == 1) | (q == 0), False),
    (items[1], 1), (items[-1], 2), (items[1:], [1, 2]), (items == [3, 1, 2], True), (items == (3, 1, 2), True),
    (items != [3, 1], True), (p.is_in(1, 7), True), (p.is_in(1, q), False), (p == lift([7]), False),
    (x.rank, 3), (x.dtype, "f16"), (x.shape[0], 2), (x.shape[-1], 4), (scalar.rank, 0), (x.shape[2:] == [4], True),
    (lift([p, q]), [7, -2]), (lift((p,)), (7,)), (none == None, True), (call(sorted, items), [1, 2, 3]),  # noqa: E711
    (Tag("form") == "cast", True), (Tag("other") == None, True), (Assumption("finite", ""), True),  # noqa: E711
    (Assumption("other", ""), False), (check("odd", lambda bound: bound.attribute_of(p) % 2 == 1), True),
    ((missing == 1) | (p == 7), True), ((p == 7) | (missing == 1), True),
    ((p == 1) & (missing == 1), False), (lift(5), 5), (lift("a"), "a"), (x.is_static, False), (scalar.is_static, True),
    (holes[:1] == [None], True), (holes[:1][0] == None, True),  # noqa: E711
]  # fmt: skip
UNDEFINED: list[Any] = [
    missing + 1, none + 1, -none, none < 1, p // 0, p % 0, items[3], items[none], none[0], x.shape[1], x.shape[1] == 3,
    x.shape == [2, 3, 4], x.shape[1:] == [3, 4], gone.rank, (missing == 1) | (missing == 2), (p == 7) & (missing == 1),
    ~(missing == 1), x.shape[3], (missing == 1) | (p == 1), (p == 1) | (missing == 1), ~((missing == 1) | (p == 1)),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), VALUES, ids=lambda part: str(part))
def test_values_of_expressions(expression: Any, expected: Any) -> None:
    found = lift(expression).evaluate(BOUND)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("expression", UNDEFINED, ids=str)
def test_expressions_without_a_value(expression: Any) -> None:
    with pytest.raises(Undefined):
        expression.evaluate(BOUND)


TEXTS: list[tuple[Any, str]] = [
    (p + q * 2, "p + q * 2"), ((p + q) * 2, "(p + q) * 2"), (p - (q - 1), "p - (q - 1)"), (p - q - 1, "p - q - 1"),
    (-(p + 1), "-(p + 1)"), (~(p == 1), "~(p == 1)"), ((p == 1) | (q == 2), "(p == 1) | (q == 2)"),
    ((p == 1) & (q == 2), "(p == 1) & (q == 2)"), (items[1:], "items[1:]"), (items[:2], "items[:2]"),
    (items[::2], "items[::2]"), (items[0], "items[0]"), (p.is_in(1, 2), "p.is_in(1, 2)"), (x.rank, "x.rank"),
    (lift([p, 1]), "[p, 1]"), (lift((p,)), "(p,)"), (lift((p, 1)), "(p, 1)"), (call(sorted, items), "sorted(items)"),
    (Tag("form"), 'tag("form")'), (Assumption("finite", ""), 'assume=["finite"]'), (lift("a"), '"a"'), (lift(2), "2"),
    (2 - p, "2 - p"), (p < q, "p < q"), ((-p) ** 2, "(-p) ** 2"), (-(p**2), "-p ** 2"), (p * -q, "p * -q"),
    (-p * q, "-p * q"), (~-p, "~-p"), (2 ** (p * q), "2 ** (p * q)"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "text"), TEXTS, ids=lambda part: str(part))
def test_texts_of_expressions(expression: Any, text: str) -> None:
    assert str(lift(expression)) == text


def test_expressions_are_no_truths_and_no_sequences() -> None:
    with pytest.raises(RuleError):
        bool(p == 1)
    with pytest.raises(RuleError, match="cannot be unpacked"):
        list(p)


def test_the_leaves_of_an_expression() -> None:
    assert [part.text for part in ((x.rank == 1) & (items[0] > p)).leaves()] == ["x.rank", "items[0]", "p"]


def test_what_is_local() -> None:
    assert (x.rank == 1).is_local
    assert not ((x.rank == 1) & (Tag("form") == "cast")).is_local
    assert not check("any", lambda bound: True).is_local
    assert isinstance(lift(1), Expression)


# ---- patterns ------------------------------------------------------------------------------------


def test_a_pattern_matches_what_it_replaces() -> None:
    first = pattern(lambda a, x: (a.op("max.dim", x, dim=1, keepdim=ANY)[0], []))
    narrow = pattern(lambda a, x: (a.exp(x), [x.shape[0] == 2]))
    g = Graph([MATRIX, tensor((3, 8), "f32")])
    values, places = g.op("max.dim", g.inputs[0], dim=1, types=[MATRIX, MATRIX])
    e, other = g.exp(g.inputs[0]), g.exp(g.inputs[1])
    g.use(values, e, e)
    assert first.match(values)["x"] == g.inputs[0]
    assert first.match(places) is None
    assert first.match(e) is None
    assert narrow.match(e)["x"] == g.inputs[0]
    assert narrow.match(other) is None
    assert narrow.match(g.inputs[0]) is None
    with pytest.raises(RuleError, match=r"^pattern wrong "):

        @pattern
        def wrong(a, x, y):
            return a.exp(x), []


# ---- types of examples, aspects ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parsed", "limits"),
    [
        ("2x3xf32", ExampleType((2, 3), "f32"), None),
        ("f16", ExampleType((), "f16"), None),
        ("4xsi64[0,3]", ExampleType((4,), "si64", ("0", "3")), (0.0, 3.0)),
        ("0x2xbf16[-1.5,2]", ExampleType((0, 2), "bf16", ("-1.5", "2")), (-1.5, 2.0)),
    ],
)
def test_types_of_examples(text: str, parsed: ExampleType, limits: Any) -> None:
    assert ExampleType.parsed(text) == parsed
    assert str(parsed) == text
    assert limits_of(text) == limits
    assert parse_type(text) == tensor(parsed.sizes, parsed.element)


def test_other_texts_are_no_types() -> None:
    assert [ExampleType.parsed(text) for text in ("?x3xf32", "none", "", 3, None, "2x")] == [None] * 6
    assert parse_type("?x3xf32") == tensor((None, 3), "f32")
    assert [limits_of(text) for text in ("f32", "?x3xf32")] == [None, None]
    with pytest.raises(RuleError, match="is not the type of a tensor"):
        parse_type("[1]")
    kinds = [
        (kind.is_float, kind.is_integer)
        for kind in (ExampleType((), name) for name in ("f8", "bf16", "si4", "ui8", "i1"))
    ]
    assert kinds == [(True, False), (True, False), (False, True), (False, True), (False, False)]


def test_aspects_that_are_left_open() -> None:
    assert is_left_open({"NaN": "why"}, "NaN")
    assert not is_left_open({"NaN": "why"}, "halves")
    assert not is_left_open({"NaN": FurtherResults("why")}, "NaN")
    check_unspecified(dict.fromkeys(VARIED, "why"))
    with pytest.raises(RuleError, match="unspecified= names 'nan'"):
        check_unspecified({"nan": "why"})
    with pytest.raises(RuleError, match="no reason for 'NaN'"):
        check_unspecified({"NaN": ""})
    for values in SPECIAL.values():
        assert len({str(abs(value)) for value in values}) * 2 >= len(values)
        assert {str(-value) for value in values} == {str(value) for value in values}


# ---- runs ----------------------------------------------------------------------------------------

opened = declare(lambda a, c, x: Rewrite(a.exp(x), to=c.made(x)), name="opened")


@pytest.mark.parametrize("allowed", [None, 0, 1, 2, 9])
def test_a_budget_allows_the_first_rewrites(allowed: int | None) -> None:
    g = Graph()
    g.use(*(g.exp(g.neg(g.inputs[0])) for _ in range(3)))
    budget = Budget(allowed)
    statistics = run(g.block, RuleSet([opened]), Context(namespace=TABLE, budget=budget))
    expected = 3 if allowed is None else min(3, allowed)
    assert len(statistics.records) == expected
    assert len(budget.spent) == (0 if allowed is None else expected)
    assert g.names.count("aten.exp") == 3 - expected
    assert budget.exhausted == (allowed is not None and expected == allowed)


def test_a_rule_that_gives_too_few_values_is_an_error() -> None:
    few = declare(lambda a, c, x: Rewrite(a.op("max.dim", x, dim=1, keepdim=ANY), to=[c.made(x)]), name="few")
    g = Graph()
    g.use(*g.op("max.dim", g.inputs[0], dim=1, types=[MATRIX, MATRIX]))
    with pytest.raises(Exception, match=r"the target gives 1 values, but aten\.max\.dim has 2 results"):
        run(g.block, RuleSet([few]), Context(namespace=TABLE))


def test_endless_rules_without_a_circle_are_named() -> None:
    assert str(EndlessRewritesError("too many", [])) == "too many"
    assert str(EndlessRewritesError("too many", [["a", "b"]])).endswith("built: a -> b -> a")


def test_only_later_rules_are_noted_as_overlaps() -> None:
    again = declare(lambda a, c, x: Rewrite(a.exp(x), to=c.made(x)), name="again")
    never = declare(lambda a, c, x: Rewrite(a.exp(x), to=c.made(x), where=[x.rank == 9]), name="never")
    g = Graph()
    g.use(g.exp(g.inputs[0]))
    refuses = op_rule("recover", "aten.exp", name="refuses")(lambda op, c: None)
    statistics = run(g.block, RuleSet([never, refuses, opened, again]), Context(namespace=TABLE))
    assert [(overlap.taken, overlap.other) for overlap in statistics.overlaps] == [("opened", "again")]


# ---- rule sets -----------------------------------------------------------------------------------


def test_a_rule_may_be_listed_twice_but_no_other_of_its_name() -> None:
    other = declare(lambda a, c, x: Rewrite(a.neg(x), to=c.made(x)), name="opened")
    assert list(RuleSet([opened, opened])) in ([opened], [opened, opened])
    with pytest.raises(RuleError, match="two rules are called opened"):
        RuleSet([opened, other])


def test_declarations_that_are_refused() -> None:
    for ops in ((), (3,), ("aten.exp", 3)):
        with pytest.raises(RuleError):
            op_rule("recover", *ops)(lambda op, c: None)


def test_the_largest_and_the_most_urgent_rules_come_first() -> None:
    def made(name: str, **options: Any) -> Any:
        return declare(lambda a, c, x: Rewrite(a.exp(x), to=c.made(x)), name=name, **options)

    larger = declare(lambda a, c, x: Rewrite(a.exp(a.neg(x)), to=c.made(x)), name="larger")
    rules = [made("first"), made("second"), made("urgent", priority=1), larger]
    g = Graph()
    value = g.exp(g.neg(g.inputs[0]))
    sweep = Index(RuleSet(rules)).sweep()
    for op in list(g.block.ops)[:-1]:
        sweep.visit(op)
    assert [rule.name for rule in sweep.visit(value.ssa.owner)] == ["urgent", "larger", "first", "second"]


def test_constants_of_patterns_and_the_index() -> None:
    """A capture of any constant is no literal, and a literal no capture."""
    constant = declare(lambda a, c, x, k: Rewrite(x * k, to=c.made(x)), name="any")
    any_constant = rule(into=TABLE, name="constant")(_times_constant)
    two = declare(lambda a, c, x: Rewrite(a.exp(x) * 2.0, to=c.made(x)), name="two")
    index = Index(RuleSet([constant, any_constant, two]))
    for number, expected in ((2.0, {"any", "constant", "two"}), (3.0, {"any", "constant"}), (None, {"any"})):
        g = Graph()
        with Builder(g.block):
            other = g.inputs[1] if number is None else coreai.constant(np.array(number, np.float32), "f32")
        product = g.mul(g.exp(g.inputs[0]), other)
        sweep = index.sweep()
        for op in g.block.ops:
            found = sweep.visit(op)
        assert {rule.name for rule in found} == expected
        assert match(any_constant, product) is not None or number is None


def _times_constant(a: Any, c: Any, x: Capture, k: Const) -> Rewrite:
    return Rewrite(x * k, to=c.made(x))


def test_the_alternatives_at_the_root_are_all_found() -> None:
    either = declare(lambda a, c, x: Rewrite(any_of(a.exp(x), any_of(a.neg(x), a.sin(x))), to=c.made(x)), name="either")
    g = Graph()
    sweep = Index(RuleSet([either])).sweep()
    for value, found in (
        (g.exp(g.inputs[0]), 1),
        (g.neg(g.inputs[0]), 1),
        (g.sin(g.inputs[0]), 1),
        (g.cos(g.inputs[0]), 0),
    ):
        assert len(sweep.visit(value.ssa.owner)) == found


# ---- matches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("values", "matches"), [([2.0] * 8, True), ([2.0] * 7 + [3.0], False), ([[]], False)])
def test_a_constant_of_several_numbers_has_no_value(values: Any, matches: bool) -> None:
    scaled = rule(into=TABLE, name="scaled")(_times_two)
    g = Graph()
    with Builder(g.block):
        factors = coreai.constant(np.array(values, np.float32), "f32")
    found = match(scaled, g.mul(g.inputs[0], factors))
    assert (found is not None) == matches


def _times_two(a: Any, c: Any, x: Capture, k: Const) -> Rewrite:
    return Rewrite(x * k, to=c.made(x), where=[k.value == 2])


def test_a_reason_names_the_op_that_is_no_constant() -> None:
    times = rule(into=TABLE, name="times")(_times_constant)
    g = Graph()
    product = g.mul(g.exp(g.inputs[0], hint="e"), g.inputs[1])
    matcher = Matcher(times.graph, product.ssa.owner, trace=True)
    assert matcher.run() is None
    assert matcher.failure is not None
    assert matcher.failure.reason in (
        "k is aten.exp (%e), not an inline constant",
        "k is an argument (%y), not an inline constant",
    )


def test_why_a_value_cannot_replace_another() -> None:
    wanted = tensor((2, None), "f32")
    given = [TOKEN, tensor((2, 3), "f16"), tensor((2,), "f32"), tensor((3, 3), "f32"), tensor((2, 3), "f32")]
    reasons = [mismatch(Value(argument), wanted) for argument in Block(arg_types=given).args]
    assert reasons[0] == f"{TOKEN} for {wanted}"
    assert [reason.rpartition(", ")[2] for reason in reasons[1:]] == [
        "of another element type",
        "of another rank",
        "of another shape",
        "",
    ]


def test_what_a_match_has_of_alternatives_that_were_not_taken() -> None:
    found: dict[str, Any] = {}

    @declare
    def either(a, c, x, y, d: Attr):
        found["max"] = a.op("max.dim", y, dim=d, keepdim=ANY)
        found["exp"], found["neg"] = a.exp(y), a.neg(x)
        found["any"] = any_of(found["exp"], found["max"][1], found["neg"])
        return Rewrite(a.relu(found["any"]), to=c.made(x))

    g = Graph()
    neg = g.neg(g.inputs[0])
    plain = match(either, g.relu(neg))
    assert plain["x"] == g.inputs[0]
    assert plain.value_of(found["neg"]) == plain.value_of(found["any"]) == neg
    assert [plain.value_of(each) for each in (found["exp"], found["max"][0], found["max"][1])] == [None] * 3
    assert plain["y"] is None
    with pytest.raises(Undefined, match="d is not part of the alternative that matched"):
        plain["d"]
    values, places = g.op("max.dim", g.inputs[1], dim=1, types=[MATRIX, MATRIX])
    other = match(either, g.relu(places))
    assert [other.value_of(found["max"][place]) for place in (0, 1)] == [values, places]
    assert other.value_of(found["any"]) == places
    assert other["d"] == 1
    assert other["x"] is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda a, x, d: a.relu(any_of(x)), "at least two alternatives"),
        (lambda a, x, d: a.relu(any_of(x, a.exp(x), tags=["a"], tag="t")), "2 alternatives and 1 tags"),
        (lambda a, x, d: a.relu(any_of(x, a.exp(x), tags=["a", "b"])), "no tag="),
        (lambda a, x, d: a.relu(any_of(x, a.op("max.dim", x, dim=1, keepdim=ANY))), "has several results"),
        (lambda a, x, d: a.relu(d), "annotated Attr"),
        (lambda a, x, d: a.relu("x"), "'x' cannot stand there"),
        (lambda a, x, d: a.relu(["x"]), "cannot stand there"),
        (lambda a, x, d: a.relu(5 + None if d is None else object()), "cannot stand there"),
        (lambda a, x, d: a.permute(x, dims=[x, 1]), "dims is not a tensor"),
        (lambda a, x, d: a.permute(x, dims=[d + 1, 0]), "cannot be the expression"),
        (lambda a, x, d: a.permute(x, dims=object()), "dims cannot be"),
    ],
)
def test_sources_that_are_refused(source: Any, message: str) -> None:
    def build(a: Any, c: Any, x: Capture, d: Attr) -> Rewrite:
        return Rewrite(a.permute(source(a, x, d), dims=[d, ANY]), to=c.made(x))

    with pytest.raises(RuleError, match=message):
        declare(build, name="refused")


def test_lists_of_numbers_are_constants() -> None:
    listed = declare(lambda a, c, x: Rewrite(a.mul(x, [1.0, 2.0]), to=c.made(x)), name="listed")
    nested = declare(lambda a, c, x: Rewrite(a.mul(x, ((1.0, 2.0), (3.0, 4.0))), to=c.made(x)), name="nested")
    for values, expected in (([1.0, 2.0], listed), ([[1.0, 2.0], [3.0, 4.0]], nested)):
        g = Graph([tensor((2, 2), "f32")])
        with Builder(g.block):
            constant = coreai.constant(np.array(values, np.float32), "f32")
        product = g.mul(g.inputs[0], constant)
        assert [match(each, product) is not None for each in (listed, nested)] == [
            expected is listed,
            expected is nested,
        ]


def test_decompositions_are_of_complex_numbers_or_of_others() -> None:
    def first(self: Any) -> Any:
        return self

    def second(self: Any) -> Any:
        return self + 0

    made = [
        decomposition("aten.neg", examples=[example("2xf32")])(first),
        decomposition("aten.neg", of_complex=True, examples=[example("2xcomplex<f32>")])(second),
    ]
    rules = RuleSet([*made, opened])
    assert rules.decompositions() == {"aten.neg": made[0]}
    assert rules.decompositions(of_complex=True) == {"aten.neg": made[1]}
