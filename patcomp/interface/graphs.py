"""The interface of a graph, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from patcomp.interface.dims import Dims
from patcomp.interface.signature import EntrySignature, ModelCall, TensorSpec
from patcomp.ir.module import function_type, names_of
from patcomp.ir.types import HandleType, TensorType, element_name, shape_of
from patcomp.ir.xdsl import Attribute, Operation


def entry_signature(
    graph: Operation,
    call: ModelCall | None = None,
    dims: Dims | None = None,
    checks: tuple[str, ...] = (),
    draws: Mapping[str, str] = MappingProxyType({}),
) -> EntrySignature:
    """The interface of a graph; a value without a name is named by its position."""
    types, dims = function_type(graph.regions[0].block), dims or Dims()
    arguments = [spec and _named(spec, dims) for spec in _specs(names_of(graph, "arg_attrs"), list(types.inputs))]
    results = _specs(names_of(graph, "res_attrs"), list(types.outputs))
    handles = [isinstance(type_, HandleType) for type_ in types.inputs]
    return EntrySignature(
        inputs=tuple(
            replace(spec, distribution=draws.get(spec.name, ""))
            for spec, handle in zip(arguments, handles, strict=True)
            if spec and not handle
        ),
        outputs=tuple(spec for spec in results if spec),
        states=tuple(spec for spec, handle in zip(arguments, handles, strict=True) if spec and handle),
        call=call,
        dims=dict(dims.ranges),
        guards=dims.guards,
        checks=checks,
    )


def _named(spec: TensorSpec, dims: Dims) -> TensorSpec:
    """The specification with the names of its dynamic dimensions."""
    extents = (dims.extents.get((spec.name, axis)) for axis in range(len(spec.shape)))
    shape = (
        size if extent is None else str(extent) if extent.number is None else extent.number
        for size, extent in zip(spec.shape, extents, strict=True)
    )
    return replace(spec, shape=tuple(shape))


def _specs(names: Sequence[str | None], types: Sequence[Attribute]) -> list[TensorSpec | None]:
    """The specification of each value; None for a token."""
    return [_spec(name or str(index), type_) for index, (name, type_) in enumerate(zip(names, types, strict=True))]


def _spec(name: str, type_: Attribute) -> TensorSpec | None:
    content = type_.tensor_type if isinstance(type_, HandleType) else type_
    if not isinstance(content, TensorType):
        return None
    return TensorSpec(name, shape_of(content), element_name(content.element_type))


def argument_types(graph: Operation) -> dict[str, Any]:
    """The types of a graph's arguments by name, states too."""
    names = (name or str(index) for index, name in enumerate(names_of(graph, "arg_attrs")))
    return dict(zip(names, (argument.type for argument in graph.regions[0].block.args), strict=True))
