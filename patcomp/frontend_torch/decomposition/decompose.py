"""Decomposition on import: decompose the ops that no rule takes, one node at a time.

The decomposition of an op is, in this order, a `@decomposition` of the catalog, PyTorch's default table for export, or
any other decomposition of PyTorch. So a program converts in the same way whether its user decomposed it with
`get_decomp_table()`, with another table, or not at all.

Ops on complex numbers are decomposed too: the catalog's decompositions `of_complex` end in real ops between
`aten.view_as_real` and `aten.complex`, and the normalize stage cancels these two where they meet.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from patcomp.errors import Problem
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.custom.skeleton import advice_for, is_of_custom_op
from patcomp.frontend_torch.decomposition.recording import NotRecordedError, recorded
from patcomp.frontend_torch.decomposition.renamed import renamed
from patcomp.frontend_torch.decomposition.size_questions import SizeQuestions
from patcomp.frontend_torch.decomposition.table import Formulas, Table, any_complex, current_table, formulas, is_known
from patcomp.frontend_torch.externalization.markers import is_marker
from patcomp.frontend_torch.fx.nodes import (
    ASSIGNS_DATA,
    arguments_text,
    draws_random_numbers,
    given_arguments,
    is_assertion,
    is_size,
    is_untyped,
    operator_name,
    read_by_checks_only,
    recorded_results,
    writes_in_place,
)
from patcomp.frontend_torch.fx.provenance import Origins, nodes_of
from patcomp.frontend_torch.fx.sizes import symbols_in
from patcomp.frontend_torch.importing.control_flow import CONTROL_FLOW
from patcomp.ir.aten_facts import facts_of
from patcomp.patterns import Rejected, RuleSet
from patcomp.pytorch import (
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    asking,
    enable_python_dispatcher,
    make_fx,
    pytree,
    quiet,
)

DRAWS = "which draws random numbers"
"""The end of the message about an op that draws."""
AS_ABOVE = "as above"
"""The advice about a custom op that was given for the same op before."""


class Decomposer:
    """Decomposes the nodes of a program.

    Args:
        rules: the catalog; the ops that its rules take stay whole, and its decompositions come first.
        lowerings: the registered lowerings; their ops stay whole, too.
    """

    def __init__(self, rules: RuleSet, lowerings: Lowerings):
        self._rules = rules
        self._lowerings = lowerings
        self._graphs: dict[Any, tuple[GraphModule | None, list[str]]] = {}

    @cached_property
    def _table(self) -> Table:
        return current_table()

    @cached_property
    def _formulas(self) -> Formulas:
        """The functions that decompose; computed on first use, because many programs need none."""
        return formulas(self._rules, self._table, self._lowerings)

    def expansions(self, program: ExportedProgram) -> tuple[dict[Node, GraphModule], list[Problem], list[Any]]:
        """Decompose the nodes that no rule takes.

        Returns:
            Their replacements, the problems of nodes without one, and conditions on sizes under which the replacements
            are right, as SymPy expressions.
        """
        questions = SizeQuestions(program)
        found: dict[Node, GraphModule] = {}
        problems: list[Problem] = []
        shown: set[str] = set()
        origins = Origins(program.graph)
        checked: set[Node] | None = None
        for node in nodes_of(program.graph):
            if not self.takes(node):
                continue
            inside, unknown, reason = None, list[str](), "unsupported op"
            try:
                with quiet():
                    if isinstance(node.target, OpOverload):
                        inside, unknown = self._graph_of(node, questions)
            except Rejected as rejection:
                reason = str(rejection)
            except Exception as error:  # PyTorch's decompositions raise errors of any class
                reason = "unsupported op; decomposing it failed: " + str(error).partition("\n")[0]
                if symbols_in(
                    [source.meta.get("val") for source in (node, *node.all_input_nodes)]
                ):  # PyTorch's text would be about symbols that nobody named
                    reason = "PyTorch decomposes this op for known sizes only; export with its dimensions fixed"
            else:
                if inside is not None:
                    if not unknown:
                        found[node] = inside
                        continue
                    reason = f"unsupported op, made of {', '.join(unknown)}"
            if checked is None:  # few programs have nodes that cannot be decomposed
                checked = read_by_checks_only(program.graph)
            if node in checked:
                continue  # `program.run` computes it by PyTorch
            op = operator_name(node)
            if draws_random_numbers(node):
                reason = f"unsupported op, {DRAWS}"
            elif op == ASSIGNS_DATA:
                reason = "the model assigns to `.data`, which the exported program leaves out: it has the old numbers"
            problem = origins[node].problem(op, reason, advice_for(node))
            if op in shown and is_of_custom_op(problem):
                problem = replace(problem, advice=AS_ABOVE)
            shown.add(op)
            problems.append(problem)
        return found, problems, list(questions.conditions)

    def _graph_of(self, node: Node, questions: SizeQuestions) -> tuple[GraphModule | None, list[str]]:
        """The decomposed graph of a node, with a placeholder for each of `node.all_input_nodes`; None if it is atomic.
        And the ops in it that would have to be decomposed further.

        Nodes that differ only in their inputs share one graph. Unused results are None.

        Args:
            questions: collects PyTorch's questions about dynamic sizes.
        """
        recorded = pytree.tree_leaves([source.meta.get("val") for source in (node, *node.all_input_nodes)])
        if any(isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided for leaf in recorded):
            return None, []
        _check_parts(node)
        key = key_of(node)
        if key not in self._graphs:
            # only on success: the next such node fails for the same reason
            written = None if self._is_told(node) else renamed(node)
            self._graphs[key] = self._decomposed(node, questions) if written is None else (written, [])
        return self._graphs[key]

    def _is_told(self, node: Node) -> bool:
        """Whether a library, the user's catalog or the kind of the numbers decides how an op is decomposed."""
        from patterns_catalog import default_decompositions  # programs without such ops need none

        name, rules = operator_name(node), self._rules.decompositions()
        own = name in rules and rules[name] is not default_decompositions().decompositions().get(name)
        return own or node.target in self._table.functions or has_complex(node)

    def _decomposed(self, node: Node, questions: SizeQuestions) -> tuple[GraphModule | None, list[str]]:
        found, asked, unknown = None, list[Any](), list[str]()
        for table in self._formulas.tables():
            graph, conditions = self._traced(node, table)
            if graph is not None:
                found, asked = graph, conditions
                unknown = sorted({operator_name(inner) for inner in graph.graph.nodes if self.takes(inner)})
                if not unknown:
                    break
        if found is not None and asked:
            questions.settle(node, found, asked)
        return found, unknown

    def takes(self, node: Node) -> bool:
        """Whether a node must be decomposed."""
        if node.op != "call_function" or node.target is operator.getitem or node.target in CONTROL_FLOW:
            return False
        if is_assertion(node) or is_size(node) or is_marker(node) or is_untyped(node):
            return False
        if self._lowerings.name_of(node.target) is not None:
            return False
        name = operator_name(node)
        # most programs have only ops of procedural rules, and need no table of decompositions
        if name not in self._rules.procedural_ops and not is_known(name, self._rules, self._table):
            return True
        return facts_of(name).complex not in ("imported", "stays") and has_complex(node)

    def _traced(self, node: Node, table: Mapping[Any, Callable[..., Any]]) -> tuple[GraphModule | None, list[Any]]:
        """The graph of a node by a table, None if its op stays; and the conditions that PyTorch asked about."""
        inputs = node.all_input_nodes
        target = node.target
        assert isinstance(target, OpOverload)
        is_complex = has_complex(node)

        def call(*tensors: torch.Tensor) -> Any:
            values = dict(zip(inputs, tensors, strict=True))
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)  # type: ignore[misc]
            # called directly, because PyTorch decomposes some ops before it looks at the table
            declared = self._formulas.of_complex if is_complex else self._formulas.own
            result = declared[target](*args, **kwargs) if target in declared else NotImplemented
            return target(*args, **kwargs) if result is NotImplemented else result

        fakes = [leaf for leaf in pytree.tree_leaves(node.meta["val"]) if isinstance(leaf, FakeTensor)]
        if not fakes:
            return None, []

        asked: list[Any] = []
        traced: GraphModule | None = None
        mode = fakes[0].fake_mode
        with mode, enable_python_dispatcher():
            samples: list[Any] = [_resolved(source.meta["val"]) for source in inputs]
        # tensors that two nodes share, and the catalog's formulas of complex numbers, are for PyTorch's own tracer
        are_apart = all(type(each) is FakeTensor for each in samples) and len({*map(id, samples)}) == len(samples)
        if are_apart and not is_complex:
            # the dispatcher takes the shape functions that keep symbolic sizes, and is slower
            dispatcher = enable_python_dispatcher() if symbols_in(samples) else nullcontext()
            sizes = mode.shape_env
            # a size that depends on data is PyTorch's tracer's to make
            unbound = nullcontext() if sizes is None else sizes.ignore_fresh_unbacked_symbols()
            with suppress(NotRecordedError), mode, torch.no_grad(), asking(sizes) as asked, dispatcher, unbound:
                traced = recorded(call, samples, table)
        if traced is None:
            traced, asked = traced_by_pytorch(call, samples, table, mode)
        _drop_unused_results(traced, used_results(node))
        stays = any(inner.target is target and self.takes(inner) for inner in traced.graph.nodes)
        return None if stays else traced, asked


def _check_parts(node: Node) -> None:
    """Check that an op which cuts a tensor makes about as many parts as the program records.

    Raises:
        ValueError: it makes many more, which would take days to trace: the sizes of the program are wrong.
    """
    argument = facts_of(operator_name(node)).parts
    if not argument:
        return
    given = given_arguments(node)
    source, dim = given.get("self"), given.get("dim", 0)
    shape = getattr(source.meta.get("val"), "shape", ()) if isinstance(source, Node) else ()
    if not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
        return  # PyTorch says what is wrong
    parts, recorded = given.get(argument, shape[dim]), len(recorded_results(node))
    if isinstance(parts, int) and parts > max(2 * recorded, 1000):
        raise ValueError(f"the program records {recorded} results, but the op cuts its input into {parts:,} parts")


def traced_by_pytorch(
    function: Callable[..., Any], samples: list[Any], table: Mapping[Any, Callable[..., Any]], mode: FakeTensorMode
) -> tuple[GraphModule, list[Any]]:
    """The graph of a function of fake tensors, without writes in place, and the conditions that it asked about."""

    # with the Python dispatcher, as export traces: without it some shape functions, such as that of `aten.complex`,
    # turn symbolic sizes into numbers
    with mode, torch.no_grad(), asking(mode.shape_env) as asked, enable_python_dispatcher():
        traced = make_fx(function, decomposition_table=table)(*samples)
        # only in a second trace, because `functionalize` takes kernels that turn symbolic sizes into numbers
        while any(map(writes_in_place, traced.graph.nodes)):
            functional = torch.func.functionalize(traced, remove="mutations")
            traced = make_fx(functional, decomposition_table=table)(*samples)
    return traced, asked


def has_complex(node: Node) -> bool:
    """Whether a node takes or gives complex tensors or numbers."""
    for source in (node, *node.all_input_nodes):
        if any_complex(source.meta.get("val")):
            return True
    return any_complex(node.args) or any_complex(node.kwargs)


def _resolved(value: Any) -> Any:
    """A fake tensor without lazy conjugation and negation, because a value of the IR has them applied already."""
    if isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg()):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return value


def key_of(node: Node) -> Any:
    """The key of all that the decomposition of a node reads within one program."""
    fakes = [source.meta["val"] for source in node.all_input_nodes]
    kinds = [  # sizes count, because the graph contains them as expressions over the program's dimensions
        (fake.dtype, tuple(fake.shape), fake.stride()) if isinstance(fake, torch.Tensor) else str(fake)
        for fake in fakes
    ]
    return node.target, arguments_text(node), repr(kinds), used_results(node)


def used_results(node: Node) -> frozenset[int] | None:
    """Which of a node's several results are used; None for all."""
    if not node.users or any(user.target is not operator.getitem for user in node.users):
        return None
    return frozenset(user.args[1] for user in node.users if user.users)  # type: ignore[misc]


def _drop_unused_results(traced: GraphModule, used: frozenset[int] | None) -> None:
    """Drop unused results, because their ops need not be supported."""
    output = next(iter(reversed(traced.graph.nodes)))
    results = output.args[0]
    if used is not None and isinstance(results, list | tuple):
        output.args = (tuple(result if index in used else None for index, result in enumerate(results)),)
    traced.graph.eliminate_dead_code()
