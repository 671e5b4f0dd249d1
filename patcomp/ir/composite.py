"""Composites: ops that the Core AI compiler knows by name, each with a body that says what they compute.

    @composite("pixel_shuffle", inputs=("input",), attributes=("upscale_factor",))
    def pixel_shuffle(c, x, *, upscale_factor):
        ...                                     # built with the authoring functions `c`
        return c.reshape(...)

Calling the composite with values, `pixel_shuffle(x, upscale_factor=2)`, adds a `patcomp.region` that
holds the declaration and the body; the outline stage makes a graph of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.ir import coreai
from patcomp.ir.attributes import composite_declaration
from patcomp.ir.graphs import call_region
from patcomp.ir.value import TypeView, Value
from patcomp.ir.xdsl import Attribute


@dataclass(frozen=True)
class Composite:
    """A composite op: its declaration, and the function that builds its body."""

    name: str
    inputs: tuple[str, ...]
    """Declared input names; trailing ones may be left out of a call."""
    attributes: tuple[str, ...]
    outputs: tuple[str, ...]
    body: Callable[..., Value | Sequence[Value]]
    doc: str
    version: int = 1

    def __call__(
        self, *operands: Value, result_types: Sequence[Attribute | TypeView] | None = None, **given: Any
    ) -> Any:
        """Adds the composite at the insertion point and returns its value, or the list of its values.

        Args:
            operands: one for each declared input; None for a trailing optional input that is not there.
            result_types: types of the results where the program names them (64-bit element types).
            given: the declared attributes; None leaves an optional one out of the declaration. Keywords
                beyond the declared attributes reach the body only.

        Raises:
            TypeError: a declared attribute is missing.
        """
        present = [(name, value) for name, value in zip(self.inputs, operands, strict=False) if value is not None]
        missing = [name for name in self.attributes if name not in given]
        if missing or len(operands) > len(self.inputs):
            raise TypeError(f"composite {self.name} takes {self.inputs} and {self.attributes}; missing {missing}")
        types = [item.attribute if isinstance(item, TypeView) else item for item in result_types or ()]
        declaration = composite_declaration(
            self.name,
            input_names=[name for name, _ in present],
            output_names=self.outputs,
            attributes={name: given[name] for name in self.attributes},
            version=self.version,
        )

        def body(arguments: dict[str, Value]) -> Any:
            return self.body(coreai, *(arguments.get(name) for name in self.inputs[: len(operands)]), **given)

        values = call_region(self.name, dict(present), body, declaration, types)
        return values[0] if len(self.outputs) == 1 else values


def composite(
    name: str,
    *,
    inputs: Sequence[str],
    attributes: Sequence[str] = (),
    outputs: Sequence[str] = ("output",),
    version: int = 1,
) -> Callable[[Callable[..., Any]], Composite]:
    """Declares a composite; the decorated function builds its body from `c`, the inputs and the attributes."""

    def declare(function: Callable[..., Any]) -> Composite:
        doc = (function.__doc__ or "").strip()
        return Composite(name, tuple(inputs), tuple(attributes), tuple(outputs), function, doc, version)

    return declare
