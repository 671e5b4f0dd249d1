"""What an asset's program holds, from its plain objects: entry points, calls of composites, ops, weights.

This needs neither PyTorch nor xDSL, so that a look into an asset takes a fraction of a second. An op that patcomp does
not know is counted under the name that it has in the asset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from patcomp.emit.bytecode import Op, StoredEntry, StoredProgram
from patcomp.emit.bytecode.kinds import OPEN_DIMENSION
from patcomp.emit.stored.elements import ELEMENT_NAMES
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.emit.stored.forms import FORMS, OPS_BY_FORM
from patcomp.ir.coreai_table import ROWS

_GRAPH = "dataflow.graph_v1"

WITH_REGIONS = frozenset({"serialization.asset", *(FORMS[row.op_name].name for row in ROWS if row.regions)})
"""The ops whose regions are a part of the program; the region of any other op is its decomposition."""

_STRUCTURE = (_GRAPH, "dataflow.output_v1")
"""Ops that compute nothing."""


@dataclass(frozen=True)
class AssetTensor:
    """An argument or a result of an entry point."""

    name: str
    """The name at run time; the position of a value that has none."""
    shape: tuple[int | None, ...]
    """None for a size that is known only at run time."""
    element_type: str
    is_state: bool


@dataclass(frozen=True)
class AssetWeight:
    """A weight in an asset, with the shape of the first constant of its name."""

    name: str
    shape: tuple[int | None, ...]
    element_type: str
    bytes: int


class Outline:
    """What an asset's program holds.

    Args:
        program: what `read_program` found.
    """

    def __init__(self, program: StoredProgram):
        self._weights = program.weights
        self._ops = list(_inside(program.asset))
        self._graphs = [op for op in self._ops if op.name == _GRAPH]

    def op_names(self) -> Iterator[str]:
        """The name of each op that computes something, as the IR has it, or as the asset if the IR has no such op."""
        for op in self._ops:
            if op.name not in _STRUCTURE:
                yield OPS_BY_FORM.get(op.name, f"aicode.{op.name}")

    def composites(self) -> Iterator[str]:
        """The name of the composite that is called, for each such call.

        Raises:
            UnsupportedInAssetError: a declaration or a call has a form that patcomp does not know.
        """
        declared = {
            _text(graph.properties["name"], "string"): _text(graph.properties["compositeDecl"], "opaque")
            for graph in self._graphs
            if "compositeDecl" in graph.properties
        }
        for op in self._ops:
            if op.name == "dataflow.invoke_v1":
                match op.properties["callee"]:
                    case ("param.constant_v1", ("symbol_ref_v1", path), _):
                        if (called := ".".join(path)) in declared:
                            yield declared[called]
                    case _:
                        raise UnsupportedInAssetError("the asset has a call without the name of a graph")

    def entry_points(self) -> Iterator[tuple[str, list[AssetTensor], list[AssetTensor]]]:
        """The name, the arguments and the results of each graph that can be run, without tokens and images.

        Raises:
            UnsupportedInAssetError: a graph has a form or an element type that patcomp does not know.
        """
        for graph in self._graphs:
            found = graph.properties
            if any(found[flag] == ("integer", (1, 1, 1)) for flag in ("isPrivate", "externalize", "noInline")):
                continue
            match found["functionType"]:
                case ("type", ("function_v1", results, arguments)):
                    name = _text(found["name"], "string")
                    yield name, _tensors(arguments, found["argAttrs"]), _tensors(results, found["resAttrs"])
                case _:
                    raise UnsupportedInAssetError("the asset has a graph without a function type")

    def weights(self) -> list[AssetWeight]:
        """The weights that constants name.

        Raises:
            UnsupportedInAssetError: a weight is no tensor, or of an element type that patcomp does not know.
        """
        found = {}
        for op in self._ops:
            match op.properties.get("value"):
                case ("dense_resource", str() as name) if name not in found and len(op.results) == 1:
                    shape, element_type = _shape(op.results[0].type)
                    found[name] = AssetWeight(name, shape, element_type, len(self._weights[name].data))
        return list(found.values())


def _inside(op: Op) -> Iterator[Op]:
    """The ops inside an op, without the ops of decompositions."""
    for region in op.regions:
        for block in region:
            for each in block.ops:
                yield each
                if each.name in WITH_REGIONS:
                    yield from _inside(each)


def _tensors(types: tuple[StoredEntry, ...], described: StoredEntry) -> list[AssetTensor]:
    names: list[str | None] = [None] * len(types)
    match described:
        case ("array", items) if items:
            names = list(map(_name, items))
    if len(names) != len(types):
        raise UnsupportedInAssetError(f"the asset has a graph with {len(names)} names for {len(types)} values")
    made = []
    for position, (name, type_) in enumerate(zip(names, types, strict=True)):
        is_state = type_[0] == "handle_v1"
        tensor = type_[1] if is_state else type_
        if tensor[0] == "tensor_v1":
            made.append(AssetTensor(name or str(position), *_shape(tensor), is_state))
    return made


def _name(described: StoredEntry) -> str | None:
    """The name at run time among the attributes of an argument or result."""
    match described:
        case ("array", fields):
            for field in fields:
                match field:
                    case ("opaque", "aicode.name", (("string", str() as name),)):
                        return name
    return None


def _shape(type_: StoredEntry) -> tuple[tuple[int | None, ...], str]:
    """The shape and the element type of a stored tensor type."""
    if type_[0] != "tensor_v1" or type_[2][0] not in ELEMENT_NAMES:
        raise UnsupportedInAssetError(f"the asset has tensors of a type that patcomp does not know: {type_[:3]}")
    return tuple([None if dim == OPEN_DIMENSION else dim for dim in type_[1]]), ELEMENT_NAMES[type_[2][0]]


def _text(entry: StoredEntry, kind: str) -> str:
    """The text that an attribute of a kind begins with."""
    if entry[0] != kind:
        raise UnsupportedInAssetError(f"the asset has a name of kind {entry[0]}, which patcomp does not know")
    return str(entry[1])
