"""What the plain objects of a program say of it is what its IR says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from patcomp.emit.bytecode import StoredProgram, read_program
from patcomp.emit.stored.decompositions import has_decomposition
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.emit.stored.loading import loaded_module
from patcomp.emit.stored.outline import WITH_REGIONS, Outline
from patcomp.emit.stored.storing import stored_program
from patcomp.interface.graphs import entry_signature
from patcomp.ir import IRModule
from patcomp.ir.module import graph_name
from patcomp.ir.weights import stored_weights
from patcomp.program.composite_calls import composite_calls
from tests.asset.native_programs import native_programs
from tests.emit.assets import adds, ramp

_COMPUTES_NOTHING = ("builtin.module", "coreai.graph", "coreai.output")


def of_program(program: StoredProgram) -> Any:
    outline = Outline(program)
    entries = {
        name: (
            [(each.name, each.shape, each.element_type) for each in arguments if not each.is_state],
            [(each.name, each.shape, each.element_type) for each in results],
            [(each.name, each.shape, each.element_type) for each in arguments if each.is_state],
        )
        for name, arguments, results in outline.entry_points()
    }
    weights = {(each.name, each.shape, each.element_type, each.bytes) for each in outline.weights()}
    return entries, Counter(outline.composites()), Counter(outline.op_names()), weights


def of_module(module: IRModule) -> Any:
    entries = {}
    for graph in module.entry_graphs:
        signature = entry_signature(graph)
        kinds = signature.inputs, signature.outputs, signature.states
        entries[graph_name(graph)] = tuple(
            [(each.name, each.shape, each.element_type) for each in kind] for kind in kinds
        )
    ops = Counter(op.name for op in module.op.walk() if op.name not in _COMPUTES_NOTHING)
    weights = {(each.name, each.shape, each.element_type, each.bytes) for each in stored_weights(module)}
    return entries, Counter(call.composite for call in composite_calls(module)), ops, weights


def test_the_outline_is_that_of_the_ir() -> None:
    seen = 0
    for name, data in native_programs().items():
        program = read_program(data)
        try:
            module = loaded_module(program)
        except UnsupportedInAssetError:
            continue
        assert of_program(program) == of_module(module), name
        seen += 1
    assert seen > 220


def test_weights_are_listed_with_their_bytes() -> None:
    module = adds(ramp(300), ramp(300), ramp(300, 1.0))
    (first, *further) = Outline(stored_program(module)).weights()
    assert (first.shape, first.element_type, first.bytes) == ((300,), "f32", 1200)
    assert len(further) == 1  # equal ones are stored once


def test_ops_with_regions_are_those_of_the_dialect() -> None:
    assert {"dataflow.graph_v1", "controlflow.while_v1", "primitive.scatter_nd_v1"} < WITH_REGIONS
    assert not any(map(has_decomposition, WITH_REGIONS))


def test_names_that_do_not_fit_the_types_are_refused() -> None:
    program = read_program(native_programs()["abs"])
    (block,) = program.asset.regions[0]
    graph = next(op for op in block.ops if op.name == "dataflow.graph_v1")
    graph.properties["argAttrs"] = ("array", (("array", ()),) * 3)
    with pytest.raises(UnsupportedInAssetError, match="3 names for 1 values"):
        list(Outline(program).entry_points())
