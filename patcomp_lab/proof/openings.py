"""Programs with open sizes: which sizes of a drawn program are open, and with which sizes it runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns.example_types import ExampleType
from patcomp.patterns.language import Attr
from patcomp_lab.proof.drawing import Drawing
from patcomp_lab.proof.op_calls import OpDrawing, holds_tensors, operator_schema
from patcomp_lab.proof.together import in_turn

_OPEN = "open sizes"

_LENGTHS = (1, 2, 3, 5, 8)
"""The lengths with which an open size is run, besides the example's."""


def tensor_parts(drawing: Any) -> set[str]:
    """The names of the parts of an example that are types of tensors, and not words that look like types."""
    if isinstance(drawing, OpDrawing):
        schema = operator_schema(drawing.op)
        return {name for name in drawing.example if holds_tensors(schema[name])}
    captures = drawing.rule.graph.captures
    return {name for name in drawing.example if not isinstance(captures[name], Attr)}


def openings(drawing: Any, aspect: str = _OPEN) -> Iterator[Any]:
    """A program with some of its sizes open, in several ways.

    All dimensions of a size are open together, as dimensions of one symbol are, and those of two sizes, which are then
    exchanged: two tensors with the same open sizes need not have the same shape. For a program of Core AI's ops, also a
    single dimension is open, and all dimensions of all tensors, which then run with sizes that differ.
    """
    types = _types_in({name: value for name, value in drawing.example.items() if name in tensor_parts(drawing)})
    if not types:
        return
    sizes = sorted({size for each in types.values() for type_ in _listed(each) for size in type_.sizes}, reverse=True)
    kinds = [_of_one_size(drawing, aspect, types, sizes), _of_two_sizes(drawing, aspect, types, sizes)]
    if isinstance(drawing, Drawing) and drawing.rule.graph.dialect is not aten_namespace:
        kinds += [_independent(drawing, aspect, types), _of_one_axis(drawing, aspect, types)]
    yield from in_turn(kinds)


def _of_one_size(drawing: Any, aspect: str, types: Mapping[str, Any], sizes: Sequence[int]) -> Iterator[Any]:
    for size in sizes:
        lengths = [length for length in _LENGTHS if length != size]
        yield _opened(drawing, aspect, types, [{size: length} for length in lengths])
        yield _opened(drawing, aspect, types, [{size: length} for length in lengths if length > 1])


def _of_two_sizes(drawing: Any, aspect: str, types: Mapping[str, Any], sizes: Sequence[int]) -> Iterator[Any]:
    for one, other in itertools.combinations(sizes, 2):
        exchanged, longer = {one: other, other: one}, {one: 2 * one + 3, other: 2 * other + 5}
        yield _opened(drawing, aspect, types, [exchanged, longer])


def _of_one_axis(drawing: Drawing, aspect: str, types: Mapping[str, Any]) -> Iterator[Drawing]:
    for name, type_ in types.items():
        if isinstance(type_, ExampleType):
            for axis in range(len(type_.sizes)):
                runs = [{name: _resized(type_, axis, length)} for length in _LENGTHS]
                yield replace(drawing, runs=_complete(runs, drawing.example), aspect=aspect)


def _independent(drawing: Drawing, aspect: str, types: Mapping[str, Any]) -> Iterator[Drawing]:
    """All sizes open: runs with each dimension of 1, with each tensor longer, and with each of another length."""
    single = {name: type_ for name, type_ in types.items() if isinstance(type_, ExampleType)}
    runs: list[dict[str, Any]] = []
    for name, type_ in single.items():
        for axis in range(len(type_.sizes)):
            runs += [{name: _resized(type_, axis, length)} for length in (1, type_.sizes[axis] + 2)]
        ones = {name: str(replace(type_, sizes=(1,) * len(type_.sizes)))}
        runs += [ones, {name: str(replace(type_, sizes=tuple(size + 1 for size in type_.sizes)))}]
        runs.append({name: str(replace(type_, sizes=type_.sizes[::-1]))})
    runs.append({name: str(replace(t, sizes=tuple(size + 1 for size in t.sizes))) for name, t in single.items()})
    runs.append({name: str(replace(t, sizes=t.sizes[::-1])) for name, t in single.items()})
    yield replace(drawing, runs=_complete(runs, drawing.example), aspect=aspect)


def _complete(runs: list[dict[str, Any]], example: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Complete each run with the example's values, so that all runs name the same inputs; leave out runs equal to the
    example."""
    names = {name: None for run in runs for name in run}
    made = [{name: run.get(name, example[name]) for name in names} for run in runs]
    return [run for run in made if any(run[name] != example[name] for name in names)]


def _opened(drawing: Any, aspect: str, types: Mapping[str, Any], changes: list[Mapping[int, int]]) -> Any:
    runs = []
    for change in changes:
        runs.append({name: _with_sizes(drawing.example[name], change) for name in types})
    names = [name for name in runs[0] if any(run[name] != drawing.example[name] for run in runs)]
    return replace(drawing, runs=[{name: run[name] for name in names} for run in runs], aspect=aspect)


def _with_sizes(value: Any, change: Mapping[int, int]) -> Any:
    if isinstance(value, list | tuple):
        return [_with_sizes(item, change) for item in value]
    type_ = ExampleType.parsed(value)
    return str(replace(type_, sizes=tuple(change.get(size, size) for size in type_.sizes))) if type_ else value


def _resized(type_: ExampleType, axis: int, length: int) -> str:
    return str(replace(type_, sizes=(*type_.sizes[:axis], length, *type_.sizes[axis + 1 :])))


def _types_in(example: Mapping[str, Any]) -> dict[str, Any]:
    """The types in an example, and the lists of types."""
    found: dict[str, Any] = {}
    for name, value in example.items():
        if isinstance(value, list | tuple) and value and all(map(ExampleType.parsed, value)):
            found[name] = [ExampleType.parsed(item) for item in value]
        elif (type_ := ExampleType.parsed(value)) is not None:
            found[name] = type_
    return found


def _listed(types: Any) -> list[ExampleType]:
    return types if isinstance(types, list) else [types]
