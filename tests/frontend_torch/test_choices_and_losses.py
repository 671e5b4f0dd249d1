"""Choices between near values, where half precision loses most, and how another model differs."""

from __future__ import annotations

import math
from operator import getitem
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Graph, Node

from patcomp.evaluate.twin import Twin
from patcomp.frontend_torch.verification.half import most_lost
from patcomp.frontend_torch.verification.near_ties import distance
from patcomp.frontend_torch.verification.other_model import how_it_differs

ATEN = torch.ops.aten

# ---- near ties ------------------------------------------------------------------------------------------

TIED = torch.tensor([[1.0, 1.5, -2.0], [4.0, 4.25, 0.0]])


def chosen(target: Any, *args: Any, given: Any, expected: Any = None, **kwargs: Any) -> float | None:
    """The distance of a choice that an operator made of tensors, from the one that it would make."""
    graph, values = Graph(), dict[Node, Any]()

    def placed(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        node = graph.placeholder(f"x{len(values)}")
        values[node] = value
        return node

    node = graph.call_function(target, tuple(map(placed, args)), kwargs)
    found = distance(
        node,
        torch.as_tensor(expected),
        torch.as_tensor(given),
        lambda each: values[each] if isinstance(each, Node) else each,
    )
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("target", "args", "expected", "given", "apart"),
    [
        (ATEN.argmax.default, (TIED, 1), [1, 1], [0, 1], 0.5),
        (ATEN.argmax.default, (TIED, 1), [1, 1], [0, 2], 4.25),
        (ATEN.argmax.default, (TIED, 1, True), [[1], [1]], [[1], [0]], 0.25),
        (ATEN.argmin.default, (TIED, 0), [0, 0, 0], [1, 0, 0], 3.0),
        (ATEN.argmax.default, (TIED,), 4, 3, 0.25),
        (ATEN.sort.default, (TIED,), [[2, 0, 1], [2, 0, 1]], [[2, 1, 0], [2, 0, 1]], 0.5),
        (ATEN.sort.default, (TIED, 0), [[0, 0, 0], [1, 1, 1]], [[0, 0, 1], [1, 1, 0]], 2.0),
        (ATEN.topk.default, (TIED, 1), [[1], [1]], [[1], [0]], 0.25),
        (ATEN.lt.Scalar, (TIED, 1.25), [[True, False, True], [False, False, True]], [[False] * 3] * 2, 3.25),
        (ATEN.gt.Tensor, (TIED, TIED + 0.5), [[False] * 3] * 2, [[True, False, False], [False] * 3], 0.5),
        (ATEN.eq.Scalar, (TIED, 1.5), [[False, True, False], [False] * 3], [[True, True, False], [False] * 3], 0.5),
        (ATEN.ne.Scalar, (TIED, 1.5), [[True, False, True], [True] * 3], [[True, False, False], [True] * 3], 3.5),
        (ATEN.le.Scalar, (TIED, 1.5), [[True] * 3, [False, False, True]], [[True] * 3] * 2, 2.75),
        (ATEN.ge.Scalar, (TIED, 1.5), [[False, True, False], [True, True, False]], [[True] * 3] * 2, 3.5),
        (ATEN.argsort.default, (TIED,), [[2, 0, 1], [2, 0, 1]], [[2, 1, 0], [2, 0, 1]], 0.5),
        (ATEN.min.dim, (TIED, 1), [2, 2], [2, 0], 4.0),
        (ATEN.kthvalue.default, (TIED, 2, 1), [0, 0], [0, 1], 0.25),
        (ATEN.median.dim, (TIED, 0), [0, 0, 0], [1, 0, 0], 3.0),
        (ATEN.mode.default, (TIED, 1), [0, 0], [1, 0], 0.5),
        (ATEN.floor.default, (torch.tensor([0.9, 2.25]),), [0.0, 2.0], [1.0, 2.0], 0.1),
        (ATEN.ceil.default, (torch.tensor([0.9, 2.25]),), [1.0, 3.0], [1.0, 2.0], 0.25),
        (ATEN.trunc.default, (torch.tensor([-0.9, 2.25]),), [0.0, 2.0], [-1.0, 2.0], 0.1),
        (ATEN.round.default, (torch.tensor([2.4, 2.0]),), [2.0, 2.0], [3.0, 2.0], 0.1),
        (ATEN.sign.default, (torch.tensor([0.2, -3.0]),), [1.0, -1.0], [0.0, -1.0], 0.2),
        (ATEN._to_copy.default, (torch.tensor([2.9]),), [2], [3], 0.1),
        (ATEN.to.dtype, (torch.tensor([2.9]), torch.int64), [2], [3], 0.1),
    ],
)
def test_how_far_choices_are_apart(target: Any, args: Any, expected: Any, given: Any, apart: float) -> None:
    assert chosen(target, *args, expected=expected, given=given) == pytest.approx(apart)


def test_the_dimension_of_a_choice_may_be_a_keyword() -> None:
    assert chosen(ATEN.sort.stable, TIED, stable=True, dim=0, expected=[[0] * 3] * 2, given=[[1, 0, 0], [0, 0, 0]]) == 3


@pytest.mark.parametrize(
    ("target", "args"),
    [
        (ATEN.add.Tensor, (TIED, 1.0)),
        (ATEN.floor.default, (torch.ones(2, 3, dtype=torch.int32),)),
        (ATEN.lt.Scalar, (torch.ones(2, 3, dtype=torch.int32), 1)),
        (ATEN.cat.default, ([1.0, 2.0],)),
        (torch.floor, (TIED,)),
    ],
)
def test_what_is_no_choice_of_floats(target: Any, args: Any) -> None:
    assert chosen(target, *args, expected=torch.zeros(2, 3), given=torch.ones(2, 3)) is None


def test_values_of_a_choice_are_no_choice() -> None:
    """The largest value is a number of its own; which element it is is chosen."""
    assert chosen(ATEN.amax.default, TIED, [1], expected=[1.5, 4.25], given=[1.0, 4.25]) is None
    assert chosen(ATEN.max.dim, TIED, 1, expected=[1.5, 4.25], given=[1.0, 4.25]) is None
    assert chosen(ATEN.max.dim, TIED, 1, expected=[1, 1], given=[0, 1]) == 0.5


def test_one_of_several_results_is_a_choice_of_their_operator() -> None:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    first = graph.call_function(getitem, (graph.call_function(ATEN.sort.default, (x,)), 1))
    apart = distance(
        first, torch.tensor([0, 1]), torch.tensor([1, 0]), lambda each: torch.tensor([1.0, 1.25]) if each is x else each
    )
    assert apart is not None
    assert apart[0] == 0.25
    assert distance(graph.call_function(getitem, (y, 0)), TIED, TIED + 1, lambda each: TIED) is None


def test_inputs_choose_nothing() -> None:
    assert distance(Graph().placeholder("x"), TIED, TIED + 1, lambda each: each) is None


# ---- where half precision loses most ----------------------------------------------------------------------

LOST: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, float, float] | None]] = {
    "the largest step": ({"a": 1.25, "b": 1.5, "c": 1.625}, {}, ("a", 0.0, 0.25)),
    "a later step": ({"a": 1.125, "b": 1.25, "c": 1.75}, {}, ("c", 0.25, 0.75)),
    "beside the worse operand": ({"a": 1.5, "b": 1.25, "c": 1.875}, {}, ("a", 0.0, 0.5)),
    "less than an operand": ({"x": 1.5, "a": 1.25, "b": 1.25, "c": 1.25}, {}, None),
    "nothing": ({}, {}, None),
    "an input is no step": ({"x": 1.5, "a": 1.625, "b": 1.625, "c": 1.625}, {}, ("a", 0.5, 0.625)),
    "no twin": ({"a": 1.5}, dict.fromkeys("xabc"), None),
    "a twin in 64 bits": ({"a": 1.5}, {"a": Twin(torch.ones(2), torch.float32)}, None),
    "another shape": ({"a": 1.5}, {"a": Twin(torch.ones(3), torch.float16)}, None),
    "of the largest magnitude": ({"a": 1.5}, {"a": Twin(torch.tensor([4.0, 1.5]), torch.float16)}, ("a", 0.0, 0.625)),
    "of zeros": ({"a": torch.tensor([0.0, 0.5])}, {"a": Twin(torch.zeros(2), torch.float16)}, ("a", 0.0, 1.0)),
    "zeros": ({"a": torch.zeros(2)}, {"a": Twin(torch.zeros(2), torch.float16)}, None),
    "infinities": (
        {"a": torch.tensor([math.inf, 1.5])}, {"a": Twin(torch.tensor([math.inf, 1.0]), torch.float16)},
        ("a", 0.0, 0.5),
    ),
    "integers": ({"a": torch.tensor([1, 5])}, {}, None),
    "no elements": ({"a": torch.ones(0)}, {"a": Twin(torch.ones(0), torch.float16)}, None),
    "a number": ({"a": 1}, {}, None),
}  # fmt: skip
"""The values of the nodes, of which each element is 1 by default; twins that are not 1 in float16; and the loss."""


@pytest.mark.parametrize("name", LOST)
def test_where_half_precision_loses_most(name: str) -> None:
    values, twins, expected = LOST[name]
    graph = Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.neg, (x,), name="a")
    b = graph.call_function(torch.neg, (a,), name="b")
    nodes = [x, a, b, graph.call_function(torch.add, (a, b), name="c")]

    def value_of(node: Node) -> Any:
        value = values.get(node.name, 1.0)
        return torch.full((2,), value) if isinstance(value, float) else value

    found = {node: twins.get(node.name, Twin(torch.ones(2), torch.float16)) for node in nodes}
    program = SimpleNamespace(twins=found, run_export=lambda visit: [visit(node, value_of(node)) for node in nodes])
    lost = most_lost(program)  # type: ignore[arg-type]
    assert (lost and (lost[0].name, *lost[1:])) == expected


# ---- other models -----------------------------------------------------------------------------------------


def test_how_a_given_model_differs() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    same = {name: value.detach().clone() for name, value in weights.items()}
    assert how_it_differs(print, same.items()) == "the given function is another one than the exported model"
    changed = {**same, "0.bias": same["0.bias"] + 1, "1.running_mean": torch.ones(3), "gone": torch.ones(1)}
    text = how_it_differs(model, changed.items())
    assert text == "the given model has other weights than the exported one: '0.bias', '1.running_mean'"
    for mode in ("evaluation", "training"):
        model.train(mode == "training")
        text = how_it_differs(model, same.items())
        assert text.startswith(f"the given model has the weights of the exported one and is in {mode} mode")
        for others in ({}, {**same, "gone": torch.ones(1)}):
            text = how_it_differs(model, others.items())
            assert text.startswith(f"the given model is in {mode} mode; it is another one than the exported model")


def test_shared_weights_differ_by_each_of_their_names() -> None:
    shared = nn.BatchNorm1d(2)
    model = nn.ModuleDict({"one": shared, "two": shared})
    others = [("one.bias", torch.zeros(2)), ("two.bias", torch.zeros(3)), ("two.running_mean", torch.ones(2))]
    assert how_it_differs(model, others).endswith("than the exported one: 'two.bias', 'two.running_mean'")
