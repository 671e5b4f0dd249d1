"""The debug information of an asset: for each op a number, its source lines and modules, and the nodes of the model
whose values it computes.

The form is that of coreai-torch 0.4.3, as its assets show it. An op's metadata are `op_id` of the level `coreai`,
`sources` and `op_id` of the level `torch` (an FX node by number and name), `call_stack` (modules, innermost first) and
`output_maps` (results of nodes that are results of the op). Locations are nested once at most: OS 27 does not load
deeper ones. coreai-torch puts several nodes of an op into several locations, fused, and so does this.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath

from patcomp.emit.bytecode import StoredEntry
from patcomp.emit.stored.locations import NO_FILE, UNIT
from patcomp.emit.stored.types import stored_type
from patcomp.ir.constants import is_constant
from patcomp.ir.debug_facts import DebugFacts, NodeFacts, SourceLine
from patcomp.ir.locations import origins
from patcomp.ir.module import IRModule, callee, graph_name
from patcomp.ir.types import HandleType, TensorType, shape_of
from patcomp.ir.xdsl import Operation, SSAValue

TORCH_IDS, COREAI_IDS = "torch", "coreai"
"""The levels of numbers and outputs."""


def node_numbers(facts: DebugFacts) -> dict[tuple[str, str], int]:
    """The number of each node, by its entry point and name."""
    return {key: number for number, key in enumerate((entry, name) for entry, nodes in facts.items() for name in nodes)}


class DebugInfo:
    """Makes the locations of the ops of a program.

    Args:
        module: the program.
        facts: the nodes of its entry points.
    """

    def __init__(self, module: IRModule, facts: DebugFacts):
        self._module = module
        numbers = node_numbers(facts)
        self._nodes = {key: (number, facts[key[0]][key[1]]) for key, number in numbers.items()}
        ops = [op for graph in module.graphs for op in (*_inside(graph), graph)]
        self._numbers = {op: number for number, op in enumerate([*ops, module.op])}
        self._graphs = {op: graph for graph in module.graphs for op in (*_inside(graph), graph)}
        self._entries = _entries(module)
        self._outputs = {op: found for graph in module.graphs for op, found in self._mapped(graph)}

    def location(self, op: Operation) -> StoredEntry:
        """The stored location of an op; of a graph, the subprogram that it is."""
        number = _op_id(COREAI_IDS, self._numbers[op])
        if op is self._module.op:
            return _location(self._first_frame, self._unit, (), (number,))
        graph = self._graphs[op]
        if op is graph:
            return _location((self._first_frame[0], 0), self._subprogram(graph), (), (number,))
        maps = self._outputs.get(op, [])
        nodes = dict.fromkeys([*(key for key, *_ in maps), *self._origins(op, graph)])
        if not nodes:
            return _location((NO_FILE, 0), UNIT, (), (number,))
        scope = ("symbol_ref_v1", (graph_name(graph),))
        (first, *others) = (self._nodes[key] for key in nodes)
        frames = first[1].frames or ((NO_FILE, 0),)
        outer = [_location(frame, scope, (), ()) for frame in frames[1:]]
        beside = [
            _location((each.frames or ((NO_FILE, 0),))[0], scope, (), _of_node(name, node, each))
            for name, (node, each) in zip([name for _, name in nodes][1:], others, strict=True)
        ]
        own = _of_node(next(iter(nodes))[1], *first)
        mapped = [_output_map(self._nodes[key][0], output, result) for key, output, result in maps]
        metadata = (*own, number, *([_metadata("output_maps", ("array", tuple(mapped)))] if mapped else ()))
        return _location(frames[0], scope, (*outer, *beside), metadata)

    def _origins(self, op: Operation, graph: Operation) -> list[tuple[str, str]]:
        """The nodes that an op comes from; a constant without any comes from where it is used first."""
        entry = self._entries.get(graph_name(graph), "")
        places = origins(op.location)
        found = [(entry, place.node) for place in places if (entry, place.node) in self._nodes]
        if not found and is_constant(op):
            users = (use.operation for result in op.results for use in result.uses)
            return next((self._origins(user, graph) for user in users if not is_constant(user)), [])
        return found

    def _mapped(self, graph: Operation) -> Iterator[tuple[Operation, list[tuple[tuple[str, str], int, int]]]]:
        """The ops of a graph with results of nodes: the node, and which result of it is which one of the op.

        Values keep the names of nodes. Names of values in bodies of composites are not those of nodes, and a graph that
        is called several times stands for several nodes.
        """
        if graph not in self._mapped_graphs.values():
            return
        entry = self._entries.get(graph_name(graph), "")
        values = [(op, index) for op in graph.regions[0].block.ops for index in range(len(op.results))]
        values = [(op, index) for op, index in values if not self._is_mapped_call(op)]
        repeated = Counter(op.results[index].name_hint for op, index in values)
        known = {op.results[index].name_hint: (op, index) for op, index in values}
        found: dict[Operation, list[tuple[tuple[str, str], int, int]]] = {}
        for key, (_, facts) in self._nodes.items():
            if key[0] != entry:
                continue
            for output, (names, shape) in enumerate(zip(facts.names, facts.shapes, strict=True)):
                name = next((name for name in names if repeated[name] == 1), None)
                if name is None:
                    continue
                op, index = known[name]
                if not is_constant(op) and _fits(op.results[index], shape):
                    found.setdefault(op, []).append((key, output, index))
        yield from found.items()

    def _is_mapped_call(self, op: Operation) -> bool:
        """Whether an op calls a graph that has the values of nodes itself."""
        return op.name == "coreai.invoke" and callee(op) in self._mapped_graphs

    @cached_property
    def _mapped_graphs(self) -> Mapping[str, Operation]:
        """The entry points, and the graphs of modules that are called once, by name."""
        calls = self._module.invokes()
        public = [graph for graph in self._module.graphs if not {"priv", "composite_decl"} & graph.properties.keys()]
        named = {graph_name(graph): graph for graph in public}
        return {name: graph for name, graph in named.items() if len(calls.get(name, ())) < 2}

    @cached_property
    def _files(self) -> list[str]:
        return list(dict.fromkeys(file for _, each in self._nodes.values() for file, _ in each.frames)) or [NO_FILE]

    @property
    def _first_frame(self) -> SourceLine:
        return self._files[0], 0

    @cached_property
    def _unit(self) -> StoredEntry:
        files = tuple(map(_file, self._files))
        return ("compile_unit", "mlir", files[0], "torch", 0, "", files)

    def _subprogram(self, graph: Operation) -> StoredEntry:
        block = graph.regions[0].block
        assert block.last_op is not None
        results = tuple(stored_type(each) for value in block.last_op.operands if (each := _content(value)) is not None)
        operands = tuple(stored_type(each) for value in block.args if (each := _content(value)) is not None)
        return (
            "subprogram", ("function_v1", results, operands), self._unit, self._unit[2], graph_name(graph), "", 0,
        )  # fmt: skip


def _inside(graph: Operation) -> list[Operation]:
    return [op for op in graph.walk() if op is not graph]


def _entries(module: IRModule) -> dict[str, str]:
    """The entry point whose nodes the ops of each graph come from: the first one that reaches it."""
    calls, found = module.calls(), dict[str, str]()
    for entry in map(graph_name, module.entry_graphs):
        new = {entry}
        while new := new - found.keys():
            found |= dict.fromkeys(new, entry)
            new = set().union(*(calls[name] for name in new))
    return found


def _fits(value: SSAValue, shape: Sequence[int | None]) -> bool:
    """Whether a value can have the shape of a node's result: a target may store it in another one."""
    known = shape_of(value.type) if isinstance(value.type, TensorType) else None
    return (
        known is not None
        and len(known) == len(shape)
        and all(None in (mine, other) or mine == other for mine, other in zip(known, shape, strict=True))
    )


def _content(value: SSAValue) -> TensorType | None:
    type_ = value.type.tensor_type if isinstance(value.type, HandleType) else value.type
    return type_ if isinstance(type_, TensorType) else None


def _file(path: str) -> StoredEntry:
    place = PurePath(path)
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:  # the model was exported elsewhere
        digest = ""
    return ("file", place.name, str(place.parent), digest)


def _location(
    frame: SourceLine, scope: StoredEntry, others: tuple[StoredEntry, ...], metadata: tuple[StoredEntry, ...]
) -> StoredEntry:
    file, line = frame
    return ("location", ("source", ("file", file, "", ""), line, 0, line, 0), scope, others, metadata)


def _of_node(name: str, number: int, facts: NodeFacts) -> tuple[StoredEntry, ...]:
    source = _dictionary(id=_number(number), identifiers=("array", (("string", name),)), name=("string", TORCH_IDS))
    stack = ("array", tuple(("string", each) for each in facts.modules))
    return _metadata("sources", ("array", (source,))), _op_id(TORCH_IDS, number), _metadata("call_stack", stack)


def _op_id(level: str, number: int) -> StoredEntry:
    return _metadata("op_id", _dictionary(type=("string", level), value=_number(number)))


def _output_map(node: int, output: int, result: int) -> StoredEntry:
    source = _dictionary(id=_number(node), level=("string", TORCH_IDS), output=_number(output, 32))
    return _dictionary(source=source, target=_dictionary(level=("string", COREAI_IDS), output=_number(result, 32)))


def _metadata(name: str, value: StoredEntry) -> StoredEntry:
    return ("metadata", name, ("metadata_value", value))


def _dictionary(**entries: StoredEntry) -> StoredEntry:
    return ("dictionary", tuple(("opaque", name, (value,)) for name, value in sorted(entries.items())))


def _number(value: int, width: int = 64) -> StoredEntry:
    return ("integer", (width, 1, value))
