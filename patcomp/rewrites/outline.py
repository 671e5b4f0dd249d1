"""Outline: every `patcomp.region` becomes a `coreai.graph` of its own and a `coreai.invoke` of it.

Equal regions share one graph, if it is private. The symbol is the region's stem and a hash of its content, so it
does not change from run to run. The content of a composite's shared body is what the body depends on: its declaration,
its options and its types.
"""

from __future__ import annotations

import hashlib

from patcomp.ir.attributes import symbol_constant
from patcomp.ir.constants import is_constant
from patcomp.ir.dialect import create_op
from patcomp.ir.graphs import region_graph
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.region import RegionOp, inner_first
from patcomp.ir.text import AttributeTexts, to_text
from patcomp.ir.types import is_static
from patcomp.ir.value import replace_op
from patcomp.ir.xdsl import Block, Operation, StringAttr
from patcomp.patterns.statistics import Record, Statistics


def outline(module: IRModule) -> Statistics:
    """Outline every region of the module, inner ones first; graphs come before their callers.

    Regions that share a graph are named after the first of them.
    """
    statistics = Statistics()
    symbols = GraphSymbols(module)
    for graph in list(module.graphs):
        for region in inner_first(graph):
            _outline(graph, region, symbols)
            statistics.record(name := f"outline {region.symbol.data}", True, 0.0)
            statistics.records.append(Record(name, region.location))
    return statistics


class GraphSymbols:
    """The outlined graphs, each with its own symbol."""

    def __init__(self, module: IRModule):
        self._module = module
        self._taken = {graph_name(graph) for graph in module.graphs}
        self._known: dict[tuple[str, str], str] = {}
        self._of_shared: dict[str, str] = {}
        self._texts = AttributeTexts()

    def place(self, graph: Operation, stem: str, caller: Operation, *, public: bool) -> str:
        """Place a graph before its caller under a new symbol, unless an equal one exists; return the symbol."""
        graph.properties["sym_name"] = StringAttr("")
        content = to_text(graph, generic=True, names=False, known=self._texts)
        # the runtime can call a public graph by its name, so only calls of the same module share one
        key = (content, stem if public else "")
        if key not in self._known:
            self._known[key] = self._insert(graph, self._symbol(stem, content), caller)
        return self._known[key]

    def place_shared(self, region: RegionOp, caller: Operation) -> str:
        """Place the graph of a shared body for its first call; return the symbol."""
        assert region.graph is not None
        name = region.graph.string_value()
        if name not in self._of_shared:
            graph = self._module.graph(name)
            graph.detach()
            _order_constants(graph.regions[0].block)
            content = " ".join(map(str, (region.declaration, region.options, graph.properties["function_type"])))
            self._of_shared[name] = self._insert(graph, self._symbol(region.symbol.data, content), caller)
        return self._of_shared[name]

    def _symbol(self, stem: str, content: str) -> str:
        symbol = f"{stem}_{hashlib.sha256(content.encode()).hexdigest()[:8]}"
        while symbol in self._taken:
            symbol += "x"
        self._taken.add(symbol)
        return symbol

    def _insert(self, graph: Operation, symbol: str, caller: Operation) -> str:
        graph.properties["sym_name"] = StringAttr(symbol)
        self._module.op.body.block.insert_op_before(graph, caller)
        return symbol


def _outline(caller: Operation, region: RegionOp, symbols: GraphSymbols) -> None:
    if region.graph is not None:
        symbol = symbols.place_shared(region, caller)
    else:
        symbol = symbols.place(_graph_of(region), region.symbol.data, caller, public=region.public is not None)
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
    block, public = region.body.block, region.public is not None
    assert block.last_op is not None
    # the loader cannot infer dynamic sizes that a branch returns in a graph that must not be inlined
    inlined = public and _has_branch(block) and not all(is_static(value.type) for value in block.last_op.operands)
    graph = region_graph(region, private=not public or inlined, no_inline=not inlined)
    _order_constants(graph.regions[0].block)
    return graph
