"""Locations: an op leads back to the FX nodes and source lines it came from, also through text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patcomp.ir import Builder, IRModule, Origin, Value, coreai, create_graph, origins, tensor
from patcomp.ir.locations import UNKNOWN, describe, fused, origin_location, rules
from patcomp.ir.xdsl import Block, Operation

FIRST = Origin("add_1", "model.layers.0", "model.py", 12)
SECOND = Origin("mul", "model.layers.1", "model.py", 13)


def op_at(location: object) -> Operation:
    from patcomp.ir import OPS

    op = OPS["coreai.create_token"].create()
    op.location = location
    return op


@pytest.mark.parametrize("origin", [FIRST, Origin("x"), Origin("x", "a.b"), Origin("x", "", "f.py", 3)])
def test_an_origin_comes_back(origin: Origin) -> None:
    assert origins(origin_location(origin)) == (origin,)
    assert rules(origin_location(origin)) == ()


def test_rules_and_origins_of_what_rules_made() -> None:
    inner = fused("mul_to_add", [op_at(origin_location(FIRST)), op_at(UNKNOWN)])
    outer = fused("rms_norm", [op_at(inner), op_at(origin_location(SECOND)), op_at(origin_location(FIRST))])
    assert origins(outer) == (FIRST, SECOND)
    assert rules(outer) == ("rms_norm", "mul_to_add")
    assert describe(op_at(outer)) == "%add_1 in model.layers.0 at model.py:12; %mul in model.layers.1 at model.py:13"


def test_unknown_locations() -> None:
    assert origins(UNKNOWN) == ()
    assert describe(op_at(UNKNOWN)) == "unknown source"
    assert rules(fused("rule", [op_at(UNKNOWN)])) == ("rule",)


def test_many_origins_are_cut() -> None:
    location = fused("all", [op_at(origin_location(Origin(f"n{i}"))) for i in range(5)])
    assert describe(op_at(location)) == "%n0; %n1; %n2 and 2 more"


def round_trip(location: object) -> object:
    block = Block(arg_types=[tensor((2,), "f32")])
    with Builder(block, location=location):
        coreai.output(coreai.tanh(Value(block.args[0])))
    module = IRModule()
    module.op.body.block.add_op(create_graph("main", block))
    text = module.text(locations=True)
    again = IRModule.parse(text)
    assert again.text(locations=True) == text
    return again.graph("main").regions[0].block.first_op.location


names = st.text(st.characters(codec="utf-8", exclude_characters="@"), min_size=1, max_size=8)


@given(names, names, names, st.integers(0, 10**6))
def test_origins_survive_text(node: str, path: str, file: str, line: int) -> None:
    origin = Origin(node, path, file, line)
    location = fused("a_rule", [op_at(origin_location(origin)), op_at(origin_location(SECOND))])
    read = round_trip(location)
    assert origins(read) == tuple(dict.fromkeys((origin, SECOND)))
    assert rules(read) == ("a_rule",)


def test_text_without_locations_has_none() -> None:
    block = Block(arg_types=[])
    with Builder(block, location=origin_location(FIRST)):
        coreai.output()
    module = IRModule()
    module.op.body.block.add_op(create_graph("main", block))
    assert "model.py" not in module.text()
    assert "model.py" in module.text(locations=True)
