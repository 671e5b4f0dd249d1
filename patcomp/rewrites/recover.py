"""Recover: composites out of the graph of an unmodified model, and out of ops that export preserves."""

from __future__ import annotations

from collections.abc import Collection

from patcomp.ir import coreai
from patcomp.ir.attributes import CompositeDeclarationAttr
from patcomp.ir.builder import Builder
from patcomp.ir.composite import Composite
from patcomp.ir.module import IRModule
from patcomp.ir.region import RegionOp
from patcomp.ir.value import Value, set_name
from patcomp.ir.xdsl import Operation, OpResult, SSAValue, dead_code
from patcomp.patterns import RuleSet, composites, run
from patcomp.patterns.statistics import Statistics


def recover(module: IRModule, rules: RuleSet, wanted: Collection[str] | None = None) -> Statistics:
    """Applies the recover rules to every graph; each match becomes a `patcomp.region` with a declaration.

    Args:
        module: the normalized module.
        rules: the recover rules.
        wanted: the composites that stay regions; of all others the ops are computed in place. They are
            recovered first nevertheless, because for some ATen ops a composite's body is the only lowering.
            All stay by default.
    """
    statistics = Statistics()
    for graph in module.graphs:
        statistics.add(run(graph, rules.index, blobs=module.blobs, target=coreai))
        if wanted is not None:
            _inline_others(graph, module, wanted)
        dead_code(graph.regions[0])
    return statistics


def known_composites() -> tuple[str, ...]:
    """The names of all composites that the imported catalogs define, sorted."""
    return tuple(sorted({item.name for item in composites if isinstance(item, Composite)}))


def _inline_others(graph: Operation, module: IRModule, wanted: Collection[str]) -> None:
    for op in list(graph.walk(reverse=True)):
        if not isinstance(op, RegionOp) or not isinstance(op.declaration, CompositeDeclarationAttr):
            continue
        if op.declaration.composite_name.data not in wanted:
            _inline(op, module)


def _inline(region: RegionOp, module: IRModule) -> None:
    """Puts the ops of a region in its place."""
    body, parent = region.body.block, region.parent
    assert parent is not None
    for argument, operand in zip(body.args, region.operands, strict=True):
        argument.replace_all_uses_with(operand)
    terminator = body.last_op
    assert terminator is not None
    for op in list(body.ops):
        op.detach()
        if op is not terminator:
            parent.insert_op_before(op, region)
    with Builder(parent, before=region, blobs=module.blobs, location=region.location):
        for result, value in zip(region.results, terminator.operands, strict=True):
            made = _of_type(value, result)
            if isinstance(made, OpResult) and made.op.parent is parent and made not in region.operands:
                set_name(made, result.name_hint)
            result.replace_all_uses_with(made)
    terminator.erase()
    region.detach()
    region.erase()


def _of_type(value: SSAValue, result: SSAValue) -> SSAValue:
    """The value in the type that the region has: 64-bit elements are declared there until the lower stage."""
    if value.type == result.type:
        return value
    return coreai.cast(Value(value), Value(result).element_type, result_type=result.type).ssa
