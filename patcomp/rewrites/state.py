"""State: arguments that the program mutates become `!coreai.handle`s, read and written in token order.

The import represents a state as a tensor argument, marked with the name of the result that has its new content. Here

    @main(%k: tensor<T> {MutableBuffers.buffer_mutation = "k"}) -> (tensor<T> {coreai.name = "k"}, ...)

becomes a handle that is read at the top, written where the new content is computed, and read again for later uses:

    %token = coreai.create_token
    %k, %read = coreai.read_handle %k_handle, %token
    %add = ...
    %written = coreai.write_handle %k_handle, %add, %read
    %add_stored, %last = coreai.read_handle %k_handle, %written
    coreai.output %last, ...

A value that was read before a write keeps the old content, in the evaluator and in the runtime. If a program replaces
one part of a state after the other, each of these contents is written and read again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_integers
from patcomp.ir.locations import fused
from patcomp.ir.module import IRModule, function_type, names_of
from patcomp.ir.traits import Repetition, View
from patcomp.ir.types import HandleType, shape_of
from patcomp.ir.value import Value, made_by
from patcomp.ir.xdsl import (
    ArrayAttr,
    DictionaryAttr,
    Operation,
    SSAValue,
    StringAttr,
    Use,
    ops_inside,
    replace_uses,
    set_name,
)
from patcomp.patterns.statistics import Statistics

MUTATION = "MutableBuffers.buffer_mutation"
"""The argument attribute that names the result which holds a mutated argument's new value."""


def mark_mutated(graph: Operation, arguments: Collection[int]) -> None:
    """Mark arguments of a graph as states: the result of the same run-time name has the new content."""
    if not arguments:
        return
    entries = []
    for index, name in enumerate(names_of(graph, "arg_attrs")):
        keys = ("coreai.name", MUTATION) if index in arguments else ("coreai.name",)
        entries.append(DictionaryAttr(dict.fromkeys(keys, StringAttr(name or ""))))
    graph.properties["arg_attrs"] = ArrayAttr(entries)


def state(module: IRModule) -> Statistics:
    """Turn the marked arguments of all graphs into handles."""
    statistics = Statistics()
    for graph in module.graphs:
        started = time.perf_counter()
        if marked := _marked(graph):
            _introduce_handles(graph, marked)
            statistics.record("state", True, time.perf_counter() - started)
    return statistics


def drop_repeated_accesses(module: IRModule) -> int:
    """Drop each write that restores the value just read from the state, and each read directly after another read.
    Return how many there were."""
    count = 0
    for op in ops_inside(module.op):
        if op.name not in ("coreai.write_handle", "coreai.read_handle"):
            continue
        token = op.operands[-1]
        last = token.owner
        if (
            not isinstance(last, Operation)
            or last.name != "coreai.read_handle"
            or last.operands[0] is not op.operands[0]
        ):
            continue
        if op.name == "coreai.write_handle" and op.operands[1] is not last.results[0]:
            continue
        same = last.results if op.name == "coreai.read_handle" else last.results[1:]
        for result, kept in zip(op.results, same, strict=True):
            replace_uses(result, kept)
        op.detach()
        op.erase()
        count += 1
    return count


def _marked(graph: Operation) -> dict[int, int]:
    """The arguments that are marked as mutated, and the result with the new content of each."""
    attributes = graph.properties.get("arg_attrs")
    entries = attributes.data if isinstance(attributes, ArrayAttr) else ()
    results = names_of(graph, "res_attrs")
    return {
        index: results.index(entry.data[MUTATION].data)  # type: ignore[attr-defined]
        for index, entry in enumerate(entries)
        if MUTATION in entry.data  # type: ignore[attr-defined]
    }


def _introduce_handles(graph: Operation, marked: dict[int, int]) -> None:
    block = graph.regions[0].block
    top, output = block.first_op, block.last_op
    assert top is not None
    assert output is not None
    tokens: dict[int, Value] = {}
    contents_read: dict[int, SSAValue] = {}
    with Builder(block, before=top, location=fused("state", [output])):
        root = coreai.create_token()
        for index in marked:
            content = block.args[index]
            handle = block.insert_arg(HandleType(content.type), index)
            set_name(handle, f"{content.name_hint}_handle")
            tokens[index], contents_read[index] = root, content
            if content.first_use is not None:  # otherwise no op reads the old content
                read, tokens[index] = coreai.read_handle(Value(handle), root)
                contents_read[index] = read.ssa
                set_name(read.ssa, content.name_hint)
                replace_uses(content, read.ssa)
            block.erase_arg(content)
    for index, result in marked.items():
        first = contents_read[index]
        contents = _contents(output.operands[result], first)
        in_parts = not (None in shape_of(first.type) and _is_viewed_twice((first, *contents)))
        for new in contents if in_parts else contents[-1:]:
            tokens[index] = _write(Value(block.args[index]), new, tokens[index], output, read_again=in_parts)
        output.operands[result] = tokens[index].ssa
    graph.properties["function_type"] = function_type(block)


def _contents(last: SSAValue, first: SSAValue) -> list[SSAValue]:
    """The contents of a state after the first one, up to the last one.

    If each is the one before with a part of it replaced, such as the layers of a cache, they are those that something
    else uses too. The runtime copies less if each of them is written.
    """
    found, content = [last], last
    while (update := made_by(content, "coreai.slice_update")) is not None:
        content = update.operands[0]
        if content is first:
            return found[::-1]
        if not content.has_one_use():
            found.append(content)
    return [last]


def _write(handle: Value, content: SSAValue, token: Value, output: Operation, *, read_again: bool) -> Value:
    """Write a new content of a state where it is computed, read it again for later uses; return the last token."""
    maker = content.owner
    made_here = isinstance(maker, Operation) and maker.name not in ("coreai.constant", "coreai.read_handle")
    source: Operation = maker if made_here else output  # type: ignore[assignment]
    type_ = handle.ssa.type.tensor_type  # type: ignore[attr-defined]
    read_again = read_again and made_here and content.type == type_ and not content.has_one_use()
    before = source.next_op if made_here else output
    block = output.parent_block()
    assert block is not None
    with Builder(block, before=before, location=fused("state", [source])) as builder:
        stored = Value(content)
        if content.type != type_:  # the content has a static size where the handle has a dynamic one
            stored = coreai.cast(stored, stored.element_type, result_type=type_)
        written = coreai.write_handle(handle, stored, token)
        if not read_again:
            return written
        again, last = coreai.read_handle(handle, written)
        set_name(again.ssa, f"{content.name_hint}_stored")
        content.replace_uses_with_if(again.ssa, lambda use: use.operation is not builder.created[0])
        return last


def _is_viewed_twice(contents: Sequence[SSAValue]) -> bool:
    """Whether contents have the same view, or sizes are taken of a view.

    If the state has a dynamic size, the runtime aborts or fails at an equal view of a second reading.
    """
    views = [view for content in contents for view in set(_views(content))]
    return len(set(views)) < len(views) or any(map(_asks_for_sizes, contents))


def _views(content: SSAValue) -> Iterator[tuple[Any, ...]]:
    """The views of a state's content that are read, as keys: op, result types, and the other operands (numbers or
    values).

    A part that is only updated and put back, as a layer of a cache is, makes no trouble.
    """
    for use in content.uses:
        op = use.operation
        readers = [(reader.operation.name, reader.index) for result in op.results for reader in result.uses]
        if _is_view(use) and set(readers) != {("coreai.slice_update", 0)}:
            numbers = (constant_integers(operand) for operand in op.operands[1:])
            given = zip(op.operands[1:], numbers, strict=True)
            yield (
                op.name,
                *(str(result.type) for result in op.results),
                *(operand if number is None else tuple(number) for operand, number in given),
            )


def _is_view(use: Use) -> bool:
    """Whether a value is read by a view that has no element twice."""
    op = use.operation
    return use.index == 0 and op.has_trait(View) and not op.has_trait(Repetition)


def _asks_for_sizes(content: SSAValue) -> bool:
    """Whether sizes are taken of a view of a content."""
    waiting, views = [content], {content}
    while waiting:
        view = waiting.pop()
        for use in view.uses:
            if use.operation.name == "coreai.get_shape" and view is not content:
                return True
            if _is_view(use):
                made = [result for result in use.operation.results if result not in views]
                views.update(made)
                waiting += made
    return False
