"""Find all ops of a file that patcomp lacks, before any of them runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from patcomp.errors import Problem, UnsupportedError
from patcomp.onnx.importing.graphs import File, OnnxGraph, OnnxNode
from patcomp.onnx.importing.module import load_rows
from patcomp.onnx.importing.reading import OnnxError, definition_of
from patcomp.onnx.importing.rows import ONNX_ROWS, why_not_bound

_ADVICE = {
    "": "export the model again with another opset, or register a row with patcomp.onnx.importing.rows.onnx_op",
    "com.microsoft": "save the model before ONNX Runtime optimizes it, or register a row with "
    "patcomp.onnx.importing.rows.onnx_op(..., domain='com.microsoft')",
}
_OF_OTHERS = "register a row with patcomp.onnx.importing.rows.onnx_op(..., domain={!r})"


def with_definitions(file: File) -> File:
    """The file with the functions that define its ops without a row: ONNX itself defines some ops by others.

    Raises:
        UnsupportedError: an op has neither; all of them are named.
        OnnxError: a function calls itself.
    """
    load_rows()
    functions = dict(file.functions)
    problems: dict[tuple[str, str, str], Problem] = {}
    counts: dict[tuple[str, str, str], int] = {}
    done: set[tuple[str, str]] = set()

    def visit(graph: OnnxGraph, opsets: Mapping[str, int], inside: tuple[tuple[str, str], ...]) -> None:
        for node in _nodes(graph):
            op, opset = (node.domain, node.op), opsets.get(node.domain, 1)
            if op in functions:
                if op in inside:
                    raise OnnxError(f"{file.path} is damaged: the function {node.op} calls itself")
                if op not in done:
                    visit(functions[op], functions[op].opsets, (*inside, op))
                    done.add(op)
                continue
            reason = _wrong(node)
            if reason and op not in ONNX_ROWS and (body := definition_of(node.op, node.domain, opset)) is not None:
                functions[op] = body
                visit(body, body.opsets, (*inside, op))
                done.add(op)
            elif reason:
                key = (*op, reason)
                counts[key] = counts.get(key, 0) + 1
                problems.setdefault(key, _problem(node, opset, reason))

    visit(file.graph, file.graph.opsets, ())
    if problems:
        several = [replace(each, node=_with_count(each.node, counts[key])) for key, each in problems.items()]
        raise UnsupportedError(f"{file.path} has ops of ONNX that patcomp does not convert", several)
    return replace(file, functions=functions)


def _nodes(graph: OnnxGraph) -> Iterator[OnnxNode]:
    for node in graph.nodes:
        yield node
        for each in node.attributes.values():
            if isinstance(each, OnnxGraph):
                yield from _nodes(each)


def _wrong(node: OnnxNode) -> str:
    row = ONNX_ROWS.get((node.domain, node.op))
    if row is None:
        return "there is no row for the op"
    return why_not_bound(row, len(node.inputs), node.attributes)


def _problem(node: OnnxNode, opset: int, reason: str) -> Problem:
    domain = node.domain or "ai.onnx"
    advice = _ADVICE.get(node.domain, _OF_OTHERS.format(node.domain))
    return Problem(reason, op=f"{domain}::{node.op} of opset {opset}", node=node.name or "", advice=advice)


def _with_count(name: str, count: int) -> str:
    return name if count == 1 else f"{name} and {count - 1} more"
