"""Variations of a procedural rule's examples: other sizes, axes, options, element types, broadcasts, special values.

Each variation differs from an example in one aspect. Some variations are invalid; the caller skips those that PyTorch
refuses.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from patcomp.ir.aten import MEMORY_ARGUMENTS, Argument, Schema
from patcomp.patterns.aspects import RANKS, SPECIAL
from patcomp.patterns.example_types import ExampleType
from patcomp.patterns.op_view import Example
from patcomp.patterns.rule import Rule
from patcomp.proof.drawing import AXES, resized, resizing, sizes_in
from patcomp.proof.ranks import with_other_ranks

ELEMENTS = ("f16", "bf16", "f32", "f64", "si8", "si16", "si32", "si64", "ui8", "i1")


@dataclass(frozen=True)
class OpDrawing:
    """One call of an op that a procedural rule starts from."""

    rule: Rule
    op: str
    example: Mapping[str, Any]
    """Its arguments by name; tensors are types."""
    aspect: str
    """What differs from the rule's own example."""
    special: Sequence[float] = ()
    """Values that replace some of the random numbers of the inputs; an input with a range of values has none."""
    compared: bool = True
    """Whether the numbers are compared; otherwise the rule only builds its replacement."""
    runs: Sequence[Mapping[str, Any]] = ()
    """Other types of the tensors, by argument, with which the same program is run, too. A size that differs from the
    example's is open in the program."""

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.example.items())
        if self.runs:
            given += f", with open sizes, also as {', '.join(map(str, self.runs[0].values()))}"
        return f"{self.aspect}, {self.op}({given})"


def variations(rule: Rule, example: Example, schema: Schema, *, broadcasts: bool) -> Iterator[OpDrawing]:
    """The call of an example, and others that differ from it in one aspect.

    Args:
        rule: the rule.
        example: one of its examples.
        schema: the schema of the example's op.
        broadcasts: whether the op broadcasts. Kernels of other ops may read beyond a tensor that is too small.
    """
    given = dict(zip((item.name for item in schema.arguments), example.args, strict=False)) | dict(example.kwargs)
    plain = OpDrawing(rule, schema.name, given, "the example")
    yield plain
    for aspect, special in SPECIAL.items():
        yield replace(plain, aspect=aspect, special=special)
    for aspect, changed in _changes(given, schema, broadcasts):
        if changed != given:
            yield replace(plain, aspect=aspect, example=changed)
    compared = broadcasts or has_one_tensor(given, schema)
    words = {name for name, value in given.items() if isinstance(value, str) and not holds_tensors(schema[name])}
    for changed in with_other_ranks({name: given[name] for name in given if name not in words}, axes_of(schema)):
        yield replace(plain, aspect=RANKS, example={**given, **changed}, compared=compared)


def axes_of(schema: Schema) -> set[str]:
    """The names of the arguments that are axes."""
    return {argument.name for argument in schema.arguments if argument.name.rstrip("0123456789s") in AXES}


def has_one_tensor(given: Mapping[str, Any], schema: Schema) -> bool:
    """Whether all sizes in a call are those of one tensor."""
    tensors = [name for name, value in given.items() if schema[name].type == "Tensor" and tensors_in(value)]
    return not list(sizes_in({name: value for name, value in given.items() if name not in tensors[:1]}, set(AXES)))


def _changes(given: Mapping[str, Any], schema: Schema, broadcasts: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    axes = axes_of(schema)
    for argument in schema.arguments:
        if argument.name in MEMORY_ARGUMENTS:
            continue
        value, is_axes = given.get(argument.name, argument.default), argument.name in axes
        for other in _others(argument, value, is_axes):
            yield "axes" if is_axes else "options", {**given, argument.name: other}
    tensors = [name for name, value in given.items() if schema[name].type == "Tensor" and tensors_in(value)]
    for name in tensors if broadcasts else ():
        for other in _broadcasts(given[name]):
            yield "broadcasts", {**given, name: other}
    if has_one_tensor(given, schema):
        yield from (("sizes", {**given, name: _less_square(given[name])}) for name in tensors)
    choose = random.Random(0).choice
    sizes = list(sizes_in(given, set(AXES)))
    for _ in range(6):
        resize = resizing(sizes, choose)
        yield "sizes", {name: value if name in AXES else resized(value, resize) for name, value in given.items()}
    for element in ELEMENTS:
        changed = {name: _with_element(value, element) for name, value in given.items() if holds_tensors(schema[name])}
        yield "element types", {**given, **changed}
        if tensors:
            yield "element types", {**given, tensors[0]: _with_element(given[tensors[0]], element)}


def _others(argument: Argument, value: Any, is_axes: bool) -> Iterator[Any]:
    """Other values of an argument that is no tensor; None for an optional tensor."""
    kind = argument.type.rstrip("?")
    if argument.type == "Tensor?" and value is not None:
        yield None
    elif is_axes:
        yield from _axes(value, several="[" in kind)
    elif kind == "bool":
        yield not value
    elif kind == "ScalarType":
        yield from ("f16", "f32", "si32")
    elif kind in ("Scalar", "float", "number"):
        number = value if isinstance(value, int | float) else 0.25
        yield from (number + 1, 0.5, -1.5)
    elif kind in ("int", "SymInt"):
        number = value if isinstance(value, int) else 0
        yield from (number + 1, -1, 2)
    elif kind.startswith(("int[", "SymInt[")) and isinstance(value, list):
        yield from ([item + 1 for item in value], [1 for _ in value])


def _axes(value: Any, several: bool) -> Iterator[Any]:
    if isinstance(value, list):
        yield from ([axis - 2 for axis in value], list(reversed(value)))
    for axis in (-1, 0, 1, -2):
        if axis != value:
            yield [axis] if several else axis


def _broadcasts(text: str) -> Iterator[str]:
    """The type with one size 1, and without its first dimension."""
    type_ = ExampleType.parsed(text)
    assert type_ is not None
    sizes = type_.sizes
    for axis in range(len(sizes)):
        yield str(replace(type_, sizes=(*sizes[:axis], 1, *sizes[axis + 1 :])))
    if sizes:
        yield str(replace(type_, sizes=sizes[1:]))


def _less_square(text: str) -> str:
    """The type with a last dimension that is larger by one: a rule may confuse the axes of a square matrix."""
    type_ = ExampleType.parsed(text)
    return str(replace(type_, sizes=(*type_.sizes[:-1], type_.sizes[-1] + 1))) if type_ and type_.sizes else text


def _with_element(value: Any, element: str) -> Any:
    """A type with another element type. It keeps its range of values, unless that is a range of floats and the new type
    is an integer type."""
    if isinstance(value, list | tuple):
        return [_with_element(item, element) for item in value]
    type_ = ExampleType.parsed(value)
    if type_ is None:
        return value
    changed = replace(type_, element=element)
    return str(changed if changed.is_float or not type_.is_float else replace(changed, limits=None))


def holds_tensors(argument: Argument) -> bool:
    """Whether an argument is a tensor, or a list of them."""
    return argument.type.startswith("Tensor")


def tensors_in(value: Any) -> Sequence[str]:
    """The tensor types in an argument that holds tensors."""
    items = value if isinstance(value, list | tuple) else [value]
    return [item for item in items if isinstance(item, str)]
