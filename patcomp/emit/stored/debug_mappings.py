"""Which values of a model an asset computes where, as its debug information says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from patcomp.emit.bytecode import StoredEntry, StoredProgram
from patcomp.emit.stored.debug_info import COREAI_IDS


@dataclass(frozen=True)
class OutputMapping:
    """A result of a node that is a result of an op."""

    node: int
    """The number of the node."""
    node_output: int
    op: int
    """The number of the op."""
    op_output: int


def mappings(program: StoredProgram) -> tuple[dict[int, str], list[OutputMapping]]:
    """The nodes that the ops of an asset come from, by number, and the results of nodes that the ops compute.

    Both are empty if the asset has no debug information.
    """
    nodes: dict[int, str] = {}
    found: list[OutputMapping] = []
    for graph in program.asset.regions[0][0].ops:
        for op in graph.regions[0][0].ops:
            for name, value in _all_metadata(op.location):
                if name == "sources":
                    nodes |= {source["id"]: source["identifiers"][0] for source in value}
            own = list(_metadata(op.location))
            number = next(
                (value["value"] for name, value in own if name == "op_id" and value["type"] == COREAI_IDS), None
            )
            if number is not None:
                found += [
                    OutputMapping(each["source"]["id"], each["source"]["output"], number, each["target"]["output"])
                    for name, value in own
                    if name == "output_maps"
                    for each in value
                ]
    return nodes, found


def _metadata(location: StoredEntry) -> Iterator[tuple[str, Any]]:
    """The metadata of a location, by name."""
    for _, name, (_, value) in location[4]:
        yield name, _plain(value)


def _all_metadata(location: StoredEntry) -> Iterator[tuple[str, Any]]:
    """The metadata of a location, and of those that it is fused with."""
    yield from _metadata(location)
    for other in location[3]:
        yield from _all_metadata(other)


def _plain(value: StoredEntry) -> Any:
    match value:
        case ("dictionary", items):
            return {key: _plain(each) for _, key, (each,) in items}
        case ("array", items):
            return [_plain(each) for each in items]
        case ("integer", (_, _, number)):
            return number
    return value[1]
