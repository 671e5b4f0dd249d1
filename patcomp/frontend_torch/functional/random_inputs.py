"""Random numbers as inputs: each op that draws computes its numbers from noise, which is an input of the program."""

from __future__ import annotations

import copy
import dataclasses
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from patcomp.errors import Problem, UnsupportedError
from patcomp.evaluate.draws import Draws, NotFromNoiseError
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.decomposition.decompose import key_of, traced_by_pytorch
from patcomp.frontend_torch.functional.nested import flattened
from patcomp.frontend_torch.fx.nodes import (
    draws_random_numbers,
    given_arguments,
    operator_name,
    recorded_results,
)
from patcomp.frontend_torch.fx.provenance import Origins, nodes_of
from patcomp.frontend_torch.fx.sizes import known_shape, symbols_in
from patcomp.pytorch import (
    LazyGraphModule,
    asking,
    enable_python_dispatcher,
    free_unbacked_symbols,
    quiet,
    replace_graph_module,
    replace_graph_signature,
    statically_known_true,
    sym_eq,
)

_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
"""Ops that PyTorch decomposes without the dropout between their layers."""


@dataclasses.dataclass(frozen=True)
class _Draw:
    """The replacement of a node that draws random numbers."""

    graph: GraphModule
    """It has a placeholder for each of the node's inputs, then one for each noise."""
    noise: Sequence[tuple[str, torch.Tensor]]
    """The distribution and the recorded value of each noise."""


def with_random_inputs(
    program: ExportedProgram, lowerings: Lowerings
) -> tuple[ExportedProgram, dict[str, str], list[Any]]:
    """Make random numbers the inputs of a program.

    Args:
        program: a program without writes in place, which is not changed.
        lowerings: the registered lowerings; their ops stay whole.

    Returns:
        The program, or a copy that has an input for each draw, after its own inputs; the distributions of these inputs
        by the FX names of their placeholders; conditions on sizes under which the copy is right, as SymPy expressions.

    Raises:
        UnsupportedError: random numbers cannot be inputs: they are drawn in a branch or a loop, their number depends on
            data, or nothing computes them from standard noise. The message lists all such ops.
    """
    nodes = [
        node
        for node in nodes_of(program.graph)
        if draws_random_numbers(node) and lowerings.name_of(node.target) is None
    ]
    if not nodes:
        return program, {}, []
    problems: list[Problem] = []
    found: dict[str, _Draw] = {}
    asked: list[Any] = []
    origins = Origins(program.graph)
    given = symbols_in([node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")])
    known: dict[Any, tuple[_Draw, list[Any]]] = {}
    for node in nodes:
        try:
            if node.graph is not program.graph:
                raise NotFromNoiseError(
                    f"{operator_name(node)} draws random numbers in a branch, a loop or another nested graph, and an "
                    "input needs a fixed number of them"
                )
            if operator_name(node).partition(".")[2].partition(".")[0] in _RECURRENT:
                raise NotFromNoiseError("dropout between recurrent layers cannot be computed from inputs")
            if given_arguments(node).get("generator") is not None:
                raise NotFromNoiseError("the model draws with a generator that it makes itself")
            if (key := key_of(node)) not in known:
                known[key] = _draw(node, given)
            found[node.name], conditions = known[key]
            asked += conditions
        except NotFromNoiseError as reason:
            problems.append(
                origins[node].problem(
                    operator_name(node), str(reason), "draw the numbers outside of the model, and make them an input"
                )
            )
    if problems:
        raise UnsupportedError("random numbers cannot become inputs:", problems)
    graph = flattened(program.graph)
    renamed: dict[str, str] = {}
    inputs: dict[str, str] = {}
    for node in list(graph.nodes):
        if node.name in found:
            _replace(node, found[node.name], inputs, renamed)
    signature = program.graph_signature
    outputs = [
        dataclasses.replace(spec, arg=dataclasses.replace(spec.arg, name=renamed[spec.arg.name]))
        if getattr(spec.arg, "name", None) in renamed
        else spec
        for spec in signature.output_specs
    ]
    added = [InputSpec(InputKind.USER_INPUT, TensorArgument(name), None) for name in inputs]
    changed = copy.copy(program)
    replace_graph_module(changed, LazyGraphModule(program.graph_module, graph))
    replace_graph_signature(changed, ExportGraphSignature([*signature.input_specs, *added], outputs))
    return changed, inputs, asked


def _draw(node: Node, given: set[sympy.Symbol]) -> tuple[_Draw, list[Any]]:
    """The computation of a node from noise, and the conditions on sizes that PyTorch asked about.

    Args:
        given: the symbols in the sizes of the program's inputs.

    Raises:
        NotFromNoiseError: there is no such computation.
    """
    noise: list[tuple[str, torch.Tensor]] = []
    sources = node.all_input_nodes
    results = recorded_results(node)
    mode, device = results[0].fake_mode, results[0].device

    def called(tensors: Sequence[Any], source: Callable[..., torch.Tensor]) -> Any:
        values = dict(zip(sources, tensors, strict=True))
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        with Draws(source):
            return node.target(*args, **kwargs)  # type: ignore[operator]

    def collected(distribution: str, shape: Sequence[Any], like: torch.dtype) -> torch.Tensor:
        made = torch.empty(tuple(shape), dtype=like, device=device)
        noise.append((distribution, made))
        return made

    def from_inputs(*tensors: Any) -> Any:
        rest = iter(tensors[len(sources) :])
        return called(tensors[: len(sources)], lambda distribution, shape, like: next(rest))

    try:
        with mode:
            samples = [_fresh(source.meta["val"]) for source in sources]
        with quiet():
            with mode, torch.no_grad(), asking(mode.shape_env), enable_python_dispatcher():
                called(samples, collected)  # which noise it takes
            values = [value for _, value in noise]
            for value in values:
                _check_size(value, given)
            graph, asked = traced_by_pytorch(from_inputs, [*samples, *values], {}, mode)
    except NotFromNoiseError:
        raise
    except Exception as error:  # PyTorch's own functions raise errors of any class
        reason = str(error).partition("\n")[0]
        raise NotFromNoiseError(f"decomposing {operator_name(node)} fails: {reason}") from error
    if not noise:
        raise NotFromNoiseError(f"PyTorch decomposes {operator_name(node)} without its random numbers")
    _check_results(node, graph)
    return _Draw(graph, noise), asked


def _fresh(value: Any) -> Any:
    """A fake tensor in memory of its own: PyTorch asks about the size of the memory that a view is in."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def _check_size(value: torch.Tensor, given: set[sympy.Symbol]) -> None:
    """Check that the shape of noise follows from the shapes of the inputs, so that the noise can be an input with named
    dimensions.

    Raises:
        NotFromNoiseError: it does not.
    """
    for size in known_shape(value):
        if not isinstance(size, torch.SymInt):
            continue
        expression = size.node.expr
        symbols = expression.free_symbols
        if free_unbacked_symbols(size) or not symbols <= given:
            raise NotFromNoiseError("the number of random numbers depends on data, or on a size that no input has")
        if not expression.is_polynomial(*symbols):
            raise NotFromNoiseError(
                f"the number of random numbers is {expression}, which cannot be a dimension of an input; export with a "
                "dimension whose size is a multiple, such as 8 * torch.export.Dim('n')"
            )


def _check_results(node: Node, graph: GraphModule) -> None:
    """Check that a computation has the results that export recorded.

    Raises:
        NotFromNoiseError: it does not.
    """
    made: Any = graph.graph.output_node().args[0]
    made = list(made) if isinstance(made, list | tuple) else [made]
    if graph.graph.find_nodes(op="get_attr"):
        raise NotFromNoiseError(f"decomposing {operator_name(node)} makes constants")
    for was, now in zip(recorded_results(node), made, strict=True):
        value = now.meta["val"]
        if was.dtype != value.dtype or not statically_known_true(sym_eq(was.shape, value.shape)):
            raise NotFromNoiseError(
                f"export recorded a result of {was.dtype} and shape {tuple(was.shape)}, and the random numbers have "
                f"{value.dtype} and shape {tuple(value.shape)}"
            )


def _replace(node: Node, draw: _Draw, inputs: dict[str, str], renamed: dict[str, str]) -> None:
    """Compute a node from new inputs of its graph.

    Args:
        node: a node of the graph to change.
        draw: the computation.
        inputs: the distributions of the new inputs; extended.
        renamed: the new names of results; extended.
    """
    graph: Graph = node.graph
    meta = {key: value for key, value in node.meta.items() if key not in ("val", "tensor_meta")}
    placeholders = graph.find_nodes(op="placeholder")
    made: list[Node] = []
    with graph.inserting_before(placeholders[-1].next if placeholders else next(iter(graph.nodes))):
        for distribution, value in draw.noise:
            made.append(graph.placeholder(re.sub("_+", "_", f"{node.name}_noise")))
            made[-1].meta = {"val": value}
            inputs[made[-1].name] = distribution
    taken = iter((*node.all_input_nodes, *made))
    copied: dict[Node, Node] = {}
    computed: set[Node] = set()
    with graph.inserting_before(node):
        for inner in draw.graph.graph.nodes:
            if inner.op == "placeholder":
                copied[inner] = next(taken)
            elif inner.op != "output":
                copied[inner] = graph.node_copy(inner, copied.__getitem__)
                copied[inner].meta = meta | {"val": inner.meta["val"]}
                computed.add(copied[inner])
    results = map_arg(draw.graph.graph.output_node().args[0], copied.__getitem__)
    for old, new in list(_pairs(node, results)):
        old.replace_all_uses_with(new)
        if old is not node:
            graph.erase_node(old)
        if new in computed:
            new.name = old.name
        else:
            renamed[old.name] = new.name
    graph.erase_node(node)


def _pairs(node: Node, results: Any) -> Iterator[tuple[Node, Node]]:
    """The nodes of a node's results, and their replacements."""
    if not isinstance(results, list | tuple):
        yield node, results
        return
    for user in list(node.users):
        assert user.target is operator.getitem
        yield user, results[user.args[1]]  # type: ignore[index]
