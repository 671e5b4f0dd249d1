"""From the IR back to an exported program."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument
from torch.fx import GraphModule, Node

from patcomp.errors import Problem, UnsupportedError
from patcomp.exported_programs.making_nodes import NodeMaker, NoWayBackError, holds_tensor
from patcomp.ir.constants import is_constant
from patcomp.ir.locations import problem_at
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Operation, SSAValue
from patcomp.pytorch import memory_of, replace_constants, replace_graph_module, replace_graph_signature


def with_graph(program: ExportedProgram, graph: Operation, module: IRModule) -> ExportedProgram:
    """A program with the graph of the IR in place of its own.

    Args:
        program: the program; its placeholders are the arguments of the graph, and its outputs the results.
        graph: ops of the `aten` dialect, and constants.
        module: has the large constants.

    Raises:
        UnsupportedError: some ops have no way back; the message lists all of them.
    """
    back = _Back(program, module)
    back.run(graph)
    if back.problems:
        raise UnsupportedError("the program cannot become a program of PyTorch again:", back.problems)
    made = copy.copy(program)
    new = GraphModule(torch.nn.Module(), back.graph)
    new.meta.update(program.graph_module.meta)
    replace_graph_module(made, new)
    replace_graph_signature(made, back.signature())
    replace_constants(made, {**program.constants, **back.lifted})
    made.validate()
    return made


@dataclass
class _Back(NodeMaker):
    """The graph of a program, made of ops, and the program's signature for it."""

    problems: list[Problem] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)

    def run(self, ir: Operation) -> None:
        block = ir.regions[0].block
        arguments = iter(block.args)
        names = {argument.name_hint: argument for argument in arguments}
        for node in self.program.graph.find_nodes(op="placeholder"):
            copied = self.graph.placeholder(node.name)
            copied.name, copied.meta = node.name, dict(node.meta)
            if node.name in names:
                self.held[names[node.name]] = copied
        for op in block.ops:
            if op is block.last_op:
                break
            if is_constant(op):
                continue
            try:
                self.op(op)
            except NoWayBackError as error:
                self.problems.append(problem_at(op, str(error)))
                self.held.update((result, None) for result in op.results)
        if not self.problems:
            self._outputs(iter(block.last_op.operands))  # type: ignore[union-attr]

    def _outputs(self, results: Iterator[SSAValue]) -> None:
        """The outputs, each for the one before. An output that was a copy is one again, if its memory is an argument's:
        the program may write to the argument after it."""
        specs = self.program.graph_signature.output_specs
        arguments = {memory_of(n.meta["val"]) for n in self.graph.find_nodes(op="placeholder") if holds_tensor(n)}
        for spec, before in zip(specs, self.program.graph.output_node().args[0], strict=True):  # type: ignore[arg-type]
            if not isinstance(before, Node):
                self.results.append(before)
                continue
            value = next(results)
            if not holds_tensor(before):
                made = self.size(value)
            else:
                made = self.tensor(value) if value in self.held else self.lift(value)
            if before.op != "placeholder" and holds_tensor(made) and memory_of(made.meta["val"]) in arguments:
                made = self.call(torch.ops.aten.clone.default, (made,), {}, before)
            self.results.append(made)
            if not isinstance(made, Node):
                self.problems.append(Problem(f"the output {spec.arg} would become the number {made}", node=before.name))
        self.graph.output(tuple(self.results)).meta = dict(self.program.graph.output_node().meta)

    def signature(self) -> ExportGraphSignature:
        """The signature, with the names of the new outputs and with the new constants."""
        old = self.program.graph_signature
        inputs = list(old.input_specs)
        known = {getattr(spec.arg, "name", None): spec for spec in inputs}
        kept = {node.name: node for node in self.graph.find_nodes(op="placeholder")}
        lifted = {node.name: target for target, node in self.lifted_nodes.items()}
        listed = [
            known[name] if name in known else InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name), lifted[name])
            for name in kept
        ]
        outputs = []
        for spec, result in zip(old.output_specs, self.results, strict=True):
            changed = copy.deepcopy(spec)
            if isinstance(result, Node):
                changed.arg.name = result.name
            outputs.append(changed)
        return ExportGraphSignature(listed, outputs)
