"""Graphs of a program as ONNX nodes and functions: calls, states, branches and loops; `rows` has all other ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from patcomp.errors import Problem
from patcomp.families import modules_in
from patcomp.ir import Port, ProgramBody, ProgramGraph, ProgramOp, Value
from patcomp.onnx.emission.nodes import EMISSION_ROWS, ONNX_TYPES, EmittedOp, FreshNames, NodeScope, NotInOnnxError

DOMAIN = "patcomp"
"""The domain of the functions of a model: its composites, and other graphs that are called."""
WRITTEN_OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]


@dataclass(eq=False)
class HeldState:
    """A buffer: its name in the model for what it holds now."""

    now: str
    scope: NodeScope
    """Where it may be written."""


Held = str | HeldState | None
"""What stands for a value of the program: a name, a buffer, or nothing for a token."""


@dataclass
class Emitter:
    """Writes the graphs of one program."""

    graphs: Mapping[str, ProgramGraph]
    names: FreshNames = field(default_factory=FreshNames)
    functions: dict[str, onnx.FunctionProto] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    held: dict[Value, Held] = field(default_factory=dict)
    constants: dict[Value, np.ndarray] = field(default_factory=dict)
    watch: Callable[[ProgramOp, Sequence[Held]], object] = lambda op, results: None
    """Called with each op outside functions, and what stands for its results."""
    inline: bool = False
    """Whether called graphs are part of the graph around them, and not functions."""

    def __post_init__(self) -> None:
        modules_in("patcomp.onnx.emission.rows")  # each adds its rows

    def body(self, body: ProgramBody, given: Sequence[Held], scope: NodeScope) -> list[Held]:
        """Write the ops of a body; return what stands for its results."""
        self.held.update(zip(body.arguments, given, strict=True))
        for op in body.ops:
            scope.place = op.place if op.origins else ""
            try:
                results = self._op(op, scope)
            except NotInOnnxError as error:
                place = next(iter(op.origins), None)
                name, why = op.name, f"ONNX does not have it: {error}"
                self.problems.append(place.problem(name, why) if place else Problem(why, name))
                results = [self.names.fresh("refused") for _ in op.results]
            self.held.update(zip(op.results, results, strict=True))
            self.watch(op, results)
        return [self.held[value] for value in body.results]

    def _op(self, op: ProgramOp, scope: NodeScope) -> Sequence[Held]:
        special = _SPECIAL.get(op.name)
        if special is not None:
            return special(self, op, scope)
        row = EMISSION_ROWS.get(op.name)
        if row is None:
            raise NotInOnnxError(f"there is no row for {op.name}")
        if odd := {value.dtype for value in (*op.operands, *op.results)} - ONNX_TYPES.keys():
            raise NotInOnnxError(f"elements of type {', '.join(sorted(odd))}")
        made = row(EmittedOp(op, [self._name(value) for value in op.operands], scope, self.constants))
        return [made] if isinstance(made, str) else made

    def _name(self, value: Value) -> str:
        name = self.held[value]
        assert isinstance(name, str)
        return name

    def _constant(self, op: ProgramOp, scope: NodeScope) -> Sequence[Held]:
        (result,), values = op.results, op.constant
        assert values is not None
        if result.dtype not in ONNX_TYPES:
            raise NotInOnnxError(f"a constant of {result.dtype}")
        self.constants[result] = values
        return [scope.constant(values, result.dtype, op.weight or result.name)]

    # ---- calls ------------------------------------------------------------------------------------

    def _invoke(self, op: ProgramOp, scope: NodeScope) -> Sequence[Held]:
        assert op.callee is not None
        graph = self.graphs[op.callee]
        given = [self.held[value] for value in op.operands]
        if self.inline or not self._is_function(graph):
            watch, self.watch = self.watch, lambda op, results: None
            try:
                return self.body(graph, given, scope)
            finally:
                self.watch = watch
        if graph.name not in self.functions:
            self.functions[graph.name] = self._function(graph)
        names = [name for name in given if isinstance(name, str)]
        return scope.several(graph.name, names, [value.name for value in op.results], DOMAIN)

    def _is_function(self, graph: ProgramGraph) -> bool:
        """Whether a graph takes and gives tensors alone, and has no weights of its own, which would be copied."""
        tensors = all(port.type is not None and not port.is_state for port in (*graph.inputs, *graph.outputs))
        return tensors and not any(op.weight for op in graph.ops)

    def _function(self, graph: ProgramGraph) -> onnx.FunctionProto:
        scope = NodeScope(FreshNames(), None)
        inputs = [scope.names.fresh(value.name) for value in graph.arguments]
        outer, self.names, self.watch, watch = self.names, scope.names, lambda op, results: None, self.watch
        results = self.body(graph, inputs, scope)
        self.names, self.watch = outer, watch
        outputs = [scope.node("Identity", str(result), wish="output") for result in results]
        function = helper.make_function(DOMAIN, graph.name, inputs, outputs, scope.nodes, WRITTEN_OPSETS)
        if (composite := graph.composite) is not None:
            function.doc_string = f"composite {composite.name}"
            for key, value in composite.attributes.items():
                entry = function.metadata_props.add()
                entry.key, entry.value = key, str(value)
        return function

    # ---- states -----------------------------------------------------------------------------------

    def _token(self, op: ProgramOp, scope: NodeScope) -> Sequence[Held]:
        return [None]  # nodes are written in the order of the program

    def _read(self, op: ProgramOp, scope: NodeScope) -> Sequence[Held]:
        state = self.held[op.operands[0]]
        assert isinstance(state, HeldState)
        return [state.now, None]

    def _write(self, op: ProgramOp, scope: NodeScope) -> Sequence[Held]:
        state = self.held[op.operands[0]]
        assert isinstance(state, HeldState)
        if state.scope is not scope:
            raise NotInOnnxError("a state is written inside a branch or a loop")
        state.now = self._name(op.operands[1])
        return [None]

    # ---- branches and loops -----------------------------------------------------------------------

    def _inner(
        self, scope: NodeScope, inputs: Sequence[tuple[str, Value | str]]
    ) -> tuple[NodeScope, list[onnx.ValueInfoProto]]:
        """A scope inside another one, and its inputs: by name, the value whose type each has, or an element type."""
        return NodeScope(self.names, None, place=scope.place), [
            self.info(name, value)
            if isinstance(value, Value)
            else helper.make_tensor_value_info(name, ONNX_TYPES[value], [])
            for name, value in inputs
        ]

    def info(
        self, name: str, value: Value | Port, shape: Sequence[int | str | None] | None = None
    ) -> onnx.ValueInfoProto:
        """The type of a value."""
        type_ = value.type
        assert type_ is not None
        if type_.dtype not in ONNX_TYPES:
            problem = Problem(f"ONNX does not have elements of type {type_.dtype} (%{value.name})")
            self.problems += [problem] * (problem not in self.problems)
            return onnx.ValueInfoProto(name=name)
        return helper.make_tensor_value_info(
            name, ONNX_TYPES[type_.dtype], list(type_.shape if shape is None else shape)
        )

    def _graph(
        self, name: str, scope: NodeScope, inputs: list[onnx.ValueInfoProto], results: Sequence[tuple[Held, Value]]
    ) -> onnx.GraphProto:
        """A graph of an inner scope; an output must be the node's own, so it is copied."""
        outputs = [self.info(scope.node("Identity", str(held), wish="output"), value) for held, value in results]
        return helper.make_graph(scope.nodes, name, inputs, outputs)

    def _if(self, op: ProgramOp, scope: NodeScope) -> Sequence[Held]:
        branches = []
        for body, name in zip(op.bodies, ("then", "else"), strict=True):
            inner, _ = self._inner(scope, [])
            results = self.body(body, [], inner)
            branches.append(self._graph(name, inner, [], list(zip(results, op.results, strict=True))))
        wishes = [value.name for value in op.results]
        condition = self._name(op.operands[0])
        return scope.several("If", [condition], wishes, then_branch=branches[0], else_branch=branches[1])

    def _while(self, op: ProgramOp, scope: NodeScope) -> Sequence[Held]:
        """ONNX asks before each turn whether to go on: the condition is computed before the loop, and after each turn.

        The values that a loop carries are those that its condition hands on.
        """
        condition, body = op.bodies
        first, *carried = self.body(condition, [self.held[value] for value in op.operands], scope)
        names = [self.names.fresh(value.name) for value in op.results]
        turn, go_on = self.names.fresh("turn"), self.names.fresh("go_on")
        inner, inputs = self._inner(scope, [(turn, "si64"), (go_on, "i1"), *zip(names, op.results, strict=True)])
        last, *handed = self.body(condition, self.body(body, names, inner), inner)
        again = inner.node("Identity", str(last), wish="again")
        outputs = [helper.make_tensor_value_info(again, ONNX_TYPES["i1"], [])]
        graph = self._graph("turn", inner, inputs, list(zip(handed, op.results, strict=True)))
        graph.output.insert(0, outputs[0])
        wishes = [value.name for value in op.results]
        return scope.several("Loop", ["", str(first), *map(str, carried)], wishes, body=graph)


_SPECIAL: dict[str, Callable[[Emitter, ProgramOp, NodeScope], Sequence[Held]]] = {
    "coreai.constant": Emitter._constant,
    "coreai.invoke": Emitter._invoke,
    "coreai.create_token": Emitter._token,
    "coreai.join_token": Emitter._token,
    "coreai.read_handle": Emitter._read,
    "coreai.write_handle": Emitter._write,
    "coreai.if": Emitter._if,
    "coreai.while": Emitter._while,
}
"""The ops that are more than nodes."""
