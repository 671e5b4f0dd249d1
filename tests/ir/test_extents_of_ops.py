"""The sizes of each op's result, against the shapes that PyTorch computes for several sizes of its operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from patcomp.ir import aten, coreai
from patcomp.ir.aten_facts import ops_where
from patcomp.ir.extents import (
    MASK,
    Extent,
    argument_notes,
    drop_notes,
    elements,
    extent_of,
    extents,
    mark_masks,
    mark_sizes,
)
from patcomp.ir.module import IRModule
from patcomp.ir.traits import SameShape
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from tests.helpers.programs import program
from tests.helpers.sized_ops import SIZES, S, evaluated, extents_of_results, overload, real_shapes, x

ARGUMENTS: dict[str, list[Any]] = {
    "clamp": [x("a", 4, "b"), 0],
    "cumsum": [x("a", 4, "b"), 1],
    "full_like": [x("a", 4, "b"), 1],
    "masked_fill.Scalar": [x("a", 4, "b"), x("b", dtype="i1"), 0],
    "native_layer_norm": [x("a", "b", 8), [8], None, None, 1e-5],
    "pow.Tensor_Scalar": [x("a", 4, "b"), 2],
    "rms_norm": [x("a", "b", 8), [8]],
    "where.self": [x("a", 1, 1, dtype="i1"), x(1, 4, "b"), x("b")],
    "_softmax": [x("a", 4, "b"), 2, False],
    "_log_softmax": [x("a", 4, "b"), 2, False],
    "cumprod": [x("a", 4, "b"), 1],
}
ELEMENTWISE = [
    "abs", "add.Tensor", "alias", "bitwise_and.Tensor", "bitwise_or.Tensor", "clamp", "clone", "contiguous", "cos",
    "cumsum", "detach", "div.Tensor", "eq.Tensor", "erf", "exp", "full_like", "ge.Tensor", "gelu", "gt.Tensor",
    "le.Tensor", "log", "logical_and", "logical_not", "logical_or", "lt.Tensor", "masked_fill.Scalar", "maximum",
    "minimum", "mul.Tensor", "native_layer_norm", "ne.Tensor", "neg", "pow.Tensor_Scalar", "pow.Tensor_Tensor",
    "reciprocal", "relu", "rms_norm", "rsqrt", "sigmoid", "silu", "sin", "sqrt", "sub.Tensor", "tanh", "where.self",
    "_softmax", "_to_copy", "_log_softmax", "cumprod",
]  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str) -> None:
    tensors = [each for each in overload(name)._schema.arguments if str(each.type) == "Tensor"]
    broadcast = [x("a", 1, 1), x(4, "b"), x("b")] if len(tensors) > 1 else [x("a", 4, "b")]
    arguments = ARGUMENTS.get(name) or broadcast[: len(tensors)]
    check(name, arguments)
    if name == "native_layer_norm":
        assert {evaluated(each, SIZES[0]) for each in extents_of_results(name, arguments)[1]} == {None, 1}


OPS: list[tuple[str, list[Any]]] = [
    ("view", [x("a", "b", 6), [S("b", times=3), S("a"), 2]]),
    ("full", [[S("a", plus=2), S("bb", times=2, plus=-1)], 0]),
    ("view", [x("a", "b", 6), [S("ab"), 6]]),
    ("view", [x(4, "a", "b"), [4, S("ab")]]),
    ("reshape", [x("a", "b", 6), [S("b"), S("a"), 6]]),
    ("_unsafe_view", [x("a", "b", 6), [S("ab"), 2, 3]]),
    ("expand", [x("a", 1, 4), [-1, S("b"), -1]]),
    ("expand", [x("a", 1), [S("c"), -1, S("b")]]),
    ("full", [[S("a"), 4, S("ab")], 0]),
    ("new_zeros", [x("a"), [S("b"), 2]]),
    ("repeat", [x("a", "b"), [2, 3]]),
    ("repeat", [x("a", "b"), [S("c"), 4, S("a")]]),
    ("arange.start_step", [0, S("a")]),
    ("permute", [x("a", 4, "b"), [2, 0, 1]]),
    ("permute", [x("a", "b", "c"), [-1, 0, 1]]),
    ("transpose.int", [x("a", "b", 3), 0, 1]),
    ("transpose.int", [x("a", "b", "c"), -1, 0]),
    ("t", [x("a", "b")]),
    ("t", [x("a")]),
    ("unsqueeze", [x("a", "b"), 0]),
    ("unsqueeze", [x("a", "b"), 1]),
    ("unsqueeze", [x("a", "b"), -1]),
    ("squeeze.dim", [x("a", 1, "b"), 1]),
    ("squeeze.dim", [x("a", "b", 1), -1]),
    ("squeeze.dim", [x(1, "a", "b"), 0]),
    ("select.int", [x("a", 3, "b"), 1, 2]),
    ("select.int", [x("a", "b", 3), -1, 2]),
    ("select.int", [x(3, "a", "b"), 0, 1]),
    ("unbind.int", [x("a", 3, "b"), 1]),
    ("slice.Tensor", [x("a", 8, "b"), 1, 2, 5]),
    ("slice.Tensor", [x("a", "b"), 1]),
    ("slice.Tensor", [x("a", "b"), -1, 0, 2**31 - 1]),
    ("slice.Tensor", [x("a", "b"), 0, 0, 2**63 - 1]),
    ("slice.Tensor", [x("a", "b"), 0, None, None]),
    ("split.Tensor", [x("a", 8, "b"), 3, 1]),
    ("split_with_sizes", [x(8, "a", "b"), [3, 5]]),
    ("repeat_interleave.self_int", [x("a", 2, "b"), 3, 2]),
    ("repeat_interleave.self_int", [x("a", 2, "b"), S("c"), -3]),
    ("cat", [[x("a", "b"), x("c", "b"), x(3, "b")]]),
    ("cat", [[x("a", "b"), x("a", "b")], -1]),
    ("cat", [[x(0), x("a", "b")], 1]),
    ("sum.dim_IntList", [x("a", "b", "c"), [1], True]),
    ("mean.dim", [x("a", "b", "c"), [0], True]),
    ("amax", [x("a", "b"), [1], True]),
    ("amin", [x("a", "b"), [0], True]),
    ("var.correction", [x("a", "b"), [1], None, True]),
    ("any.dim", [x("a", "b", dtype="i1"), 1, True]),
    ("mm", [x("a", 4), x(4, "b")]),
    ("mm", [x("a", "c"), x("c", "b")]),
    ("bmm", [x("c", "a", 4), x("c", 4, "b")]),
    ("matmul", [x("a", "b", 4), x(4, "c")]),
    ("matmul", [x("b", 4), x("a", 4, "c")]),
    ("matmul", [x(1, "b", 4), x("a", 4, "c")]),
    ("matmul", [x("a", 2, "b", 4), x(1, 2, 4, "c")]),
    ("linear", [x("a", "b", 4), x("c", 4), x("c")]),
    ("linear", [x("a", "b", 4), x("c", 4)]),
    ("addmm", [x("c"), x("a", 4), x(4, "c")]),
    ("baddbmm", [x("a", "b", "c"), x("a", "b", 4), x("a", 4, "c")]),
    ("embedding", [x(10, 6), x("a", "b", dtype="si64")]),
    ("convolution", [x("a", 3, 8), x(5, 3, 2), None, [1], [0], [1], False, [0], 1]),
]


@pytest.mark.parametrize(("name", "arguments"), OPS, ids=[f"{name} {place}" for place, (name, _) in enumerate(OPS)])
def test_sizes_of_results(name: str, arguments: list[Any]) -> None:
    check(name, arguments)


def check(name: str, arguments: list[Any]) -> None:
    """The extents of the first result are its real sizes, and so are those of the others that are known."""
    found = extents_of_results(name, arguments)
    for sizes in SIZES:
        for place, (result, shape) in enumerate(zip(found, real_shapes(name, arguments, sizes), strict=True)):
            numbers = [evaluated(extent, sizes) for extent in result]
            known = [real if place and number is None else number for number, real in zip(numbers, shape, strict=True)]
            assert known == list(shape), sizes


def test_every_op_is_checked() -> None:
    """Elementwise ops are checked by a sample; `tests/ir/test_aten_traits.py` compares their traits with PyTorch."""
    assert ops_where("sizes") == {f"aten.{name}" for name, _ in OPS}
    assert aten.overloads_with(SameShape) <= {f"aten.{name}" for name in ELEMENTWISE}


UNKNOWN: list[tuple[str, list[Any], list[bool]]] = [
    ("slice.Tensor", [x("a", "b"), 0, 1], [False, True]),
    ("slice.Tensor", [x("a", "b"), 0, 0, None, 2], [False, True]),
    ("slice.Tensor", [x("a", "b"), 1, 0, -1], [True, False]),
    ("slice.Tensor", [x("a", "b"), 1, 0, S("a")], [True, False]),
    ("slice.Tensor", [x("a", "b"), 1, -1], [True, True]),
    ("arange.start_step", [1, S("a")], [False]),
    ("arange.start_step", [0, S("a"), 2], [False]),
    ("split.Tensor", [x("a", "b"), 100, 1], [True, False]),
    ("embedding", [x(10, "c"), x("a", "b", dtype="si64")], [True, True, False]),
    ("view", [x("a", "b", 6), [S("a"), 3, -1]], [True, True, False]),
    ("sum.dim_IntList", [x("a", "b", "c"), [1]], [False, False]),
    ("view", [x("a", "b"), [-1]], [False]),
    ("view", [x("a", "b"), [S("b"), -1]], [True, False]),
    ("matmul", [x("c"), x("a", "c", "b")], [False, False]),
    ("convolution", [x("a", 3, "b"), x(5, 3, 2), None, [1], [0], [1], False, [0], 1], [True, True, False]),
]
"""Which sizes of the result are known. An unknown one is equal to no other."""


@pytest.mark.parametrize(("name", "arguments", "known"), UNKNOWN)
def test_sizes_that_are_not_known(name: str, arguments: list[Any], known: list[bool]) -> None:
    found = extents_of_results(name, arguments)[0]
    assert [evaluated(extent, SIZES[0]) is not None for extent in found] == known


# ---- sums and products of sizes ------------------------------------------------------------------


def named(*names: str) -> list[Extent]:
    """The extents of arguments with these dynamic dimensions."""
    module = program(
        {"x": "x".join(["?"] * len(names) + ["f32"]), "y": "x".join(["?"] * len(names) + ["f32"])}, lambda x, y: x
    )
    graph = module.graph("main")
    mark_sizes(graph, [names, names])
    return extents(Value(graph.regions[0].block.args[1]))


def test_sums_and_products_that_are_equal() -> None:
    a, b = named("a", "b")
    assert (a + b) * (a + b) == a * a + 2 * (b * a) + b * b
    assert (a + b) * (a + -1 * b) + b * b == a * a
    assert 2 + a == a + 2 != a + 3
    assert a * a != a
    assert a * b != a + b
    assert a * 0 == 0
    assert a + -1 * a == 0
    assert (a + 1) * (a + -1) + -1 * (a * a) == -1
    assert elements([a, 3, b, 2]) == 6 * (b * a)
    assert elements([4, 5]) == 20
    assert evaluated((a + 2) * (b + 3) * a, {"a": 5, "b": 7}) == 7 * 10 * 5


def test_numbers_given_as_values() -> None:
    found = []

    def body(x: Value) -> Value:
        number = tensor((), "si64")
        seven, pair = coreai.constant(np.array(7), "si64"), coreai.constant(np.array([7, 8]), "si64")
        size = aten.build("aten.sym_size.int", number, self=x, dim=-1)
        found.extend(map(extent_of, [5, 0, seven, pair, size]))
        found.append(extent_of(aten.build("aten.add.Tensor", number, self=size, other=seven, alpha=1)))
        found.append(extent_of(aten.build("aten.add.Tensor", number, self=size, other=seven, alpha=2)))
        found.append(extent_of(aten.build("aten.sub.Tensor", number, self=size, other=seven, alpha=1)))
        return x

    program({"x": "3x?xf32"}, body)
    *numbers, pair, size, sum_, twice, difference = found
    assert numbers == [5, 0, 7]
    assert sum_ == size + 7
    assert len({pair, size, sum_, twice, difference}) == 5
    assert extent_of(-1) != extent_of(-1)


# ---- the marks on arguments ----------------------------------------------------------------------


def marks(module: IRModule) -> list[dict[str, str]]:
    return [{key: str(mark) for key, mark in notes.items()} for notes in argument_notes(module.graph("main"))]


def three_arguments() -> IRModule:
    return program({"x": "?x4x?xf32", "y": "?xf32", "n": "si64"}, lambda x, y, n: x)


def test_marks_of_sizes() -> None:
    module = three_arguments()
    before = marks(module)
    mark_sizes(module.graph("main"), [["a", "", "b"], ["a"], []])
    shared = [{"patcomp.sizes": '["a", "", ""]'}, {"patcomp.sizes": '["a"]'}, {}]
    assert marks(module) == [old | new for old, new in zip(before, shared, strict=True)]
    first, second = (Value(argument) for argument in module.graph("main").regions[0].block.args[:2])
    assert extents(first)[0] == extents(second)[0] != extents(first)[2]
    drop_notes(module.graph("main"))
    assert marks(module) == before


def test_sizes_that_nothing_shares_are_not_marked() -> None:
    module = three_arguments()
    before = marks(module)
    mark_sizes(module.graph("main"), [["a", "", "b"], ["c"], []])
    assert marks(module) == before
    with pytest.raises(ValueError, match="shorter"):
        mark_sizes(module.graph("main"), [["a", "", "b"], ["c"]])


def test_marks_of_masks() -> None:
    module = three_arguments()
    before = marks(module)
    mark_masks(module.graph("main"), [False] * 3)
    assert marks(module) == before
    with pytest.raises(ValueError, match="shorter"):
        mark_masks(module.graph("main"), [False, True])
    mark_masks(module.graph("main"), [False, True, False])
    assert [set(notes) - set(old) for notes, old in zip(marks(module), before, strict=True)] == [set(), {MASK}, set()]
    mark_sizes(module.graph("main"), [["a", "", "a"], [""], []])
    assert MASK in marks(module)[1]
    drop_notes(module.graph("main"))
    assert marks(module) == before


def test_a_graph_without_notes() -> None:
    module = three_arguments()
    graph = module.graph("main")
    del graph.properties["arg_attrs"]
    assert argument_notes(graph) == [{}, {}, {}]
    drop_notes(graph)
    mark_masks(graph, [True, False, False])
    assert list(map(list, argument_notes(graph))) == [[MASK], [], []]
