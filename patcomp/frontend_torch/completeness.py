"""Find exported programs that other tools left incomplete or inconsistent, as PyTorch's own passes never do."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx import Graph, Node

from patcomp.errors import PatcompError, Problem, UnsupportedError
from patcomp.frontend_torch.fx.nodes import is_untyped, operator_name
from patcomp.frontend_torch.fx.provenance import Origins, nested_graph

_SHOWN = 8
"""One change of a graph may break many uses; the first ones show what is wrong."""
_ADVICE = "export the model again, and check what changed the exported program since"


def check_complete(program: ExportedProgram) -> None:
    """Check the graph: it fits the signature, each value is computed before its uses, and each used value has a type.

    A dead node may lack `meta["val"]`, because the import skips it.

    Raises:
        UnsupportedError: something is missing; the message lists all of it.
    """
    problems = [*_of_order(program.graph), *_of_inputs(program), *_of_outputs(program)]
    if problems:
        raise UnsupportedError("the exported program is inconsistent:", problems[:_SHOWN])
    dead: set[Node] = set()
    used: list[Node] = []
    for node in filter(is_untyped, reversed(program.graph.nodes)):
        if dead.issuperset(node.users):
            dead.add(node)
        else:
            used.insert(0, node)
    origins = Origins(program.graph)
    problems = [
        origins[node].problem(
            operator_name(node),
            "the node has no meta['val'], which records the shape and element type of its result",
            "let the graph pass that made it set node.meta['val'], or export the model again after the change",
        )
        for node in used
    ]
    if problems:
        raise UnsupportedError("the exported program is incomplete:", problems)


def _of_order(graph: Graph) -> Iterator[Problem]:
    """Uses of values that are not computed before, also in nested graphs; every cycle has one."""
    before: set[Node] = set()
    for node in graph.nodes:
        for source in node.all_input_nodes:
            if source not in before:
                yield Problem(
                    f"the node reads %{source.name}, which is not computed before it", node=node.name, advice=_ADVICE
                )
        if node.op == "call_function" and not callable(node.target):
            yield Problem(f"the node calls {node.target!r}, which is not a function", node=node.name, advice=_ADVICE)
        if node.target is operator.getitem and not (
            len(node.args) == 2 and isinstance(node.args[0], Node) and isinstance(node.args[1], int)
        ):
            yield Problem("operator.getitem needs a node and an integer index", node=node.name, advice=_ADVICE)
        if (inside := nested_graph(node)) is not None:
            yield from _of_order(inside.graph)
        before.add(node)


def _of_inputs(program: ExportedProgram) -> Iterator[Problem]:
    """Inputs without a place in the signature, or in it without a place in the graph; lost weights."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        name = getattr(spec.arg, "name", "")
        if placeholders.pop(name, None) is None and not isinstance(spec.arg, ConstantArgument):
            yield Problem(f"the signature has the input {name!r}, which the graph does not have", advice=_ADVICE)
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            source = program.state_dict if spec.target in program.state_dict else program.constants
            value = source.get(spec.target)  # type: ignore[arg-type]
            if not isinstance(value, torch.Tensor):
                found = "nothing" if value is None else type(value).__name__
                yield Problem(f"the program has {found} for the weight {spec.target!r}", node=name, advice=_ADVICE)
    for name in placeholders:
        yield Problem("the graph has an input that is not in the signature", node=name, advice=_ADVICE)


def _of_outputs(program: ExportedProgram) -> Iterator[Problem]:
    names = {node.name for node in program.graph.nodes}
    stated, results = len(program.graph_signature.output_specs), program.graph.output_node().args[0]
    if isinstance(results, Sequence) and len(results) != stated:
        yield Problem(f"the signature has {stated} outputs, but the graph returns {len(results)}", advice=_ADVICE)
    for spec in program.graph_signature.output_specs:
        name = getattr(spec.arg, "name", "")
        if name not in names and not isinstance(spec.arg, ConstantArgument):
            yield Problem(f"the signature has the output {name!r}, which no node computes", advice=_ADVICE)


@contextmanager
def preparing(program: ExportedProgram, *further: type[Exception]) -> Iterator[None]:
    """Turn an unexpected exception into an error that says what failed; the exception is its cause.

    Args:
        program: the program that the code inside reads.
        further: classes of exceptions that this code does not use for messages to the user.

    Raises:
        UnsupportedError: the program is inconsistent in a way that `check_complete` does not find, or patcomp has a
            defect.
    """
    try:
        yield
    except PatcompError:
        raise
    except Exception as error:
        if not isinstance(error, (AssertionError, AttributeError, LookupError, RuntimeError, *further)):
            raise
        count = len(program.graph.nodes)
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
        problem = Problem(
            f"reading its graph of {count} nodes fails with {reason}",
            advice="run exported.graph.lint() and exported.module()(*inputs); if both succeed, this is a defect of "
            "patcomp, so please report it with the traceback",
        )
        raise UnsupportedError("the exported program cannot be read:", [problem]) from error
