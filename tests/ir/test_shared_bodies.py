"""Shared bodies: equal calls of a composite have one body, and no call has the body of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.errors import RuleError, VerifyError
from patcomp.evaluate.machine import evaluate
from patcomp.ir import aten
from patcomp.ir.builder import Builder
from patcomp.ir.composite import Composite, composite
from patcomp.ir.dialect import create_op
from patcomp.ir.locations import Origin, origin_location
from patcomp.ir.module import IRModule, create_graph, graph_name
from patcomp.ir.region import RegionOp, inner_first
from patcomp.ir.shared_bodies import SharedBodies, frozen
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Attribute, Block, SymbolRefAttr, set_name
from patcomp.rewrites import Options
from patcomp.rewrites.outline import outline
from patcomp.rewrites.recover import recover
from patterns_catalog import default_rules

MATRIX = tensor((2, 3), "f32")

Call = Callable[[Value], Value]


@composite("shifted", inputs=("input", "other"), attributes=("by",))
def shifted(c: Any, x: Value, other: Value | None = None, *, by: Any, twice: Any = False) -> Value:
    by = by[0] if isinstance(by, list | tuple) else by
    made = c.broadcasting_add(x, c.cast(c.constant(by), x.element_type))
    made = c.broadcasting_mul(made, 2.0) if twice else made
    return made if other is None else c.broadcasting_add(made, other)


@composite("shifted", inputs=("input", "other"), attributes=("by",))
def namesake(c: Any, x: Value, other: Value | None = None, *, by: Any) -> Value:
    return c.broadcasting_sub(x, float(by))


def program(*calls: Call, types: tuple[Attribute, ...] = (MATRIX,), check: bool = False) -> IRModule:
    """A program whose results are those of calls of a composite, one for each call and each type."""
    module, bodies = IRModule(), SharedBodies(check=check)
    block = Block(arg_types=types)
    for index, argument in enumerate(block.args):
        set_name(argument, f"x{index}")
    with Builder(block, blobs=module.blobs) as builder:
        made = []
        with bodies.used():
            for call in calls:
                for argument in block.args:
                    builder.location = origin_location(Origin(f"call{len(made)}"))
                    made.append(call(Value(argument)))
        builder.insert(create_op("coreai.output", [value.ssa for value in made], ()))
    names = [f"x{index}" for index in range(len(types))]
    graph = create_graph("main", block, argument_names=names)
    module.op.body.block.add_op(graph)
    bodies.place(module)
    verify(module, runtime=False)
    return module


def bodies_of(module: IRModule) -> int:
    """The number of bodies of the calls of a program."""
    regions = [op for op in module.graph("main").regions[0].block.ops if isinstance(op, RegionOp)]
    return len({region.graph if region.graph is not None else region for region in regions})


def test_equal_calls_share_a_body() -> None:
    module = program(lambda x: shifted(x, by=1.5), lambda x: shifted(x, by=1.5), types=(MATRIX, MATRIX))
    assert [graph_name(graph) for graph in module.graphs] == ["shifted", "main"]
    assert [str(region.graph) for region in inner_first(module.graph("main"))] == ["@shifted"] * 4
    assert IRModule.parse(module.text()).text() == module.text()
    inputs = {"x0": torch.ones(2, 3), "x1": torch.zeros(2, 3)}
    for each in (module, module.clone()):
        results = evaluate(each, dict(inputs))
        assert [value[0, 0].item() for value in results.values()] == [2.5, 1.5, 2.5, 1.5]
    outline(module)
    assert [str(name) for name in evaluate(module, dict(inputs))] == list(map(str, results))
    assert len(list(module.graphs)) == 2


DIFFERENT: dict[str, tuple[Call, Call]] = {
    "attribute": (lambda x: shifted(x, by=1.5), lambda x: shifted(x, by=2.5)),
    "attributes that are equal as float32": (lambda x: shifted(x, by=0.1), lambda x: shifted(x, by=0.1 + 1e-12)),
    "attributes that are equal in Python": (lambda x: shifted(x, by=1), lambda x: shifted(x, by=True)),
    "number and float": (lambda x: shifted(x, by=1), lambda x: shifted(x, by=1.0)),
    "zeros": (lambda x: shifted(x, by=0.0), lambda x: shifted(x, by=-0.0)),
    "list and tuple": (lambda x: shifted(x, by=[1]), lambda x: shifted(x, by=(1,))),
    "option": (lambda x: shifted(x, by=1.5), lambda x: shifted(x, by=1.5, twice=True)),
    "inputs given": (lambda x: shifted(x, by=1.5), lambda x: shifted(x, x, by=1.5)),
    "composite": (lambda x: shifted(x, by=1.5), lambda x: namesake(x, by=1.5)),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_different_calls_share_nothing(what: str) -> None:
    assert bodies_of(program(*DIFFERENT[what])) == 2


@pytest.mark.parametrize("other", [tensor((2, 4), "f32"), tensor((2, 3), "f16"), tensor((2, None), "f32")])
def test_calls_with_inputs_of_other_types_share_nothing(other: Attribute) -> None:
    assert bodies_of(program(lambda x: shifted(x, by=1.5), types=(MATRIX, other))) == 2


def _of(body: Callable[..., Value]) -> Composite:
    return composite("own", inputs=("input",), attributes=())(body)


def _aten(c: Any, x: Value) -> Value:
    return aten.build("aten.relu", x.type, self=x)


def _wide(c: Any, x: Value) -> Value:
    return c.cast(c.cast(x, "si64"), "f32")


def _weight(c: Any, x: Value) -> Value:
    return c.broadcasting_add(c.reduce_sum(c.constant(np.arange(600, dtype=np.float32)), [0]), x)


def _from_elsewhere(c: Any, x: Value) -> Value:
    Builder.current().location = origin_location(Origin("elsewhere"))
    return c.abs(x)


def _nested(c: Any, x: Value) -> Value:
    made = shifted(x, by=1.5)
    assert isinstance(made, Value)
    return made


@pytest.mark.parametrize("body", [_aten, _wide, _weight, _from_elsewhere, _nested])
def test_a_body_that_stages_may_treat_by_its_call_is_not_shared(body: Callable[..., Value]) -> None:
    """ATen ops, 64-bit numbers, weights, ops of another place, calls of other composites."""
    own = _of(body)
    module = program(lambda x: own(x), lambda x: own(x))
    assert bodies_of(module) == 2


def test_a_result_of_another_type_than_the_body_has_is_not_shared() -> None:
    own = _of(lambda c, x: c.cast(x, "si32"))
    wide = tensor((2, 3), "si64")
    bodies = SharedBodies()
    with bodies.used(), Builder(Block(arg_types=[MATRIX])) as builder:
        x = Value(builder.block.args[0])
        made = [own(x), own(x, result_types=[wide]), own(x)]
    assert [value.ssa.owner.graph is None for value in made] == [False, True, False]
    assert made[1].ssa.type == wide


def test_a_keyword_that_no_key_describes_prevents_sharing() -> None:
    """An object may say anything to a body, and change between two calls."""
    with pytest.raises(TypeError, match="has no key"):
        frozen({"option": object()})
    by = [np.float32(1.5)]
    own = composite("own", inputs=("input",), attributes=())(
        lambda c, x, *, array: c.broadcasting_add(x, float(array[0]))
    )
    assert bodies_of(program(lambda x: own(x, array=by), lambda x: own(x, array=by))) == 2


def test_a_body_that_reads_more_than_types_and_keywords_is_found_where_all_are_built() -> None:
    numbers: Iterator[float] = iter([1.0, 2.0])
    own = _of(lambda c, x: c.broadcasting_add(x, next(numbers)))
    with pytest.raises(RuleError, match="body of the composite own differs between two calls"):
        program(lambda x: own(x), lambda x: own(x), check=True)
    assert bodies_of(program(lambda x: shifted(x, by=1.5), lambda x: shifted(x, by=1.5), check=True)) == 1


def test_a_shared_body_has_the_place_of_its_first_call() -> None:
    """The stage finds the last call first."""
    module = norms()
    recover(module, default_rules().stage("recover"), Options())
    regions = inner_first(module.graph("main"))
    assert len(regions) == 2
    (body,) = {str(region.graph) for region in regions}
    assert {op.location for op in module.graph(body[1:]).walk()} == {regions[0].location}


def test_a_call_that_is_computed_in_place_has_its_own_copy() -> None:
    module = norms()
    recover(module, default_rules().stage("recover"), Options(composites=()))
    (graph,) = module.graphs
    rsqrts = [op for op in graph.walk() if op.name == "coreai.rsqrt"]
    assert len(rsqrts) == 2
    assert rsqrts[0].location != rsqrts[1].location
    assert not any(isinstance(op, RegionOp) for op in graph.walk())
    verify(module, runtime=False)


NORMS = """module {
  coreai.graph @main(%x: tensor<2x8xf32> {coreai.name = "x"}, %w: tensor<8xf32> {coreai.name = "w"})
      -> (tensor<2x8xf32> {coreai.name = "y"}) {
    %a, %am, %ar = aten.native_layer_norm %x, normalized_shape = [8], weight = %w, bias = %w, eps = 1.0e-05
      : (tensor<2x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<2x8xf32>, tensor<2x1xf32>, tensor<2x1xf32>)
    %b, %bm, %br = aten.native_layer_norm %a, normalized_shape = [8], weight = %w, bias = %w, eps = 1.0e-05
      : (tensor<2x8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<2x8xf32>, tensor<2x1xf32>, tensor<2x1xf32>)
    coreai.output %b : tensor<2x8xf32>
  }
}"""


def norms() -> IRModule:
    """Two equal norms, each of its own place."""
    module = IRModule.parse(NORMS)
    for op in module.graph("main").regions[0].block.ops:
        op.location = origin_location(Origin(op.results[0].name_hint if op.results else "output"))
    return module


def test_a_name_that_a_graph_has_is_not_taken() -> None:
    module = program(lambda x: shifted(x, by=1.5), lambda x: shifted(x, by=2.5))
    assert [graph_name(graph) for graph in module.graphs] == ["shifted", "shifted_2", "main"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda region: region.properties.update(graph=SymbolRefAttr("absent")), "there is no graph @absent"),
        (lambda region: region.properties.pop("graph"), "lacks its body"),
        (lambda region: region.properties.update(graph=SymbolRefAttr("shifted")), "@shifted has the signature"),
    ],
)
def test_the_verifier_checks_calls(change: Callable[[RegionOp], object], words: str) -> None:
    module = program(lambda x: shifted(x, by=1.5), types=(MATRIX, tensor((3,), "f32")))
    change(inner_first(module.graph("main"))[-1])
    with pytest.raises(VerifyError, match=words):
        verify(module, runtime=False)
