"""Variations of a procedural rule's examples: other sizes, axes, options, element types, broadcasts, special values.

One thing differs from an example at a time. What PyTorch refuses is no program after all; the one who runs them finds
out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from patcomp.ir.aten import MEMORY_ARGUMENTS, Argument, Schema
from patcomp.patterns.aspects import SPECIAL
from patcomp.patterns.example_types import TENSOR_TYPE
from patcomp.patterns.op_view import Example
from patcomp.patterns.rule import Rule
from patcomp.proof.drawing import AXES, resized, resizing, sizes_in

ELEMENTS = ("f16", "bf16", "f32", "f64", "si8", "si16", "si32", "si64", "ui8", "i1")


@dataclass(frozen=True)
class OpDrawing:
    """One call of an op that a procedural rule takes."""

    rule: Rule
    op: str
    example: Mapping[str, Any]
    """Its arguments by name; tensors are types."""
    aspect: str
    """What differs from the rule's own example."""
    special: Sequence[float] = ()
    """Values that the inputs have besides random ones, but for those with a range of values."""

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.example.items())
        return f"{self.aspect}, {self.op}({given})"


def variations(rule: Rule, example: Example, schema: Schema, *, broadcasts: bool) -> Iterator[OpDrawing]:
    """The call of an example, and others that differ from it in one aspect.

    Args:
        rule: the rule.
        example: one of its examples.
        schema: that of the example's op.
        broadcasts: whether it broadcasts; other ops of PyTorch may read beyond a tensor that is too small.
    """
    given = dict(zip((item.name for item in schema.arguments), example.args, strict=False)) | dict(example.kwargs)
    plain = OpDrawing(rule, schema.name, given, "the example")
    yield plain
    for aspect, special in SPECIAL.items():
        yield replace(plain, aspect=aspect, special=special)
    for aspect, changed in _changes(given, schema, broadcasts):
        if changed != given:
            yield replace(plain, aspect=aspect, example=changed)


def _changes(given: Mapping[str, Any], schema: Schema, broadcasts: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    for argument in schema.arguments:
        if argument.name in MEMORY_ARGUMENTS:
            continue
        value = given.get(argument.name, argument.default)
        aspect = "axes" if argument.name.rstrip("0123456789s") in AXES else "options"
        for other in _others(argument, value):
            yield aspect, {**given, argument.name: other}
    tensors = [name for name, value in given.items() if schema[name].type == "Tensor" and tensors_in(value)]
    for name in tensors if broadcasts else ():
        for other in _broadcasts(given[name]):
            yield "broadcasts", {**given, name: other}
    others = {name: value for name, value in given.items() if name not in tensors[:1]}
    alone = not list(sizes_in(others, set(AXES)))  # the only sizes are those of one tensor
    if alone or broadcasts:
        above = {
            name: _of_rank_above(value) if holds_tensors(schema[name]) else _moved(value) if name in AXES else value
            for name, value in given.items()
        }
        yield "ranks", above
    if alone:
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


def _others(argument: Argument, value: Any) -> Iterator[Any]:
    """Other values of an argument that is not a tensor; without one for an optional tensor."""
    kind = argument.type.rstrip("?")
    if argument.type == "Tensor?" and value is not None:
        yield None
    elif argument.name.rstrip("0123456789s") in AXES:
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
    sizes, start = TENSOR_TYPE.fullmatch(text)["dims"].split("x")[:-1], text  # type: ignore[index]
    rest = start[len("".join(f"{size}x" for size in sizes)) :]
    for index in range(len(sizes)):
        yield "".join(f"{size}x" for size in [*sizes[:index], "1", *sizes[index + 1 :]]) + rest
    if sizes:
        yield "".join(f"{size}x" for size in sizes[1:]) + rest


def _less_square(text: str) -> str:
    """The type with one element more along the last dimension, where all others may be like it."""
    match = TENSOR_TYPE.fullmatch(text)
    if match is None or not match["dims"]:
        return text
    *dims, last, _ = match["dims"].split("x")
    return "".join(f"{size}x" for size in [*dims, int(last) + 1]) + text[match.start("element") :]


def _of_rank_above(value: Any) -> Any:
    """A type with one dimension more, in front."""
    if isinstance(value, list | tuple):
        return [_of_rank_above(item) for item in value]
    return f"2x{value}" if isinstance(value, str) else value


def _moved(axes: Any) -> Any:
    """Axes that count from the front where there is one dimension more."""
    if isinstance(axes, list | tuple):
        return [_moved(axis) for axis in axes]
    return axes + 1 if isinstance(axes, int) and axes >= 0 else axes


def _with_element(value: Any, element: str) -> Any:
    """A type with another element type; its range of values stays, but integers have none between two floats."""
    if isinstance(value, list | tuple):
        return [_with_element(item, element) for item in value]
    match = TENSOR_TYPE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    limits = f"[{match['low']},{match['high']}]" if match["low"] else ""
    return match["dims"] + element + (limits if _is_float(element) or not _is_float(match["element"]) else "")


def _is_float(element: str) -> bool:
    return element.startswith(("f", "bf"))


def holds_tensors(argument: Argument) -> bool:
    """Whether an argument is a tensor, or a list of them."""
    return argument.type.startswith("Tensor")


def tensors_in(value: Any) -> Sequence[str]:
    """The tensor types in an argument that holds tensors."""
    items = value if isinstance(value, list | tuple) else [value]
    return [item for item in items if isinstance(item, str)]
