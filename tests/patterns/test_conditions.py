"""Named conditions, and the reasons that conditions give to users."""

from __future__ import annotations

import pytest

from patcomp.errors import RuleError
from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns import Attr, Capture, any_of
from patcomp.patterns.conditions import condition, is_floating, is_permutation_of, same_element_type
from patcomp.patterns.expressions import Said, Undefined
from patcomp.patterns.language import SourceNamespace
from patcomp.patterns.match import Matcher
from patcomp.patterns.pattern import Pattern
from tests.patterns.graphs import Graph


def _match(order: list[int], conditions: list) -> tuple:
    graph = Graph()
    y = graph.permute(graph.inputs[0], dims=order)
    pattern = Pattern.declared(aten_namespace, _root, _captures, conditions)
    matcher = Matcher(pattern, y.maker, trace=True)
    return matcher.run(), matcher.failure


_a = SourceNamespace(aten_namespace)
_captures = {"x": Capture("x", _a), "dims": Attr("dims")}
_root = _a.permute(_captures["x"], dims=_captures["dims"])


def test_a_named_condition_is_a_sentence():
    x, dims = _captures["x"], _captures["dims"]
    named = is_permutation_of(dims, x.rank)
    assert named.text == "dims is a permutation of x.rank axes"
    assert _match([1, 0], [named])[0] is not None
    match, failure = _match([1, 1], [named])
    assert match is None
    assert "`dims is a permutation of x.rank axes` (dims is [1, 1], x.rank is 2) is false" in failure.reason


def test_a_capture_is_given_as_its_value():
    x = _captures["x"]
    assert _match([1, 0], [is_floating(x), same_element_type(x, x)])[0] is not None
    assert _match([1, 0], [~is_floating(x)])[0] is None


def test_a_value_of_another_alternative_is_undefined():
    y = Capture("y", _a)
    root = _a.abs(any_of(_a.exp(_captures["x"]), _a.neg(y)))
    graph = Graph()
    result = graph.abs(graph.neg(graph.inputs[0]))
    pattern = Pattern.declared(aten_namespace, root, {"x": _captures["x"], "y": y}, [is_floating(y)])
    match = Matcher(pattern, result.maker).run()
    assert match is not None
    with pytest.raises(Undefined, match="x is not part of the alternative"):
        is_floating(_captures["x"]).evaluate(match)


def test_a_condition_must_read_the_match():
    with pytest.raises(RuleError, match="reads z, which the source does not match"):
        Pattern.declared(aten_namespace, _root, _captures, [is_floating(Capture("z", _a))])


def test_a_reason_is_filled_with_values_and_leaves_the_condition_alone():
    x = _captures["x"]
    said = (x.rank > 2).says("a matrix has {} axes, {} are needed", x.rank, 3)
    match = _match([1, 0], [])[0]
    assert isinstance(said, Said)
    assert not said.evaluate(match)
    assert said.refusal(match) == "a matrix has 2 axes, 3 are needed"
    assert "`x.rank > 2` (x.rank is 2) is false" in _match([1, 0], [said])[1].reason


def test_a_sentence_names_parameters_only():
    with pytest.raises(RuleError, match="'y'"):
        condition("{x} is {y}")(lambda x: True)
