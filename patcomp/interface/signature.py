"""The interface of an entry point: its inputs, outputs and states, and the call of the model that it comes from.

`interface.py` finds the interface of a graph; this file needs no IR.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from patcomp.interface.dims import SizeRange
from patcomp.interface.guards import Guard


@dataclass(frozen=True)
class TensorSpec:
    """An input, output or state.

    A dimension that differs from run to run is a text in terms of `EntrySignature.dims`, `"batch"` or `"2*seq"`, or
    None if nothing is known about it. As a text, `[batch]x?x8xf32`.
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
        dims = ("?" if dim is None else f"[{dim}]" if isinstance(dim, str) else str(dim) for dim in self.shape)
        distribution = f", {self.distribution}" if self.distribution else ""
        return f"{self.name}: {'x'.join([*dims, self.element_type])}{distribution}"


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
    dims: Mapping[str, SizeRange] = field(default_factory=dict)
    """The smallest and largest size of each named dimension, None for no limit: `{"batch": (1, 16)}`."""
    smallest: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """The smallest sizes of dynamic dimensions of an asset, by input and axis; empty if 2 is enough for all."""
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
