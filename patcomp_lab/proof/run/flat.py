"""An entry point as one list of ops: regions and calls by their bodies, states by their contents.

Two stages of a conversion are compared in this form. A region of a composite, a `coreai.invoke` of its graph and the
ops themselves are the same list; a state is an input with the old content and an output with the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from patcomp.ir.locations import describe
from patcomp.ir.module import IRModule, callee, graph_name, names_of
from patcomp.ir.region import RegionOp
from patcomp.ir.types import HandleType, TensorType
from patcomp.ir.xdsl import Attribute, Block, Operation, SSAValue

Contents = dict[int, int]
"""The content of each state, by the number of its handle."""


class NotComparedError(Exception):
    """A program is not in a form that can be compared; the text says why."""


@dataclass(eq=False)
class Node:
    """An op that computes.

    Attributes:
        op: the op.
        operands: the numbers of the values that it reads: its operands, then those that its regions read from outside.
        read: the same values as the op has them.
        results: the numbers of its results.
        order: its place in the list.
    """

    op: Operation
    operands: tuple[int, ...]
    read: tuple[SSAValue, ...]
    results: tuple[int, ...]
    order: int


@dataclass
class Flat:
    """An entry point after a stage.

    Attributes:
        module, entry: the program and the name of the entry point.
        nodes: the ops in order.
        types: the type of each value, by its number.
        maker: the op of each value that is no input.
        inputs, outputs: values by their run-time name. The content of a state is an input and an output.
        names: the names of values; those inside regions and called graphs have none.
        named: the values of a name.
        disorder: why the accesses of a state have no defined order; empty if they have one.
    """

    module: IRModule
    entry: str
    nodes: list[Node] = field(default_factory=list)
    types: list[Attribute] = field(default_factory=list)
    maker: dict[int, Node] = field(default_factory=dict)
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    named: dict[str, list[int]] = field(default_factory=dict)
    disorder: str = ""

    def value(self, type_: Attribute) -> int:
        """The number of a new value."""
        self.types.append(type_)
        return len(self.types) - 1


def flat(module: IRModule, entry: str) -> Flat:
    """An entry point as a list of ops.

    Raises:
        NotComparedError: a branch or a loop accesses a state, or the module has no such entry point.
    """
    if entry not in map(graph_name, module.graphs):
        raise NotComparedError(f"the entry point {entry!r} is gone; prove the program before its sizes are fixed")
    return _Flattening(Flat(module, entry)).done()


class _Flattening:
    def __init__(self, made: Flat):
        self.made = made
        self.now: Contents = {}
        """The contents in program order."""
        self.after: dict[int, Contents] = {}
        """The contents after each token, by the token's number. An access follows the accesses that made its token."""

    def done(self) -> Flat:
        made, graph = self.made, self.made.module.graph(self.made.entry)
        block = graph.regions[0].block
        arguments: list[int] = []
        handles: dict[str, int] = {}
        for index, (argument, name) in enumerate(zip(block.args, names_of(graph, "arg_attrs"), strict=True)):
            name = name or str(index)
            is_handle = isinstance(argument.type, HandleType)
            content = made.value(argument.type.tensor_type if is_handle else argument.type)  # type: ignore[attr-defined]
            made.inputs[name] = content
            self._name(content, name)
            if is_handle:
                handle = made.value(argument.type)
                handles[name] = handle
                self.now[handle] = content
            else:
                self._name(content, argument.name_hint)
            arguments.append(handle if is_handle else content)
        self.initial = dict(self.now)
        results = self.block(block, arguments, {}, is_named=True)
        for index, (result, name) in enumerate(zip(results, names_of(graph, "res_attrs"), strict=True)):
            if isinstance(made.types[result], TensorType):
                made.outputs[name or str(index)] = result
        final = self._ordered(results)
        for name, handle in handles.items():
            made.outputs[name] = final[handle]
            if final[handle] != self.now[handle]:
                self._disorder(f"the tokens of the outputs leave out a write of the state {name!r}")
        return made

    def _ordered(self, tokens: Sequence[int]) -> Contents:
        """The contents after some tokens: of each state, the one that is not the initial one."""
        found = dict(self.initial)
        for token in tokens:
            contents = self.after.get(token) or self.initial
            found.update((handle, content) for handle, content in contents.items() if content != self.initial[handle])
        return found

    def _name(self, value: int, name: str | None) -> None:
        if name is None:
            return
        self.made.names.setdefault(value, name)
        known = self.made.named.setdefault(name, [])
        if value not in known:
            known.append(value)

    def _disorder(self, reason: str) -> None:
        self.made.disorder = self.made.disorder or reason

    def block(self, block: Block, arguments: Sequence[int], outer: dict[SSAValue, int], *, is_named: bool) -> list[int]:
        values = dict(outer)
        values.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            operands = [values[operand] for operand in op.operands]
            if op is block.last_op:
                return operands
            results = self.op(op, operands, values)
            for result, number in zip(op.results, results, strict=True):
                values[result] = number
                if is_named and isinstance(result.type, TensorType):
                    self._name(number, result.name_hint)
        raise NotComparedError("a block has no terminator")

    def op(self, op: Operation, operands: list[int], values: dict[SSAValue, int]) -> Sequence[int]:
        if op.name in ("coreai.create_token", "coreai.join_token", "coreai.read_handle", "coreai.write_handle"):
            return self.access(op, operands)
        if op.name == "coreai.invoke":
            return self.block(self.made.module.graph(callee(op)).regions[0].block, operands, {}, is_named=False)
        if isinstance(op, RegionOp):
            if op.graph is None:
                body = op.body.block
            else:
                body = self.made.module.graph(op.graph.string_value()).regions[0].block
            return self.block(body, operands, {}, is_named=False)
        read, numbers = list(op.operands), list(operands)
        for value in _read_from_outside(op):
            read.append(value)
            numbers.append(values[value])
        if any(isinstance(self.made.types[number], HandleType) for number in numbers):
            raise NotComparedError(f"{op.name} accesses a state ({describe(op)})")
        results = tuple(self.made.value(result.type) for result in op.results)
        node = Node(op, tuple(numbers), tuple(read), results, len(self.made.nodes))
        self.made.nodes.append(node)
        self.made.maker.update(dict.fromkeys(results, node))
        return results

    def access(self, op: Operation, operands: list[int]) -> Sequence[int]:
        """Read or write a state where its token says, which must be where the program does."""
        token = self.made.value(op.results[-1].type)
        if op.name in ("coreai.create_token", "coreai.join_token"):
            self.after[token] = self._ordered(operands)
            return [token]
        handle, contents = operands[0], self.after[operands[-1]]
        if contents[handle] != self.now[handle]:
            self._disorder(f"{op.name} takes a token from before the last write of its state ({describe(op)})")
        if op.name == "coreai.read_handle":
            self.after[token] = contents
            return [contents[handle], token]
        self.after[token] = {**contents, handle: operands[1]}
        self.now[handle] = operands[1]
        return [token]


def _read_from_outside(op: Operation) -> list[SSAValue]:
    """The values that the regions of an op read from outside, each once."""
    inside = {
        value
        for inner in op.walk()
        for value in (*inner.results, *(a for region in inner.regions for block in region.blocks for a in block.args))
    }
    found = {
        operand: None for inner in op.walk() if inner is not op for operand in inner.operands if operand not in inside
    }
    return list(found)


def constant_of(flat: Flat, value: int) -> Attribute | None:
    """The attribute of a value that is a constant; None for others."""
    node = flat.maker.get(value)
    return node.op.properties["value"] if node is not None and node.op.name == "coreai.constant" else None
