"""Composites: ops that the Core AI compiler knows by name, each with a body that defines its computation.

    @composite("pixel_shuffle", inputs=("input",), attributes=("upscale_factor",))
    def pixel_shuffle(c, x, *, upscale_factor):
        ...                                     # built with the authoring functions `c`
        return c.reshape(...)

Calling the composite with values, `pixel_shuffle(x, upscale_factor=2)`, adds a `patcomp.region` that
holds the declaration and the body; the outline stage makes a graph of it. The body may depend on the types of the
inputs and on the keywords only, because the recover stage builds it once for equal calls (`shared_bodies`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from patcomp.ir import coreai
from patcomp.ir.attributes import CompositeDeclarationAttr, composite_declaration, composite_value
from patcomp.ir.graphs import call_region
from patcomp.ir.region import RegionOp
from patcomp.ir.shared_bodies import Key, SharedBodies, frozen
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import ArrayAttr, Attribute, DictionaryAttr, Operation, StringAttr, UnitAttr


@dataclass(frozen=True)
class Composite:
    """A composite op: its declaration, and the function that builds its body."""

    name: str
    inputs: tuple[str, ...]
    """Declared input names; a call may leave out trailing inputs."""
    attributes: tuple[str, ...]
    outputs: tuple[str, ...]
    body: Callable[..., Value | Sequence[Value]]
    doc: str
    version: int = 1

    def __call__(
        self, *operands: Value | None, result_types: Sequence[Attribute | ValueType] | None = None, **given: Any
    ) -> Any:
        """Add the composite at the insertion point; return its value, or the list of its values.

        Args:
            operands: one for each declared input; None for a trailing optional input that is not given.
            result_types: types of the results if the program states them (64-bit element types).
            given: the declared attributes; None leaves an optional one out of the declaration. Keywords
                beyond the declared attributes reach the body only.

        Raises:
            TypeError: a declared attribute is missing.
        """
        present = [(name, value) for name, value in zip(self.inputs, operands, strict=False) if value is not None]
        missing = [name for name in self.attributes if name not in given]
        if missing or len(operands) > len(self.inputs):
            raise TypeError(f"composite {self.name} takes {self.inputs} and {self.attributes}; missing {missing}")
        types = [item.attribute if isinstance(item, ValueType) else item for item in result_types or ()]
        bodies = SharedBodies.active()
        key = self._key(operands, given) if bodies is not None else None
        if bodies is None or key is None:
            values = self._call(present, len(operands), types, given)
        elif (called := bodies.call(key, [value for _, value in present], types)) is not None:
            values = called
        else:
            values = self._call(present, len(operands), types, given)
            region = values[0].ssa.owner
            assert isinstance(region, RegionOp)
            bodies.share(key, region)
        return values[0] if len(self.outputs) == 1 else values

    def _key(self, operands: Sequence[Value | None], given: Mapping[str, Any]) -> Key | None:
        """A key of all that the body of a call depends on; None if a keyword has more than a key can tell."""
        try:
            return self, tuple(value and value.ssa.type for value in operands), frozen(given)
        except TypeError:
            return None

    def _call(
        self, present: Sequence[tuple[str, Value]], count: int, types: Sequence[Attribute], given: Mapping[str, Any]
    ) -> list[Value]:
        """A region with a body of its own, for a call with `count` operands."""
        declaration = composite_declaration(
            self.name,
            input_names=[name for name, _ in present],
            output_names=self.outputs,
            attributes={name: given[name] for name in self.attributes},
            version=self.version,
        )

        def body(arguments: dict[str, Value]) -> Any:
            return self.body(coreai, *(arguments.get(name) for name in self.inputs[:count]), **given)

        options = _options({name: value for name, value in given.items() if name not in self.attributes})
        return call_region(self.name, dict(present), body, declaration, types, options)

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The keywords that shape the body and are not declared."""
        parameters = inspect.signature(self.body).parameters.values()
        keywords = [item.name for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY]
        return tuple(name for name in keywords if name not in self.attributes)

    def made(self, op: Operation) -> bool:
        """Whether the recover stage made an op as a call of this composite, with known inputs, attributes and options.

        A module that the user externalized as a composite of the same name has a body of its own.
        """
        if not isinstance(op, RegionOp) or op.recover is not None:
            return False
        declaration = op.declaration
        if not isinstance(declaration, CompositeDeclarationAttr) or declaration.composite_name.data != self.name:
            return False
        names, attributes, options = _parts(op)
        return (
            names["output_names"] == list(self.outputs)
            and set(names["input_names"]) <= set(self.inputs)
            and set(attributes) <= {*self.attributes, "version"}
            and attributes["version"] == composite_value(self.version)
            and options is not None
            and set(options) <= set(self.options)
        )

    def arguments(self, op: Operation) -> dict[str, Any]:
        """Every input, attribute and option of a call that `made` accepts, as `Value`s and IR attributes.

        An input or attribute that the call leaves out is None, an option has its default.
        """
        names, attributes, options = _parts(op)
        inputs = dict(zip(names["input_names"], map(Value, op.operands), strict=True))
        parameters = inspect.signature(self.body).parameters
        defaults = {name: parameters[name].default for name in self.options}
        return {
            **{name: inputs.get(name) for name in self.inputs},
            **{name: attributes.get(name) for name in self.attributes},
            **defaults,
            **(options or {}),
        }


def _options(given: Mapping[str, Any]) -> Attribute | None:
    """The undeclared keywords of a call as an attribute; a `UnitAttr` if one has no form as an attribute."""
    try:
        values = {name: item if isinstance(item, Attribute) else composite_value(item) for name, item in given.items()}
    except TypeError:
        return UnitAttr()
    return DictionaryAttr(values) if values else None


def _parts(op: Operation) -> tuple[dict[str, list[str]], Mapping[str, Attribute], Mapping[str, Attribute] | None]:
    """The names and the attributes that a call declares, and its options; None if these are not known."""
    assert isinstance(op, RegionOp)
    assert isinstance(op.declaration, CompositeDeclarationAttr)
    fields, options = op.declaration.fields.data, op.options
    names: dict[str, list[str]] = {}
    for field in ("input_names", "output_names"):
        listed = fields[field]
        assert isinstance(listed, ArrayAttr)
        names[field] = [name.data for name in listed.data if isinstance(name, StringAttr)]
    attributes = fields["op_attrs"]
    assert isinstance(attributes, DictionaryAttr)
    if options is None:
        return names, attributes.data, {}
    return names, attributes.data, options.data if isinstance(options, DictionaryAttr) else None


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
