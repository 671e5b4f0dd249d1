"""Programs without writes in place and nested graphs: made here where that is certain, and otherwise by PyTorch."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument
from torch.fx import GraphModule, Node

from patcomp.errors import Problem, UnsupportedError
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.decomposition.formulas import without
from patcomp.frontend_torch.decomposition.nested import flattened, is_inlined, with_inlined
from patcomp.frontend_torch.decomposition.table import get_decomp_table
from patcomp.frontend_torch.decomposition.writes import Functional, NotFollowedError
from patcomp.frontend_torch.fx.nodes import (
    given_arguments,
    graphs_of,
    is_size,
    operator_name,
    writes_in_place,
)
from patcomp.frontend_torch.fx.provenance import nested_graph, origins_of
from patcomp.frontend_torch.interface.aliases import names_of_shared, shared_tensors, used_once
from patcomp.ir.locations import Origin
from patcomp.pytorch import (
    OperatorBase,
    OpOverload,
    is_traceable_wrapper_subclass,
    replace_graph_module,
    replace_graph_signature,
)


def functional(program: ExportedProgram, lowerings: Lowerings) -> tuple[ExportedProgram, tuple[Problem, ...]]:
    """The program without writes in place, nested graphs and weights that are wrapper subclasses.

    Quantized weights may be such subclasses.

    Args:
        program: the program, which is not changed.
        lowerings: the registered lowerings; their ops stay whole.

    Returns:
        The program, and why PyTorch had to decompose all of it; empty if it did not.

    Raises:
        UnsupportedError: PyTorch cannot remove the in-place writes (a tensor is written by two names, for example) or
            the subclasses.
    """
    nodes = list(with_inlined(program.graph))
    writes = any(map(_writes, nodes))
    if problems := list(_writes_to_expanded(program)):
        raise UnsupportedError("writes to tensors whose elements share memory would become wrong numbers:", problems)
    held = (*program.state_dict.values(), *program.constants.values())
    wraps = any(map(is_traceable_wrapper_subclass, held))
    if wraps:
        reason = Problem("the program has tensor subclasses as weights")
    elif (found := next(filter(None, map(_left_to_pytorch, nodes)), None)) is not None:
        reason = found
    elif not writes and not any(map(is_inlined, program.graph.nodes)):
        return program, ()
    else:
        try:
            return _converted(program, writes), ()
        except NotFollowedError as error:
            reason = _origin(error.node).problem(operator_name(error.node), str(error))
    return _by_pytorch(program, lowerings, wraps), (reason,)


def _by_pytorch(program: ExportedProgram, lowerings: Lowerings, wraps: bool) -> ExportedProgram:
    try:
        return used_once(program).run_decompositions(without(get_decomp_table(), lowerings))
    except Exception as error:  # PyTorch's passes raise errors of any class
        problems = shared_tensors(program) or [_refused_by_pytorch(program, error)]
        what = "split the program's tensor subclasses into plain tensors" if wraps else "remove in-place writes"
        raise UnsupportedError(f"PyTorch cannot {what}:", problems) from error


def _converted(program: ExportedProgram, writes: bool) -> ExportedProgram:
    """A copy of a program without nested graphs and, if it has any, without writes.

    Raises:
        NotFollowedError: it is not certain which tensors a write changes, or what it writes.
    """
    given = program.graph_signature
    graph, written = flattened(program.graph), {}
    if writes:
        if any(spec.kind != OutputKind.USER_OUTPUT for spec in given.output_specs):
            raise NotFollowedError("the program returns new contents of states", graph.output_node())
        kinds = {spec.arg.name: spec.kind for spec in given.input_specs}
        made = Functional(graph, kinds, names_of_shared(program))
        graph, written = made.graph, made.written
    results = list(graph.output_node().args[0])  # type: ignore[arg-type]
    outputs = []
    for placeholder, result in written.items():
        spec = next(spec for spec in given.input_specs if spec.arg.name == placeholder)
        kind = OutputKind.USER_INPUT_MUTATION if spec.target is None else OutputKind.BUFFER_MUTATION
        outputs.append(OutputSpec(kind, TensorArgument(result.name), spec.target or placeholder))
    for spec, result in zip(given.output_specs, results[len(written) :], strict=True):
        argument = dataclasses.replace(spec.arg, name=result.name) if isinstance(result, Node) else spec.arg
        outputs.append(OutputSpec(spec.kind, argument, spec.target))
    changed = copy.copy(program)
    replace_graph_module(changed, GraphModule(program.graph_module, graph))
    replace_graph_signature(changed, ExportGraphSignature(list(given.input_specs), outputs))
    return changed


# ---- what is left to PyTorch -------------------------------------------------------------------------


def _origin(node: Node) -> Origin:
    return origins_of(node.graph)[node]


def _writes(node: Node) -> bool:
    return node.op == "call_function" and writes_in_place(node)


def _left_to_pytorch(node: Node) -> Problem | None:
    """Why only PyTorch can decompose a node; None if it need not."""
    if node.op != "call_function" or node.target is operator.getitem or is_size(node):
        return None
    if isinstance(node.target, OpOverload):
        if not _updates_statistics(node):
            return None
        reason = "the op updates running statistics, which its schema does not say"
    elif node.target is torch.ops.higher_order.wrap_with_autocast:
        inside = nested_graph(node.args[4])  # type: ignore[arg-type]
        node = next((each for each in inside.graph.nodes if each.op == "call_function"), node) if inside else node
        return _origin(node).problem("autocast", "autocast converts types, and the graph does not say which")
    else:
        reason = "the op nests graphs"
    return _origin(node).problem(operator_name(node), reason)


def _updates_statistics(node: Node) -> bool:
    """Whether a node is a norm in training mode, which writes to its running statistics."""
    given = given_arguments(node)
    if given.get("running_mean") is None and given.get("running_var") is None:
        return False
    # the names of the flag in the schemas of norms; without a flag, the op may write
    flags = [given[name] for name in ("training", "train", "use_input_stats") if name in given]
    return not flags or any(flag is not False for flag in flags)


def _changes_structure(node: Node) -> bool:
    """Whether a node may write in place or nests graphs."""
    if node.op != "call_function" or node.target is operator.getitem or is_size(node):
        return False
    return not isinstance(node.target, OpOverload) or writes_in_place(node)


def _writes_to_expanded(program: ExportedProgram) -> Iterator[Problem]:
    """Writes to tensors whose elements overlap in memory.

    PyTorch adds up the changes of all of them, so `x.expand(2, 3).fill_(1)` changes `x` twice.
    """
    writing = [node for graph in graphs_of(program) for node in graph.nodes if _writes(node)]
    origins = origins_of(program.graph) if writing else {}
    for node in writing:
        value = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], Node) else None
        if not isinstance(value, torch.Tensor):
            continue
        strides = zip(value.shape, value.stride(), strict=True)
        shared = [size for size, stride in strides if isinstance(stride, int) and stride == 0]
        if any(not isinstance(size, int) or size > 1 for size in shared):
            yield origins[node].problem(
                operator_name(node),
                "the op writes to an expanded tensor",
                "write to the tensor before it is expanded, or to a clone() of the expanded one",
            )


def _refused_by_pytorch(program: ExportedProgram, error: Exception) -> Problem:
    """An error of PyTorch's passes, with the place of the first op that may have caused it.

    The error itself has no place. If it names an op, as in `cond_true might be aliasing the input`, only ops of that
    name are considered.
    """
    message = str(error).partition("\n")[0] or type(error).__name__
    origins = origins_of(program.graph)
    left = [node for node in origins if _changes_structure(node) and isinstance(node.target, OperatorBase)]
    nodes = [node for node in left if operator_name(node) in message] or left
    if not nodes:
        return Problem(message)
    if len(nodes) > 1:
        message += f"; this is the first of {len(nodes)} ops that may be the cause"
    return origins[nodes[0]].problem(operator_name(nodes[0]), message)
