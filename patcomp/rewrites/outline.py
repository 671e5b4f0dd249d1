"""Outline: every `patcomp.region` becomes a `coreai.graph` of its own and a `coreai.invoke` of it.

Equal regions share one graph, if it is private. The symbol is the region's stem and a hash of its content, so it
does not change from run to run.
"""

from __future__ import annotations

import hashlib

from patcomp.ir.attributes import symbol_constant
from patcomp.ir.constants import is_constant
from patcomp.ir.dialect import create_op
from patcomp.ir.module import IRModule, create_graph, graph_name
from patcomp.ir.region import RegionOp
from patcomp.ir.text import to_text
from patcomp.ir.types import is_static
from patcomp.ir.value import replace_op
from patcomp.ir.xdsl import Block, Operation, StringAttr
from patcomp.patterns.statistics import Statistics


def outline(module: IRModule) -> Statistics:
    """Outline every region of the module, inner ones first; graphs come before their callers.

    Regions that share a graph are named after the first of them.
    """
    statistics = Statistics()
    symbols = Symbols(module)
    for graph in list(module.graphs):
        regions = [op for op in graph.walk() if isinstance(op, RegionOp)]
        for region in sorted(regions, key=_depth, reverse=True):
            _outline(graph, region, symbols)
            statistics.record(f"outline {region.symbol.data}", True, 0.0)
    return statistics


class Symbols:
    """The outlined graphs, each with its own symbol."""

    def __init__(self, module: IRModule):
        self._module = module
        self._known: dict[tuple[str, str], str] = {}

    def place(self, graph: Operation, stem: str, caller: Operation, *, public: bool) -> str:
        """Place an unnamed graph before its caller, unless an equal one exists; return the symbol."""
        content = to_text(graph, generic=True, names=False)
        # the runtime can call a public graph by its name, so only calls of the same module share one
        key = (content, stem if public else "")
        symbol = self._known.get(key)
        if symbol is None:
            symbol = f"{stem}_{hashlib.sha256(content.encode()).hexdigest()[:8]}"
            taken = {graph_name(other) for other in self._module.graphs}
            while symbol in taken:
                symbol += "x"
            self._known[key] = symbol
            graph.properties["sym_name"] = StringAttr(symbol)
            self._module.op.body.block.insert_op_before(graph, caller)
        return symbol


def _depth(op: Operation) -> int:
    depth, parent = 0, op.parent_op()
    while parent is not None:
        depth, parent = depth + 1, parent.parent_op()
    return depth


def _outline(caller: Operation, region: RegionOp, symbols: Symbols) -> None:
    public = region.public is not None
    graph = _graph_of(region)
    symbol = symbols.place(graph, region.symbol.data, caller, public=public)
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
    replace_op(region, invoke.results)


def _order_constants(block: Block) -> None:
    """Put each constant of a block before its first user, so that equal computations have one text."""
    constants = {op.results[0]: op for op in block.ops if is_constant(op)}
    for op in constants.values():
        op.detach()
    for op in list(block.ops):
        for operand in (operand for inner in op.walk() for operand in inner.operands):
            if (constant := constants.pop(operand, None)) is not None:
                block.insert_op_before(constant, op)
    for op in constants.values():
        op.erase()


def _has_branch(block: Block) -> bool:
    return any(op.name == "coreai.if" for op in block.walk())


def _graph_of(region: RegionOp) -> Operation:
    """The region's body as an unplaced graph without a name."""
    block = region.body.detach_block(0)
    terminator = block.last_op
    assert terminator is not None
    output = create_op("coreai.output", list(terminator.operands), ())
    output.location = terminator.location
    block.insert_op_after(output, terminator)
    block.erase_op(terminator)
    _order_constants(block)
    # the loader cannot infer dynamic sizes that a branch returns in a graph that must not be inlined
    inlined = (
        region.public is not None and _has_branch(block) and not all(is_static(value.type) for value in output.operands)
    )
    public = region.public is not None and not inlined
    names = region.result_names.data if public and region.result_names else ()
    graph = create_graph(
        "",
        block,
        argument_names=[name.data for name in region.argument_names.data],
        result_names=[name.data for name in names],
        private=not public,
        no_inline=not inlined,
        declaration=region.declaration,
    )
    graph.location = region.location
    return graph
