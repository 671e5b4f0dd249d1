"""Programs without writes in place and nested graphs: made here where that is certain, and otherwise by PyTorch."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument
from torch.fx import Graph, Node

from patcomp.errors import Problem, UnsupportedError
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.decomposition.table import get_decomp_table, without
from patcomp.frontend_torch.functional.literals import has_literals, replace_literals
from patcomp.frontend_torch.functional.nested import flattened, is_inlined, with_inlined
from patcomp.frontend_torch.functional.views import is_dropout_off, is_new
from patcomp.frontend_torch.functional.views_in_place import replace_views_in_place, view_in_place
from patcomp.frontend_torch.functional.writes import Functional, NotFollowedError
from patcomp.frontend_torch.fx.nodes import (
    given_arguments,
    is_size,
    operator_name,
    writes_in_place,
)
from patcomp.frontend_torch.fx.provenance import Origins, nested_graph, nodes_of
from patcomp.frontend_torch.interface.aliases import names_of_shared, shared_tensors, used_once
from patcomp.ir.locations import Origin
from patcomp.pytorch import (
    LazyGraphModule,
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
    writes = any(map(_writes, nodes_of(program.graph)))
    inlines = any(map(is_inlined, program.graph.nodes))
    graph = flattened(program.graph) if writes or inlines else program.graph
    if writes:
        replace_views_in_place(graph)
    if writes and (problems := list(_wrong_writes(program, graph, nodes))):
        raise UnsupportedError("writes to views would become wrong numbers:", problems)
    held = (*program.state_dict.values(), *program.constants.values())
    wraps = any(map(is_traceable_wrapper_subclass, held))
    if wraps:
        reason = Problem("the program has tensor subclasses as weights")
    elif (found := next(filter(None, map(_left_to_pytorch, nodes)), None)) is not None:
        reason = found
    elif graph is program.graph:
        return program, ()
    else:
        try:
            return _converted(program, graph, writes), ()
        except NotFollowedError as error:
            reason = _origin(error.node).problem(operator_name(error.node), str(error))
    return _by_pytorch(program, lowerings, wraps), (reason,)


def _by_pytorch(program: ExportedProgram, lowerings: Lowerings, wraps: bool) -> ExportedProgram:
    try:
        return used_once(_prepared(program)).run_decompositions(without(get_decomp_table(), lowerings))
    except Exception as error:  # PyTorch's passes raise errors of any class
        problems = shared_tensors(program) or [_refused_by_pytorch(program, error)]
        what = "split the program's tensor subclasses into plain tensors" if wraps else "remove in-place writes"
        raise UnsupportedError(f"PyTorch cannot {what}:", problems) from error


def _prepared(program: ExportedProgram) -> ExportedProgram:
    """The program, or a copy without the constructs that PyTorch's `run_decompositions` misreads or fails on.

    A dropout outside of training returns its argument itself, so the argument takes its place. PyTorch decomposes it to
    a copy, which would miss later writes. An op that turns a tensor into another view of its memory returns the view
    instead. Nested graphs make the tensors that they are written with by ops. A check without a message gets an empty
    message, because PyTorch would drop the check as dead code.
    """
    check = torch.ops.aten._assert_async
    nodes = nodes_of(program.graph)
    changes = any(
        is_dropout_off(node) or view_in_place(node) is not None or node.target is check.default for node in nodes
    )
    if not changes and not has_literals(program.graph_module):
        return program
    module = copy.deepcopy(program.graph_module)
    for given, copied in zip(program.graph.nodes, module.graph.nodes, strict=True):
        if given.op == "placeholder":
            copied.name = given.name  # FX renames what is a name of Python, such as `input`
    replace_literals(module)
    for graph in {node.graph for node in nodes_of(module.graph)}:
        replace_views_in_place(graph)
    results = module.graph.output_node()  # the program's signature has the names of what it returns
    for node in nodes_of(module.graph):
        if is_dropout_off(node):
            argument = node.all_input_nodes[0]
            node.target, node.args, node.kwargs = torch.ops.aten.alias.default, (argument,), {}
            node.replace_all_uses_with(argument, delete_user_cb=lambda user: user is not results)
        elif node.target is check.default:
            node.target, node.args = check.msg, (*node.args, "")
    changed = copy.copy(program)
    replace_graph_module(changed, module)
    return changed


def _converted(program: ExportedProgram, graph: Graph, writes: bool) -> ExportedProgram:
    """A copy of a program without nested graphs and, if it has any, without writes.

    Args:
        program: the program.
        graph: its graph without nested ones.
        writes: whether the graph writes in place.

    Raises:
        NotFollowedError: it is not certain which tensors a write changes, or what it writes.
    """
    given = program.graph_signature
    for node in graph.find_nodes(op="get_attr"):
        raise NotFollowedError("the graph reads a tensor that is not among the inputs of the program", node)
    written: dict[str, Node] = {}
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
    replace_graph_module(changed, LazyGraphModule(program.graph_module, graph))
    replace_graph_signature(changed, ExportGraphSignature(list(given.input_specs), outputs))
    return changed


# ---- what is left to PyTorch -------------------------------------------------------------------------


def _origin(node: Node) -> Origin:
    return Origins(node.graph)[node]


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


_NEVER_IN_TRAINING = frozenset({"aten._native_batch_norm_legit_no_training", "aten._batch_norm_no_update"})


def _updates_statistics(node: Node) -> bool:
    """Whether a node is a norm in training mode, which writes to its running statistics."""
    given = given_arguments(node)
    if operator_name(node) in _NEVER_IN_TRAINING:
        return False
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


def _wrong_writes(program: ExportedProgram, graph: Graph, nodes: list[Node]) -> Iterator[Problem]:
    """Writes to views that PyTorch does not remove rightly.

    Where elements overlap in memory, a write to one of them changes the others, and PyTorch adds up the changes of all
    of them: by it, `x.expand(2, 3).fill_(1)` changes `x` twice. Elements that `unfold` leaves out become 0.

    Args:
        program: the program.
        graph: its graph without those nested graphs that can be inlined.
        nodes: the nodes of the program, with those of nested graphs that can be inlined.
    """
    inside = (held.graph for node in nodes if (held := nested_graph(node)) is not None)
    origins = Origins(program.graph)
    for node in chain(graph.nodes, *map(nodes_of, inside)):
        if not _writes(node):
            continue
        views = list(_memory_of(node))
        if any(_overlaps(view.meta.get("val")) for view in views):
            yield origins[node].problem(
                operator_name(node),
                "the op writes to a tensor whose elements share memory, such as an expanded one",
                "write to the tensor before it is expanded, or to a clone() of the expanded one",
            )
        elif any(map(_leaves_elements_out, views)):
            yield origins[node].problem(
                operator_name(node),
                "the op writes to a view by unfold that leaves elements out",
                "write to slices of the tensor instead",
            )


def _leaves_elements_out(view: Node) -> bool:
    """Whether a view by `unfold` may not have all elements of its base."""
    if view.target is not torch.ops.aten.unfold.default:
        return False
    given = given_arguments(view)
    length = given["self"].meta["val"].shape[given["dimension"]] if given["self"].meta["val"].dim() else 1
    parts = (length, given["size"], given["step"])
    return not all(isinstance(part, int) for part in parts) or parts[1] != parts[2] or length % parts[1] != 0


def _memory_of(write: Node) -> Iterator[Node]:
    """The tensor written by a node, then each tensor of which the one before may be a view."""
    node = write
    while node.op == "call_function" and node.args and isinstance(node.args[0], Node):
        node = node.args[0]
        yield node
        if is_new(node):
            return


def _overlaps(value: Any) -> bool:
    """Whether elements of a recorded tensor may share memory."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    if any(isinstance(size, int) and size == 0 for size in value.shape):
        return False
    steps = [
        (stride, size)
        for size, stride in zip(value.shape, value.stride(), strict=True)
        if not (isinstance(size, int) and size == 1)
    ]
    if any(isinstance(stride, int) and stride == 0 for stride, _ in steps):
        return True
    if not all(isinstance(number, int) for step in steps for number in step):
        return False
    reach = 1  # how far apart the elements of the dimensions so far can be
    for stride, size in sorted(steps):
        if stride < reach:
            return True
        reach += stride * (size - 1)
    return False


def _refused_by_pytorch(program: ExportedProgram, error: Exception) -> Problem:
    """An error of PyTorch's passes, with the place of the first op that may have caused it.

    The error itself has no place. If it names an op, as in `cond_true might be aliasing the input`, only ops of that
    name are considered.
    """
    message = str(error).partition("\n")[0]
    if not message or isinstance(error, AssertionError | LookupError | AttributeError):
        message = f"PyTorch's pass fails with {type(error).__name__}: {message}"
    origins = Origins(program.graph)
    left = [
        node for node in nodes_of(program.graph) if _changes_structure(node) and isinstance(node.target, OperatorBase)
    ]
    named = [node for node in left if operator_name(node) in message] or left
    if not named:
        return Problem(message)
    if len(named) > 1:
        message += f"; this is the first of {len(named)} ops that may be the cause"
    return origins[named[0]].problem(operator_name(named[0]), message)
