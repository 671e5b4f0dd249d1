"""Shared bodies: the body of a composite is built once for all calls with equal types and attributes.

While a `SharedBodies` is active, the first such call moves its body into a graph, and every further one is a
`patcomp.region` without a body that names the graph.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from patcomp.errors import RuleError
from patcomp.ir.builder import Builder
from patcomp.ir.constants import is_constant
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.graphs import region_graph
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.region import RegionOp, inner_first
from patcomp.ir.types import element_name
from patcomp.ir.value import Value
from patcomp.ir.xdsl import (
    Attribute,
    Block,
    DenseIntOrFPElementsAttr,
    LocationAttr,
    Region,
    SSAValue,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    TypeAttribute,
    set_name,
)

_ACTIVE: ContextVar[SharedBodies | None] = ContextVar("shared bodies", default=None)

_WIDE = frozenset({"si64", "ui64", "f64", "complex<f64>"})
"""The element types that the lower stage narrows, after an analysis of each call."""

Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class _Shared:
    """A shared body, and what its calls have in common."""

    graph: CoreaiOp
    properties: Mapping[str, Attribute]
    results: Sequence[Attribute]


def named_copy(body: Region) -> Region:
    """A copy of a body whose values keep their names."""
    copied = Region()
    mapped: dict[SSAValue, SSAValue] = {}
    body.clone_into(copied, value_mapper=mapped)
    for value, made in mapped.items():
        set_name(made, value.name_hint)
    return copied


class SharedBodies:
    """The shared bodies of a module.

    A body may depend on the types of its inputs and on its keywords only.

    Args:
        check: build the body of every call, and compare it with the shared one.
    """

    def __init__(self, *, check: bool = False):
        self._check = check
        self._shared: dict[Key, _Shared] = {}
        self._graphs: dict[str, CoreaiOp] = {}

    @staticmethod
    def active() -> SharedBodies | None:
        """The shared bodies that calls use now; None if every call has its own."""
        return _ACTIVE.get()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Calls of composites share their bodies."""
        token = _ACTIVE.set(self)
        try:
            yield
        finally:
            _ACTIVE.reset(token)

    def call(self, key: Key, operands: Sequence[Value], results: Sequence[Attribute]) -> list[Value] | None:
        """Insert a call of a shared body; None if there is none for the key and these types of results."""
        shared = self._shared.get(key)
        if shared is None or self._check or (results and list(results) != shared.results):
            return None
        region = RegionOp.create(
            operands=[value.ssa for value in operands],
            result_types=shared.results,
            properties=dict(shared.properties),
        )
        return [Value(result) for result in Builder.current().insert(region).results]

    def share(self, key: Key, region: RegionOp) -> None:
        """Move the body of a region into a graph for all calls with the same key, unless the body may depend on its
        call.

        Raises:
            RuleError: the body differs from the body of an earlier call.
        """
        if not _can_be_shared(region):
            return
        graph = region_graph(region)
        region.detach_region(region.regions[0])
        shared = self._shared.get(key)
        if shared is None:
            symbol = f"#{len(self._shared)}"  # `place` gives it a name
            results = [result.type for result in region.results]
            region.properties["graph"] = SymbolRefAttr(symbol)
            self._shared[key] = _Shared(graph, region.properties.copy(), results)
            self._graphs[symbol] = graph
        elif graph.is_structurally_equivalent(shared.graph):
            region.properties["graph"] = shared.properties["graph"]
        else:
            raise RuleError(
                f"the body of the composite {region.symbol.data} differs between two calls with equal types and "
                "keywords; it may depend on nothing else"
            )

    def copy(self, region: RegionOp) -> Block:
        """A copy of the body that a call shares, with the location of the call."""
        assert region.graph is not None
        copied = named_copy(self._graphs[region.graph.string_value()].regions[0])
        for op in copied.walk():
            op.location = region.location
        return copied.detach_block(0)

    def place(self, module: IRModule) -> list[CoreaiOp]:
        """Insert the graphs that are still called before their first callers, named after their composites. The ops of
        each have the location of its first call."""
        taken = {graph_name(graph) for graph in module.graphs}
        symbols: dict[str, SymbolRefAttr] = {}
        placed = []
        for caller in list(module.graphs):
            for region in inner_first(caller):
                if region.graph is None or (name := region.graph.string_value()) not in self._graphs:
                    continue
                if name not in symbols:
                    graph = self._graphs[name]
                    symbols[name] = SymbolRefAttr(_unused(region.symbol.data, taken))
                    graph.properties["sym_name"] = StringAttr(symbols[name].string_value())
                    _locate(graph, region.location)
                    module.op.body.block.insert_op_before(graph, caller)
                    placed.append(graph)
                region.properties["graph"] = symbols[name]
        return placed


def frozen(value: Any) -> Hashable:
    """A key for a keyword of a composite. Equal keys stand for values that no body can tell apart.

    Raises:
        TypeError: a body may read more from the value than a key has.
    """
    kind = type(value)
    if value is None or kind in (bool, int, str) or isinstance(value, TypeAttribute):
        return kind, value
    if kind is float:
        return kind, value.hex()  # 0.0 is not -0.0
    if kind in (list, tuple):
        return kind, tuple(map(frozen, value))
    if kind is dict:
        return kind, tuple((frozen(name), frozen(item)) for name, item in value.items())
    raise TypeError(f"{value!r} has no key")


def _can_be_shared(region: RegionOp) -> bool:
    """Whether no stage can treat a body differently for another call: it has `coreai` ops alone, all from the place of
    the call, no weights, no numbers that may be narrowed, and exactly the types of the call."""
    block = region.body.block
    assert block.last_op is not None
    if [value.type for value in block.last_op.operands] != [result.type for result in region.results]:
        return False
    if any(_is_wide(argument) for argument in block.args):
        return False
    for op in block.walk():
        if not isinstance(op, CoreaiOp) or op.location is not region.location:
            return False
        if is_constant(op) and not isinstance(op.properties["value"], DenseIntOrFPElementsAttr):
            return False
        inner = (argument for nested in op.regions for each in nested.blocks for argument in each.args)
        if any(map(_is_wide, (*op.results, *inner))):
            return False
    return True


def _is_wide(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and element_name(value.type.element_type) in _WIDE


def _locate(graph: CoreaiOp, location: LocationAttr) -> None:
    for op in graph.walk():
        op.location = location


def _unused(stem: str, taken: set[str]) -> str:
    """A symbol that no graph has; it is then taken."""
    symbol, number = stem, 1
    while symbol in taken:
        number += 1
        symbol = f"{stem}_{number}"
    taken.add(symbol)
    return symbol
