"""The interface of an entry point: its inputs, outputs and states, and the call of the model that it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from patcomp.emit.dims import Dims, Range
from patcomp.emit.guards import Guard
from patcomp.ir.module import function_type, names_of
from patcomp.ir.types import HandleType, TensorType, element_name, shape_of
from patcomp.ir.xdsl import Attribute, Operation


@dataclass(frozen=True)
class TensorSpec:
    """An input, output or state.

    A dimension that differs from run to run is a text in terms of `EntrySignature.dims`, `"batch"` or `"2*seq"`, or
    None if nothing is known about it.
    """

    name: str
    shape: tuple[int | str | None, ...]
    element_type: str
    distribution: str = ""
    """The distribution of an input that is random numbers, `"standard normal"`; empty for any other."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON; there is a distribution only if the input is random numbers."""
        return {key: value for key, value in asdict(self).items() if key != "distribution" or value}

    def __str__(self) -> str:
        separator = " x " if any(isinstance(dim, str) for dim in self.shape) else "x"
        dims = ("?" if dim is None else str(dim) for dim in self.shape)
        distribution = f", {self.distribution}" if self.distribution else ""
        return f"{self.name}: {separator.join([*dims, self.element_type])}{distribution}"


@dataclass(frozen=True)
class Fixed:
    """A Python value that became part of the program when the model was exported."""

    value: Any


@dataclass(frozen=True)
class ModelCall:
    """The arguments and result of the model itself.

    Each leaf of the arguments is the name of an input or state, each leaf of the result the name of an output; a leaf
    may also be `Fixed`.
    """

    arguments: tuple[str | Fixed, ...]
    results: tuple[str | Fixed, ...]
    argument_tree: Any
    """PyTorch's tree of `(args, kwargs)`."""
    result_tree: Any
    """PyTorch's tree of the result."""
    numbers: frozenset[str]
    """The outputs that the model returns as Python numbers."""
    buffers: dict[str, str]
    """Path in the model of each state that is a buffer, by name."""


@dataclass(frozen=True)
class EntrySignature:
    """The interface of an entry point."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    states: tuple[TensorSpec, ...]
    call: ModelCall | None = None
    """None for a program that was not converted from a model."""
    dims: Mapping[str, Range] = field(default_factory=dict)
    """The smallest and largest size of each named dimension, None for no limit: `{"batch": (1, 16)}`."""
    guards: tuple[Guard, ...] = ()
    """Conditions on the named dimensions that `program.run` checks and an asset cannot: `seq % 2 == 0`."""
    checks: tuple[str, ...] = ()
    """Conditions on values that the model checks, `n <= 2`; `program.run` checks them, an asset cannot."""

    def to_dict(self) -> dict[str, list[dict[str, Any]]]:
        """The inputs, outputs and states as plain data for JSON."""
        return {kind: [spec.to_dict() for spec in getattr(self, kind)] for kind in ("inputs", "outputs", "states")}

    def __str__(self) -> str:
        lines = [
            f"{what} {value}"
            for what, values in (("input ", self.inputs), ("state ", self.states), ("output", self.outputs))
            for value in values
        ]
        lines += [f"guard  {guard}" for guard in self.guards]
        lines += [f"check  {check}" for check in self.checks]
        leaves = (("argument", self.call.arguments), ("result", self.call.results)) if self.call else ()
        for what, listed in leaves:
            lines += [
                f"{what} {index} is always {leaf.value!r}"
                for index, leaf in enumerate(listed)
                if isinstance(leaf, Fixed)
            ]
        return "\n".join(lines)


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
