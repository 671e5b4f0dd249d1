"""The literals of a function's ops that a pattern captures, found by traces with other sizes and attribute values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from patcomp.errors import RuleError
from patcomp.frontend_torch.composite_functions.traces import Constant, LiteralPlace, Trace, Tracer
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import TensorType, element_name, is_float, shape_of, tensor

Spot = tuple[LiteralPlace, int | None]
"""A literal, and the position of an item in it if it is a list."""


@dataclass(frozen=True)
class Source:
    """A trace of a function in one form, as the source of a rule."""

    tracer: Tracer
    form: str
    inputs: Mapping[str, TensorType]
    attributes: Mapping[str, Any]
    trace: Trace
    varying: frozenset[LiteralPlace]
    """The literals that depend, or may depend, on sizes or attributes."""
    places: Mapping[str, Spot]
    """Where the value of each attribute can be read."""

    def same(self, other: Source) -> bool:
        """Whether two sources match the same programs."""
        if (self.varying, self.places) != (other.varying, other.places):
            return False
        mine, theirs = (source.trace.literals() for source in (self, other))
        fixed = set(mine) - self.varying
        return self.trace.skeleton() == other.trace.skeleton() and all(mine[place] == theirs[place] for place in fixed)

    @property
    def is_half(self) -> bool:
        """Whether an input is of half precision."""
        return any(element_name(type_.element_type) in ("f16", "bf16") for type_ in self.inputs.values())


def sources(tracer: Tracer, examples: Sequence[dict[str, TensorType]], attributes: dict[str, Any]) -> Iterator[Source]:
    """The distinct traces of the function in float32, in half precision and in every form.

    Raises:
        RuleError: the example cannot be traced, or an attribute does not occur in the ops.
    """
    found: list[Source] = []
    for inputs, element in product(examples, (None, "f32", "f16")):
        types = {name: _of_element(type_, element) for name, type_ in inputs.items()}
        try:
            forms = tracer.forms(types, attributes)
        except RuleError:
            if element is None:
                raise
            continue  # a function need not support other types than those of the example
        for form in forms:
            source = _source(tracer, types, attributes, form)
            if not any(source.same(other) for other in found):
                found.append(source)
                yield source


def _source(tracer: Tracer, inputs: dict[str, TensorType], attributes: dict[str, Any], form: str) -> Source:
    trace = tracer(inputs, attributes, form)
    literals = trace.literals()
    varying = {place for place in literals if _is_of_shape_or_type(trace, place)}
    doubled = {
        name: tensor([n * 2 if n and n > 1 else n for n in shape_of(t)], t.element_type) for name, t in inputs.items()
    }
    resized = _like(trace, tracer, doubled, attributes, form)
    varying |= {place for place in literals if resized and literals[place] != resized.literals()[place]}
    places: dict[str, Spot] = {}
    for name, value in attributes.items():
        for other in (value * 2 or 1, value + 1, value - 1):
            changed = _like(trace, tracer, inputs, {**attributes, name: other}, form)
            if changed is None:
                continue
            new = changed.literals()
            varying |= {place for place in literals if literals[place] != new[place]}
            shown = (spot for place in literals for spot in _spots(place, literals[place], value, new[place], other))
            if (spot := next(shown, None)) is not None:
                places[name] = spot
                break
        else:
            raise RuleError(
                f"the attribute {name} cannot be found in the ops: no op has it as a number, with the same ops for "
                f"other values; declare a composite for each value, functools.partial(reference, {name}={value!r})"
            )
    scalar = {p for p in varying if not (isinstance(literals[p], Constant) and isinstance(literals[p].literal, list))}
    return Source(tracer, form, inputs, attributes, trace, frozenset(scalar), places)


def _like(trace: Trace, tracer: Tracer, inputs: Any, attributes: Any, form: str) -> Trace | None:
    """The trace for other sizes or attributes; None if it fails or has other ops."""
    try:
        other = tracer(inputs, attributes, form)
    except RuleError:
        return None
    return other if other.skeleton() == trace.skeleton() else None


def _is_of_shape_or_type(trace: Trace, place: LiteralPlace) -> bool:
    """Whether a literal states an axis, a size or a half precision type."""
    op, argument, _ = place
    spec = aten_namespace.spec(trace.ops[op].name)
    assert spec is not None
    literal = trace.literals()[place]
    return spec.argument(argument).type.startswith(("int", "SymInt")) or literal in ("f16", "bf16")


def _spots(place: LiteralPlace, old: Any, value: Any, new: Any, other: Any) -> Iterator[Spot]:
    """Where a literal, or an item of it, is the attribute's value in both traces."""
    if isinstance(old, list) and len(old) == len(new):
        yield from ((place, i) for i in range(len(old)) if (old[i], new[i]) == (value, other))
    elif isinstance(old, Constant):
        if (Constant(value, old.element), Constant(other, new.element)) == (old, new):
            yield place, None
    elif type(old) in (int, float) and (old, new) == (value, other):
        yield place, None


def _of_element(type_: TensorType, element: str | None) -> TensorType:
    floats = is_float(type_.element_type) and element_name(type_.element_type) != "f64"
    return tensor(shape_of(type_), element) if element is not None and floats else type_
