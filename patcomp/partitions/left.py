"""What stays in PyTorch, and why: the ops that the converter refuses, and those that the user keeps out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from patcomp.errors import Problem, UnknownNameError, near_names, reason_of
from patcomp.frontend_torch.converter import TorchConverter
from patcomp.frontend_torch.decomposition.decompose import AS_ABOVE, Decomposer, key_of
from patcomp.frontend_torch.functional.views import is_new
from patcomp.frontend_torch.fx.nodes import is_assertion, operator_name, producer_of, read_by_checks_only
from patcomp.frontend_torch.fx.provenance import Origins, modules_of, nested_graph, nodes_of
from patcomp.partitions.graphs import computes, is_size_of_tensor, sizes_of_inputs
from patcomp.pytorch import OpOverload, OpOverloadPacket, qualified_name

Kept = str | type[nn.Module] | OpOverload | OpOverloadPacket
"""What a user keeps in PyTorch: a path or pattern of paths of modules, the name of an FX node or of an op, a class of
modules, or an op."""


class Left:
    """The nodes of a program that stay in PyTorch, with the reason of each.

    Args:
        program: the program whose graph is cut.
    """

    def __init__(self, program: ExportedProgram):
        self._program, self._graph = program, program.graph
        self.reasons: dict[Node, Problem] = {}
        checks = {node for node in read_by_checks_only(self._graph) if not is_size_of_tensor(node)}
        self.free = {*sizes_of_inputs(self._graph), *checks}
        """The nodes outside of all parts that need no reason. Sizes of the inputs cost nothing, and would tie parts
        together; PyTorch makes the checks of the model."""
        self._origins, self._owners = Origins(self._graph), _owners(self._graph)

    @property
    def ops(self) -> list[Node]:
        """The nodes that are counted and reported."""
        return [node for node in self._graph.nodes if computes(node) and node not in self.free]

    def may_convert(self, node: Node) -> bool:
        """Whether a node may be in a part, as far as is known."""
        if node.op != "call_function" or node in self.free or is_assertion(node):
            return False
        return producer_of(node) not in self.reasons and producer_of(node) not in self.free

    def add(self, node: Node, message: str, advice: str = "") -> None:
        """Leave a node to PyTorch; the first reason stays."""
        self.reasons.setdefault(node, self.at(node, Problem(message, advice=advice)))

    def at(self, node: Node, reason: Problem) -> Problem:
        """A reason with the place of a node."""
        return self._origins[node].problem(operator_name(node), reason.message, reason.advice)

    def keep_out(self, names: Iterable[Kept]) -> None:
        """Leave the nodes that the user names.

        Raises:
            UnknownNameError: no node has one of the names.
        """
        for name in names:
            shown = name if isinstance(name, str) else getattr(name, "__name__", str(name))
            chosen = [node for node in self.ops if _is_named(node, name)]
            for node in chosen:
                self.add(node, f"do_not_convert names {shown!r}")
            if not chosen:
                known = {each for node in self.ops for each in (operator_name(node), *modules_of(node))}
                raise UnknownNameError(
                    f"do_not_convert names {shown!r}, but no op of the program comes from it; modules and ops are "
                    f"{near_names(shown, sorted(known))}"
                )

    def ask_tables(self, converter: TorchConverter) -> None:
        """Leave the ops for which a converter has neither a rule nor a decomposition."""
        _, problems, _ = Decomposer(converter.rules, converter.lowerings).expansions(self._program)
        self.add_problems(problems, self._graph.nodes)

    def keep_layouts(self) -> None:
        """Leave the ops whose memory an op in PyTorch reads: the results of parts have a memory layout of their own."""
        for node in self._graph.nodes:
            reads = operator_name(node).startswith("aten.as_strided") and not self.may_convert(node)
            source = node
            while reads and (source is node or not is_new(source)) and source.all_input_nodes:
                source = producer_of(source.all_input_nodes[0])
                if computes(source):
                    self.add(source, f"%{node.name} reads its memory in PyTorch")

    def add_problems(self, problems: Sequence[Problem], tried: Collection[Node]) -> bool:
        """Leave the nodes that problems are about, and with each of them the nodes that compute the same.

        Args:
            problems: of a conversion.
            tried: the nodes that were converted. A problem about a value from outside is one of the nodes that read it.

        Returns:
            Whether there are new ones.
        """
        before, tried = len(self.reasons), set(tried)
        said = {problem.op: problem.advice for problem in reversed(problems)}
        for problem in problems:
            if problem.advice == AS_ABOVE:
                problem = replace(problem, advice=said[problem.op])
            for owner in self._owners.get(problem.node, ()):
                for node in [owner] if owner in tried else tried.intersection(owner.users):
                    if computes(producer_of(node)):
                        self._leave_equals(producer_of(node), problem)
        return len(self.reasons) > before

    def refuse(self, tried: Collection[Node], error: Exception) -> None:
        """Leave the nodes of a part that an error of its conversion is about; all of them if it names none."""
        if not self.add_problems(getattr(error, "problems", ()), tried):
            for node in filter(computes, tried):
                self.add(node, f"the converter refuses the part that the op is in: {reason_of(error)}")

    def _leave_equals(self, node: Node, problem: Problem) -> None:
        self.reasons.setdefault(node, problem)
        if (key := _key(node)) is not None:
            for other in self.ops:
                if other.target is node.target and other not in self.reasons and _key(other) == key:
                    self.reasons[other] = self.at(other, problem)


def _owners(graph: Graph) -> dict[str, list[Node]]:
    """The nodes of a graph that a problem is about, by the name of a node in it.

    A node of a branch or of a loop's body stands for the control flow that has it.
    """
    origins, found = Origins(graph), dict[str, list[Node]]()
    for node in graph.nodes:
        inside = nested_graph(node)
        found[node.name] = [node] if inside is None else list(node.users)
        if inside is not None:
            found |= {origins[inner].node: list(node.users) for inner in nodes_of(inside.graph)}
    return found


def _key(node: Node) -> Any:
    """What the conversion of a node depends on; None for control flow, which has graphs."""
    return key_of(node) if isinstance(node.target, OpOverload) else None


def _is_named(node: Node, name: Kept) -> bool:
    """Whether a node comes from a module, or calls an op, that a user named."""
    if isinstance(name, OpOverload):
        return node.target is name
    if isinstance(name, OpOverloadPacket):
        return isinstance(node.target, OpOverload) and node.target.overloadpacket is name
    if isinstance(name, type):
        classes = [kind for _, kind in (node.meta.get("nn_module_stack") or {}).values()]
        return any(kind is name or kind == f"{name.__module__}.{name.__qualname__}" for kind in classes)
    names = {node.name, operator_name(node)}
    if isinstance(node.target, OpOverload):
        packet = qualified_name(node.target.overloadpacket)
        names |= {packet, packet.replace("::", "."), node.target.name()}
    return name.removeprefix("%") in names or any(fnmatchcase(path, name) for path in modules_of(node))
