"""Programs of one op each, whose operands are inputs: what version of the format an op alone needs."""

from __future__ import annotations

from patcomp.ir import IRModule, create_graph
from patcomp.ir.dialect import create_op
from patcomp.ir.xdsl import Block, Operation, SSAValue, ops_inside
from tests.helpers.dialect_cases import READABLE

_LEFT_OUT = ("coreai.delegate", "coreai.graph", "coreai.output", "coreai.yield", "coreai.condition", "coreai.invoke")
"""Ops that are there only with others or name others, and the one that patcomp does not store."""


def single_ops() -> dict[str, list[IRModule]]:
    """Some programs for each op of the dialect's cases, by its name."""
    found: dict[str, dict[str, IRModule]] = {}
    for case in READABLE:
        if case.outcome == "parse":
            continue
        for op in list(ops_inside(IRModule.parse(case.text).op)):
            if op.name not in _LEFT_OUT:
                module = _alone(op)
                found.setdefault(op.name, {})[module.text()] = module
    return {name: list(modules.values()) for name, modules in found.items()}


def _alone(op: Operation) -> IRModule:
    """A program of an op, whose operands, and what its regions read from outside, are inputs."""
    inner = {op, *ops_inside(op)}
    blocks = {block for each in inner for region in each.regions for block in region.blocks}
    outside: dict[SSAValue, None] = {}
    for each in inner:
        for value in each.operands:
            if value.owner not in inner and value.owner not in blocks:
                outside[value] = None
    block = Block(arg_types=[value.type for value in outside])
    copy = op.clone(value_mapper=dict(zip(outside, block.args, strict=True)))
    block.add_op(copy)
    block.add_op(create_op("coreai.output", list(copy.results), []))
    module = IRModule()
    module.op.body.block.add_op(create_graph("main", block))
    return module
