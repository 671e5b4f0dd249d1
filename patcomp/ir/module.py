"""`IRModule`: the module op together with the weights it refers to, and the graphs in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from patcomp.ir.attributes import NO_PARAMETERS
from patcomp.ir.blobs import BlobStore
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.custom import Lower
from patcomp.ir.dialect import OPS
from patcomp.ir.text import parse_module, to_text
from patcomp.ir.xdsl import (
    ArrayAttr,
    Attribute,
    Block,
    DictionaryAttr,
    FunctionType,
    ModuleOp,
    Operation,
    Region,
    StringAttr,
    TensorType,
    UnitAttr,
    ops_inside,
    set_name,
    unchecked,
)


@dataclass(eq=False)
class IRModule:
    """A program in the IR at some stage: `op` is the xDSL module, `blobs` the weights its text names."""

    op: ModuleOp = field(default_factory=lambda: ModuleOp([]))
    blobs: BlobStore = field(default_factory=BlobStore)
    custom: dict[Operation, Lower] = field(default_factory=dict)
    """The functions that lower the `patcomp.custom` ops of an imported program; text lacks them."""
    kernels: dict[str, Callable[..., Sequence[Any]]] = field(default_factory=dict)
    """The function of tensors that the evaluator runs in place of each Metal kernel, by `kernel_name`."""

    @classmethod
    def parse(cls, text: str, blobs: BlobStore | None = None) -> IRModule:
        """The module of a text; weights that the text only names come from `blobs`.

        Raises:
            ParseError: the text is not valid IR.
        """
        return cls(parse_module(text), blobs or BlobStore())

    def text(self, *, generic: bool = False, locations: bool = False) -> str:
        """The MLIR text, in the pretty form unless `generic`."""
        return to_text(self.op, generic=generic, locations=locations)

    def __str__(self) -> str:
        return self.text()

    @property
    def graphs(self) -> Iterator[CoreaiOp]:
        """The `coreai.graph` ops in order."""
        for op in self.op.body.block.ops:
            if op.name == "coreai.graph":
                yield op  # type: ignore[misc]

    def graph(self, name: str) -> CoreaiOp:
        """The graph of a name.

        Raises:
            KeyError: there is none; the message lists the graphs.
        """
        for graph in self.graphs:
            if graph_name(graph) == name:
                return graph
        raise KeyError(f"no graph @{name}; there are {', '.join('@' + graph_name(g) for g in self.graphs) or 'none'}")

    @property
    def entry_graphs(self) -> list[CoreaiOp]:
        """The entry points: graphs that are neither private nor externalized from another."""
        inner = {"priv", "externalize", "no_inline"}
        return [graph for graph in self.graphs if inner.isdisjoint(graph.properties)]

    def clone(self) -> IRModule:
        """An independent copy that shares the weights."""
        copy = self.op.clone()
        custom: dict[Operation, Lower] = {}
        for mine, other in zip(self.op.walk(), copy.walk(), strict=True):
            if mine in self.custom:
                custom[other] = self.custom[mine]
            values = [*mine.results, *(a for region in mine.regions for block in region.blocks for a in block.args)]
            others = [*other.results, *(a for region in other.regions for block in region.blocks for a in block.args)]
            for value, copied in zip(values, others, strict=True):
                set_name(copied, value.name_hint)
        return IRModule(copy, self.blobs, custom, dict(self.kernels))

    def calls(self) -> dict[str, set[str]]:
        """Which graph calls which, by symbol."""
        return {
            graph_name(graph): {callee(op) for op in ops_inside(graph) if op.name == "coreai.invoke"}
            for graph in self.graphs
        }

    def composite_names(self) -> dict[str, str]:
        """The composite that each graph with a declaration is, by symbol."""
        return {
            graph_name(graph): graph.properties["composite_decl"].composite_name.data  # type: ignore[attr-defined]
            for graph in self.graphs
            if "composite_decl" in graph.properties
        }

    def invokes(self) -> dict[str, list[Operation]]:
        """The `coreai.invoke` ops of each graph that is called, by symbol."""
        found: dict[str, list[Operation]] = {}
        for op in ops_inside(self.op):
            if op.name == "coreai.invoke":
                found.setdefault(callee(op), []).append(op)
        return found

    def op_count(self) -> int:
        """How many ops there are inside graphs, at any depth, constants and terminators included."""
        return sum(len(ops_inside(graph)) for graph in self.graphs)


def graph_name(graph: Operation) -> str:
    """The symbol of a graph."""
    return graph.properties["sym_name"].data  # type: ignore[attr-defined]


def callee(invoke: Operation) -> str:
    """The symbol of the graph that a `coreai.invoke` calls."""
    return invoke.properties["callee"].symbol.string_value()  # type: ignore[attr-defined, no-any-return]


def create_graph(
    name: str,
    body: Block,
    *,
    argument_names: Sequence[str] = (),
    result_names: Sequence[str] = (),
    private: bool = False,
    no_inline: bool = False,
    declaration: Attribute | None = None,
) -> CoreaiOp:
    """A graph around a block that ends in `coreai.output`; its signature is read off the block.

    Args:
        name: symbol.
        body: the block; its arguments are the graph's.
        argument_names, result_names: the names at run time (`coreai.name`); empty for none.
        private, no_inline: keywords of the graph.
        declaration: composite declaration (`attributes.composite_declaration`).
    """
    terminator = body.last_op
    assert terminator is not None
    assert terminator.name == "coreai.output"
    properties: dict[str, Attribute | None] = {
        "arg_attrs": named(argument_names) if argument_names else None,
        "composite_decl": declaration,
        "function_type": function_type(body),
        "no_inline": UnitAttr() if no_inline else None,
        "param_decls": NO_PARAMETERS,
        "priv": UnitAttr() if private else None,
        "res_attrs": named(result_names) if result_names else None,
        "sym_name": StringAttr(name),
    }
    given = {name: attribute for name, attribute in properties.items() if attribute is not None}
    graph = OPS["coreai.graph"].create(properties=given, regions=[Region(body)])
    assert isinstance(graph, CoreaiOp)
    return graph


def with_outputs(module: IRModule, name: str, values: Container[str]) -> tuple[IRModule, dict[str, str]]:
    """A copy of a module whose graph also returns inner values.

    Args:
        module: the module.
        name: the graph.
        values: the names of the values. If several values of the graph have a name, none of them is returned.

    Returns:
        The copy, and by the name of each added output the name of its value, in the order of the graph.
    """
    copy = module.clone()
    graph = copy.graph(name)
    body = graph.regions[0].block
    output = body.last_op
    assert output is not None
    hinted = [(value.name_hint, value) for op in body.ops for value in op.results if value.name_hint in values]
    repeated = Counter(hint for hint, _ in hinted)
    found = {
        f"inner.{hint}": value
        for hint, value in hinted
        if repeated[hint] == 1 and isinstance(value.type, TensorType) and value not in output.operands
    }
    before = graph.properties.get("res_attrs")
    attributes = before.data if isinstance(before, ArrayAttr) else [DictionaryAttr({}) for _ in output.operands]
    graph.properties["res_attrs"] = ArrayAttr([*attributes, *named(list(found)).data])
    output.operands = [*output.operands, *found.values()]
    graph.properties["function_type"] = function_type(body)
    return copy, {each: each.removeprefix("inner.") for each in found}


def function_type(body: Block) -> FunctionType:
    """The function type of a graph's block."""
    assert body.last_op is not None
    inputs, outputs = (a.type for a in body.args), (v.type for v in body.last_op.operands)
    return unchecked(
        FunctionType, inputs=unchecked(ArrayAttr, data=tuple(inputs)), outputs=unchecked(ArrayAttr, data=tuple(outputs))
    )


def named(names: Sequence[str]) -> ArrayAttr:
    """The argument or result attributes that give each its run-time name."""
    return ArrayAttr([DictionaryAttr({"coreai.name": StringAttr(name)}) for name in names])


def names_of(graph: Operation, which: str) -> list[str | None]:
    """The run-time names of a graph's arguments (`"arg_attrs"`) or results (`"res_attrs"`), None where unnamed."""
    signature: FunctionType = graph.properties["function_type"]  # type: ignore[assignment]
    count = len(signature.inputs if which == "arg_attrs" else signature.outputs)
    array = graph.properties.get(which)
    if not isinstance(array, ArrayAttr):
        return [None] * count
    values = [entry.data.get("coreai.name") for entry in array.data]  # type: ignore[attr-defined]
    return [value.data if isinstance(value, StringAttr) else None for value in values]
