"""Outline: every `patcomp.region` becomes a `coreai.graph` of its own and a `coreai.invoke` of it.

Equal regions share one graph. The symbol is the region's stem and a hash of its content, so it does
not change from run to run.
"""

from __future__ import annotations

import hashlib

from patcomp.ir.attributes import symbol_constant
from patcomp.ir.dialect import create_op
from patcomp.ir.module import IRModule, create_graph, graph_name
from patcomp.ir.region import RegionOp
from patcomp.ir.text import to_text
from patcomp.ir.value import set_name
from patcomp.ir.xdsl import Operation
from patcomp.patterns.statistics import Statistics


def outline(module: IRModule) -> Statistics:
    """Outlines every region of the module, inner ones first; graphs stand before those that call them."""
    statistics = Statistics()
    symbols: dict[str, str] = {}
    for graph in list(module.graphs):
        regions = [op for op in graph.walk(reverse=True) if isinstance(op, RegionOp)]
        for region in sorted(regions, key=_depth, reverse=True):
            _outline(module, graph, region, symbols)
            statistics.record(f"outline {region.symbol.data}", True, 0.0)
    return statistics


def _depth(op: Operation) -> int:
    depth, parent = 0, op.parent_op()
    while parent is not None:
        depth, parent = depth + 1, parent.parent_op()
    return depth


def _outline(module: IRModule, caller: Operation, region: RegionOp, symbols: dict[str, str]) -> None:
    public = region.public is not None
    content = to_text(region, generic=True, names=False)
    symbol = symbols.get(content) if not public else None
    if symbol is None:
        symbol = f"{region.symbol.data}_{hashlib.sha256(content.encode()).hexdigest()[:8]}"
        taken = {graph_name(graph) for graph in module.graphs}
        while symbol in taken:
            symbol += "x"
        symbols[content] = symbol
        block = region.body.detach_block(0)
        terminator = block.last_op
        assert terminator is not None
        output = create_op("coreai.output", list(terminator.operands), ())
        output.location = terminator.location
        block.insert_op_after(output, terminator)
        block.erase_op(terminator)
        graph = create_graph(
            symbol,
            block,
            argument_names=[name.data for name in region.argument_names.data],
            private=not public,
            no_inline=True,
            declaration=region.declaration,
        )
        graph.location = region.location
        module.op.body.block.insert_op_before(graph, caller)
    invoke = create_op(
        "coreai.invoke",
        list(region.operands),
        [result.type for result in region.results],
        {"callee": symbol_constant(symbol)},
    )
    invoke.location = region.location
    parent = region.parent
    assert parent is not None
    parent.insert_op_before(invoke, region)
    for old, new in zip(region.results, invoke.results, strict=True):
        set_name(new, old.name_hint)
        old.replace_all_uses_with(new)
    region.detach()
    region.erase()
