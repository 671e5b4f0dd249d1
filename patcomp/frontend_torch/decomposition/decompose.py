"""Decomposition on import: decompose the ops that no rule takes, one node at a time.

The decomposition of an op is, in this order, a `@decomposition` of the catalog, PyTorch's default table for export, or
any other decomposition of PyTorch. So a program converts in the same way whether its user decomposed it with
`get_decomp_table()`, with another table, or not at all.

Ops on complex numbers are decomposed too: the catalog's decompositions `of_complex` end in real ops between
`aten.view_as_real` and `aten.complex`, and the normalize stage cancels these two where they meet.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from patcomp.errors import Problem, UnsupportedError
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.custom.skeleton import advice_for, is_of_custom_op
from patcomp.frontend_torch.decomposition.formulas import Formulas, any_complex, formulas, remember, without
from patcomp.frontend_torch.decomposition.kinds import Kind, arguments_text, kind_of, used_results
from patcomp.frontend_torch.decomposition.table import get_decomp_table
from patcomp.frontend_torch.externalization.markers import is_marker
from patcomp.frontend_torch.fx.nodes import (
    draws_random_numbers,
    is_assertion,
    is_size,
    is_untyped,
    operator_name,
    writes_in_place,
)
from patcomp.frontend_torch.fx.provenance import Origins, nodes_of
from patcomp.frontend_torch.importing.control_flow import CONTROL_FLOW
from patcomp.frontend_torch.interface.aliases import shared_tensors, used_once
from patcomp.patterns import Rejected, RuleSet
from patcomp.pytorch import (
    FakeTensor,
    FakeTensorMode,
    OperatorBase,
    OpOverload,
    enable_python_dispatcher,
    is_traceable_wrapper_subclass,
    make_fx,
    pytree,
)


def functional(program: ExportedProgram, lowerings: Lowerings) -> ExportedProgram:
    """The program, functionalized by PyTorch if it writes in place, nests graphs or has wrapper subclasses as weights.

    Quantized weights may be such subclasses.

    Args:
        program: the program, which is not changed.
        lowerings: the registered lowerings; their ops stay whole.

    Raises:
        UnsupportedError: PyTorch cannot remove the in-place writes (a tensor is written by two names, for example) or
            the subclasses.
    """
    held = (*program.state_dict.values(), *program.constants.values())
    wraps = any(map(is_traceable_wrapper_subclass, held))
    if not wraps and not any(map(_is_left_to_pytorch, program.graph.nodes)):
        return program
    if problems := list(_writes_to_expanded(program)):
        raise UnsupportedError("PyTorch removes in-place writes, and these would become wrong numbers:", problems)
    try:
        return used_once(program).run_decompositions(without(get_decomp_table(), lowerings))
    except Exception as error:  # PyTorch's passes raise errors of any class
        problems = shared_tensors(program) or [_refused_by_pytorch(program, error)]
        what = "split the program's tensor subclasses into plain tensors" if wraps else "remove in-place writes"
        raise UnsupportedError(f"PyTorch cannot {what}:", problems) from error


def _writes_to_expanded(program: ExportedProgram) -> Iterator[Problem]:
    """Writes to tensors whose elements overlap in memory.

    PyTorch adds up the changes of all of them, so `x.expand(2, 3).fill_(1)` changes `x` twice.
    """
    origins = Origins(program.graph)
    for node in program.graph.nodes:
        if not isinstance(node.target, OpOverload) or not writes_in_place(node):
            continue
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
    origins = Origins(program.graph)
    left = [
        node for node in nodes_of(program.graph) if _is_left_to_pytorch(node) and isinstance(node.target, OperatorBase)
    ]
    named = [node for node in left if operator_name(node) in message] or left
    if not named:
        return Problem(message)
    if len(named) > 1:
        message += f"; this is the first of {len(named)} ops that may be the cause"
    return origins[named[0]].problem(operator_name(named[0]), message)


def _is_left_to_pytorch(node: Node) -> bool:
    """Whether a node writes in place or nests graphs."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    return not isinstance(node.target, OpOverload) or writes_in_place(node)


class Decomposer:
    """Decomposes the nodes of a program.

    Args:
        rules: the catalog; the ops that its rules take stay whole, and its decompositions come first.
        lowerings: the registered lowerings; their ops stay whole, too.
    """

    def __init__(self, rules: RuleSet, lowerings: Lowerings):
        self._rules = rules
        self._lowerings = lowerings
        self._graphs: dict[Any, GraphModule | None] = {}

    @cached_property
    def _formulas(self) -> Formulas:
        """The functions that decompose; computed on first use, because many programs need none."""
        return formulas(self._rules, self._lowerings)

    def expansions(self, program: ExportedProgram) -> tuple[dict[Node, GraphModule], list[Problem]]:
        """The replacements of the nodes that no rule takes, and the problems of nodes without a replacement."""
        found: dict[Node, GraphModule] = {}
        problems: list[Problem] = []
        shown: set[str] = set()
        origins = Origins(program.graph)
        for node in nodes_of(program.graph):
            if not self.takes(node):
                continue
            inside, reason = None, "unsupported op"
            try:
                inside = self.graph_of(node) if isinstance(node.target, OpOverload) else None
            except Rejected as rejection:
                reason = str(rejection)
            except Exception as error:  # PyTorch's decompositions raise errors of any class
                reason = "unsupported op, taking it apart fails: " + str(error).partition("\n")[0]
            else:
                if inside is not None:
                    if not (unknown := self.unknown(inside)):
                        found[node] = inside
                        continue
                    reason = f"unsupported op, made of {', '.join(unknown)}"
            if draws_random_numbers(node):
                reason = "unsupported op, which draws random numbers"
            op = operator_name(node)
            problem = origins[node].problem(op, reason, advice_for(node))
            if op in shown and is_of_custom_op(problem):
                problem = replace(problem, advice="as above")
            shown.add(op)
            problems.append(problem)
        return found, problems

    def graph_of(self, node: Node) -> GraphModule | None:
        """The decomposed graph of a node, with a placeholder for each of `node.all_input_nodes`; None if it is atomic.

        Nodes that differ only in their inputs share one graph, those of one `Kind` in the whole process. Unused results
        are None.
        """
        recorded = pytree.tree_leaves([source.meta.get("val") for source in (node, *node.all_input_nodes)])
        if any(isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided for leaf in recorded):
            return None
        shared = self._formulas.graphs
        kind = None if shared is None else kind_of(node)
        if shared is not None and kind is not None:
            if kind in shared:
                return shared[kind]
            with suppress(Exception):  # what fails without the program is tried with it
                return remember(shared, kind, self._decomposed(node, kind))
        key = _key(node)
        if key not in self._graphs:
            self._graphs[key] = self._decomposed(node)  # only on success: the next such node fails for the same reason
        return self._graphs[key]

    def _decomposed(self, node: Node, kind: Kind | None = None) -> GraphModule | None:
        found = None
        for table in self._formulas.tables:
            graph = self._traced(node, table, kind)
            found = graph or found
            if graph is not None and not self.unknown(graph):
                break
        return found

    def takes(self, node: Node) -> bool:
        """Whether a node must be decomposed."""
        if node.op != "call_function" or node.target is operator.getitem or node.target in CONTROL_FLOW:
            return False
        if is_assertion(node) or is_size(node) or is_marker(node) or is_untyped(node):
            return False
        if self._lowerings.name_of(node.target) is not None:
            return False
        name = operator_name(node)
        return not self._is_known(name) or (name not in COMPLEX_ENDS and has_complex(node))

    def _is_known(self, name: str) -> bool:
        """Whether rules take an op."""
        # most programs have only ops of the first kind, and need no table of decompositions
        return name in self._rules.procedural_ops or name in self._formulas.known

    def unknown(self, graph: GraphModule) -> list[str]:
        """The ops in a graph that would have to be decomposed further."""
        return sorted({operator_name(node) for node in graph.graph.nodes if self.takes(node)})

    def _traced(self, node: Node, table: Mapping[Any, Callable[..., Any]], kind: Kind | None) -> GraphModule | None:
        """The graph of a node by a table; None if its op stays.

        Args:
            kind: the node's kind, to trace it without tensors, sizes and mode of its program.
        """
        inputs = node.all_input_nodes
        target = node.target
        assert isinstance(target, OpOverload)

        def call(*tensors: torch.Tensor) -> Any:
            values = dict(zip(inputs, tensors, strict=True))
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)  # type: ignore[misc]
            # called directly, because PyTorch decomposes some ops before it looks at the table
            declared = self._formulas.of_complex if has_complex(node) else self._formulas.own
            result = declared[target](*args, **kwargs) if target in declared else NotImplemented
            return target(*args, **kwargs) if result is NotImplemented else result

        fakes = [leaf for leaf in pytree.tree_leaves(node.meta["val"]) if isinstance(leaf, FakeTensor)]
        if not fakes:
            return None

        def trace(function: Callable[..., Any]) -> GraphModule:
            return make_fx(torch.func.functionalize(function, remove="mutations"), decomposition_table=table)(*samples)

        mode = fakes[0].fake_mode if kind is None else FakeTensorMode(allow_non_fake_inputs=True, export=True)
        # a decomposition that branches on a dynamic size fails, because its result would hold only for some sizes
        no_guards = nullcontext() if mode.shape_env is None else mode.shape_env.error_on_new_guards()
        # with the Python dispatcher, as export traces: without it some shape functions, such as that of `aten.complex`,
        # turn symbolic sizes into numbers
        with mode, torch.no_grad(), no_guards, enable_python_dispatcher():
            if kind is None:
                samples = [_resolved(source.meta["val"]) for source in inputs]
            else:
                samples = [facts.sample() for facts in kind.inputs]
            traced = trace(call)
            if any(map(writes_in_place, traced.graph.nodes)):
                traced = trace(traced)  # the first trace does not remove in-place writes of PyTorch's decompositions
        _drop_unused_results(traced, used_results(node))
        return None if any(inner.target is target and self.takes(inner) for inner in traced.graph.nodes) else traced


COMPLEX_ENDS = frozenset({"aten.complex", "aten.view_as_real"})
"""The ops with complex tensors that stay: they convert from and to real and imaginary parts."""


def has_complex(node: Node) -> bool:
    recorded = [source.meta.get("val") for source in (node, *node.all_input_nodes)]
    return any_complex((recorded, node.args, node.kwargs))


def _resolved(value: Any) -> Any:
    """A fake tensor without lazy conjugation and negation, because a value of the IR has them applied already."""
    if isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg()):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return value


def _key(node: Node) -> Any:
    """What the decomposition of a node reads, within one program."""
    fakes = [source.meta["val"] for source in node.all_input_nodes]
    kinds = [  # sizes count, because the graph contains them as expressions over the program's dimensions
        (fake.dtype, tuple(fake.shape), fake.stride()) if isinstance(fake, torch.Tensor) else str(fake)
        for fake in fakes
    ]
    return node.target, arguments_text(node), repr(kinds), used_results(node)


def _drop_unused_results(traced: GraphModule, used: frozenset[int] | None) -> None:
    """Drop unused results, because their ops need not be supported."""
    output = next(iter(reversed(traced.graph.nodes)))
    results = output.args[0]
    if used is not None and isinstance(results, list | tuple):
        output.args = (tuple(result if index in used else None for index, result in enumerate(results)),)
    traced.graph.eliminate_dead_code()
