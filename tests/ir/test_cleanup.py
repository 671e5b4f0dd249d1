"""Dead and repeated ops: one walk of ours removes what xDSL's passes remove until nothing changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from xdsl.transforms.common_subexpression_elimination import cse
from xdsl.transforms.dead_code_elimination import region_dce, would_be_trivially_dead

from patcomp.evaluate.machine import evaluate
from patcomp.ir import aten, coreai
from patcomp.ir.builder import Builder
from patcomp.ir.cleanup import (
    called_graphs,
    is_removable,
    merge_equal_ops,
    pure_graphs,
    remove_dead_ops,
    remove_uncalled_graphs,
)
from patcomp.ir.composite import composite
from patcomp.ir.dialect import OPS, create_op
from patcomp.ir.module import IRModule, callee, create_graph, graph_name
from patcomp.ir.region import PATCOMP
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block, Operation, is_inside, ops_inside
from patcomp.rewrites import Options
from patcomp.rewrites.optimize import optimize
from patterns_catalog import default_rules


def _fill(data: st.DataObject, values: list[Value], depth: int) -> None:
    """Build a few ops on values, with branches inside branches; the values that they give are added."""
    for _ in range(data.draw(st.integers(1, 7))):
        kind = data.draw(st.sampled_from(["constant", "exp", "add", "mul", "cast", *(["if"] if depth else [])]))
        values.append(_value(data, kind, values, depth))


def _value(data: st.DataObject, kind: str, values: list[Value], depth: int) -> Value:
    x, y = (data.draw(st.sampled_from(values)) for _ in range(2))
    if kind == "constant":
        number = data.draw(st.sampled_from([0.0, -0.0, 1.0, 1]))
        return coreai.cast(coreai.constant([number, number]), "f32")
    if kind == "cast":
        return coreai.cast(coreai.cast(x, data.draw(st.sampled_from(["f16", "si32"]))), "f32")
    if kind == "if":
        branches = [lambda: _branch(data, values, depth)] * 2
        return coreai.if_(coreai.constant(data.draw(st.booleans())), *branches)[0]
    return coreai.exp(x) if kind == "exp" else getattr(coreai, kind)(x, y)


def _branch(data: st.DataObject, outer: list[Value], depth: int) -> list[Value]:
    values = list(outer)
    _fill(data, values, depth - 1)
    return [data.draw(st.sampled_from(values))]


def _program(data: st.DataObject) -> IRModule:
    """A program with dead ops, repeated ones, and branches."""
    block = Block(arg_types=[tensor([2], "f32")] * 2)
    values = [Value(argument) for argument in block.args]
    with Builder(block) as builder:
        _fill(data, values, 2)
        used = data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        builder.insert(create_op("coreai.output", [value.ssa for value in used], ()))
    module = IRModule()
    module.op.body.block.add_op(create_graph("main", block))
    return module


def _count(module: IRModule) -> int:
    return sum(1 for _ in module.graph("main").walk()) - 1


@given(st.data())
def test_ops_inside_has_the_ops_of_a_walk(data):
    module = _program(data)
    for scope in (module.op, module.graph("main")):
        assert ops_inside(scope) == list(scope.walk())[1:]
    region = module.graph("main").regions[0]
    assert ops_inside(region) == ops_inside(region.block) == list(region.walk())


@given(st.data())
def test_dead_ops_are_those_of_xdsl(data):
    module = _program(data)
    theirs, text = module.clone(), ""
    while theirs.text() != text:  # xDSL keeps, at first, what only ops inside a dead branch use
        text = theirs.text()
        region_dce(theirs.graph("main").regions[0])
    before = _count(module)
    assert remove_dead_ops(module.graph("main")) == before - _count(module)
    assert module.text() == text
    assert remove_dead_ops(module.graph("main")) == 0


@given(st.data())
def test_merging_reaches_in_one_walk_what_xdsl_reaches_in_many(data):
    module = _program(data)
    theirs, text = module.clone(), ""
    while theirs.text() != text:
        text = theirs.text()
        cse(theirs.graph("main"))
        region_dce(theirs.graph("main").regions[0])
    before = _count(module)
    removed = merge_equal_ops(module.graph("main")) + remove_dead_ops(module.graph("main"))
    assert removed == before - _count(module)
    assert module.text() == text
    assert merge_equal_ops(module.graph("main")) == 0


def test_ops_of_branches_inside_branches_are_counted():
    """In each of seven blocks, one op is dead; those inside repeat both exponentials, and two of them the condition."""
    block = Block(arg_types=[tensor([2], "f32")])
    x = Value(block.args[0])

    def branch(depth: int) -> list[Value]:
        coreai.sin(x)
        first, second = coreai.exp(x), coreai.exp(x)
        y = coreai.if_(coreai.constant(True), *[lambda: branch(depth - 1)] * 2)[0] if depth else x
        return [coreai.add(coreai.mul(first, second), y)]

    with Builder(block) as builder:
        builder.insert(create_op("coreai.output", [branch(2)[0].ssa], ()))
    merging = create_graph("main", block)
    dying, before = merging.clone(), len(ops_inside(merging))
    assert (remove_dead_ops(dying), before - len(ops_inside(dying))) == (7, 7)
    assert (merge_equal_ops(merging), before - len(ops_inside(merging))) == (22, 22)


def test_constants_of_equal_bytes_but_other_types_stay():
    block, zeros = Block(), []
    for value, name in ((0.0, "f32"), (0, "si32"), ([0], "si32"), (0, "si32")):
        with Builder(block):
            zeros.append(coreai.constant(value, name))
    with Builder(block) as builder:
        builder.insert(create_op("coreai.output", [value.ssa for value in zeros], ()))
    graph = create_graph("main", block)
    assert merge_equal_ops(graph) == 1
    outputs = block.last_op.operands
    assert len(set(outputs)) == 3
    assert outputs[1] is outputs[3]


def test_equal_operands_with_other_properties_stay():
    block = Block(arg_types=[tensor([2, 3], "f32")])
    x = block.args[0]
    with Builder(block) as builder:
        made = [builder.insert(aten.create("aten.softmax.int", {"self": x, "dim": dim}, [x.type])) for dim in (0, 1, 0)]
        builder.insert(create_op("coreai.output", [op.results[0] for op in made], ()))
    graph = create_graph("main", block)
    assert merge_equal_ops(graph) == 1
    assert made[0].parent is made[1].parent is block
    assert block.last_op.operands[2] is made[0].results[0]


KINDS = [*OPS.values(), *PATCOMP.operations, aten.op_class("aten.add.Tensor")]


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_the_verdict_of_a_class_is_xdsls_verdict_of_its_ops(kind: type[Operation]):
    op = kind.create()
    assert is_removable(op) == would_be_trivially_dead(op)


CALLS = """
coreai.graph private noinline @inner(%x: tensor<2xf32> {coreai.name = "x"}) -> tensor<2xf32> {
  %y = coreai.exp %x : tensor<2xf32> -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
coreai.graph private noinline @outer(%x: tensor<2xf32> {coreai.name = "x"}) -> tensor<2xf32> {
  %y = coreai.invoke @inner(%x)  : (tensor<2xf32>) -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
coreai.graph private noinline @unordered(%x: tensor<2xf32> {coreai.name = "x"}) -> tensor<2xf32> {
  %t = coreai.create_token : !coreai.token
  coreai.output %x : tensor<2xf32>
}
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}, %z: tensor<2xf32> {coreai.name = "z"})
    -> (tensor<2xf32> {coreai.name = "r"}) {
  %c = coreai.constant dense<true> : tensor<i1>
  %a = coreai.invoke @CALLED(%x)  : (tensor<2xf32>) -> tensor<2xf32>
  %b = coreai.invoke @CALLED(%x)  : (tensor<2xf32>) -> tensor<2xf32>
  %d = coreai.invoke @CALLED(%z)  : (tensor<2xf32>) -> tensor<2xf32>
  %e = coreai.invoke @inner(%a)  : (tensor<2xf32>) -> tensor<2xf32>
  %f = coreai.invoke @inner(%b)  : (tensor<2xf32>) -> tensor<2xf32>
  %r = coreai.decomposable.broadcasting_add %e, %f : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  coreai.output %r : tensor<2xf32>
}
"""


@pytest.mark.parametrize("called", ["inner", "outer"])
def test_equal_calls_are_one_and_unused_ones_go(called: str):
    module = IRModule.parse(CALLS.replace("CALLED", called))
    assert pure_graphs(module, called_graphs(module)) == {"inner", called}
    optimize(module, default_rules().stage("optimize"), Options())
    calls = [callee(op) for op in module.graph("main").walk() if op.name == "coreai.invoke"]
    assert calls == [called, "inner"]
    x = torch.tensor([0.5, -1.0])
    expected = 2 * x.exp().exp()
    assert torch.equal(evaluate(module, {"x": x, "z": x})["r"], expected)


def test_calls_of_graphs_with_effects_stay():
    module = IRModule.parse(CALLS.replace("CALLED", "unordered"))
    assert pure_graphs(module, called_graphs(module)) == {"inner"}
    optimize(module, default_rules().stage("optimize"), Options())
    assert len(module.invokes()["unordered"]) == 3


def test_private_graphs_go_with_their_last_call():
    module = IRModule.parse(CALLS.replace("CALLED", "outer"))
    main = module.graph("main")
    before = called_graphs(module)
    for op in reversed(list(main.walk())):
        if op.name == "coreai.invoke":
            op.results[0].replace_all_uses_with(main.regions[0].block.args[0])
            op.detach()
            op.erase()
    assert remove_uncalled_graphs(module, before) == 2
    assert [graph_name(graph) for graph in module.graphs] == ["unordered", "main"]  # which was never called


def test_an_isolated_body_keeps_ops_of_its_own() -> None:
    """A constant outside a composite is equal to one inside, whose body cannot use values from outside."""

    @composite("plus", inputs=("input",))
    def plus(c: Any, x: Value) -> Value:
        return c.broadcasting_add(x, c.constant([1.0, 2.0, 3.0]))

    block, module = Block(arg_types=[tensor((3,), "f32")]), IRModule()
    with Builder(block):
        x, outside = Value(block.args[0]), coreai.constant([1.0, 2.0, 3.0])
        coreai.output(coreai.broadcasting_mul(plus(x), outside))
    graph = create_graph("main", block)
    module.op.body.block.add_op(graph)
    merge_equal_ops(graph)
    (region,) = [op for op in ops_inside(graph) if op.name == "patcomp.region"]
    inside = ops_inside(region)
    assert "coreai.constant" in [op.name for op in inside]
    assert all(is_inside(operand, region) for op in inside for operand in op.operands)
