"""`patcomp.rewrite`: a user's rules on an exported program, which stays one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument
from torch.fx import Node

from patcomp.errors import Problem, RuleError, UnsupportedError
from patcomp.exported_programs.going_back import with_graph
from patcomp.frontend_torch.completeness import check_complete, preparing
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.functional.programs import functional
from patcomp.frontend_torch.fx.nodes import operator_name
from patcomp.frontend_torch.fx.provenance import Origins, nodes_of
from patcomp.frontend_torch.importing.importer import import_program
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.frontend_torch.interface.names import Names
from patcomp.frontend_torch.interface.signature import Signature
from patcomp.ir import aten
from patcomp.ir.aten import create
from patcomp.ir.module import IRModule
from patcomp.ir.value import replace_op
from patcomp.patterns import Context, Rule, RuleSet, Stage, run
from patcomp.pytorch import default_settings
from patcomp.questions.ops import why_not_in
from patcomp.rewrites.normalize import normalize
from patcomp.rewrites.options import Options
from patterns_catalog import rules_of_stage

ENTRY = "main"
DETACH, STAND_IN = "aten.detach", "aten.detach_copy"
"""Normalize drops `detach`, which changes no number. It ends gradients, so another op stands for it until then."""
SWITCH = torch.ops.higher_order.wrap_with_set_grad_enabled
CHECKS = {torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg}


def rewrite(exported: ExportedProgram, rules: Rule | Iterable[Rule]) -> ExportedProgram:
    """The exported program after rules; the given one is not changed, and the two share their weights.

        @rule(stage="normalize", into=aten_namespace, example={"x": "2x3xf32"})
        def silu(a, c, x):
            "x * sigmoid(x) -> silu(x)"
            return Rewrite(x * a.sigmoid(x), to=c.silu(x))

        faster = patcomp.rewrite(exported, silu)

    The program is imported, with its weights as arguments, and the rules of patcomp's stage normalize give equivalent
    ops one spelling. Then the rules rewrite it until none applies, and each op becomes a node again: with the metadata
    of the node that it comes from, and the values that PyTorch computes for its fake inputs. Names, arguments, results,
    states, the ranges of dynamic sizes and gradients are those of the given program.

    Args:
        exported: the program. Writes in place become values first, as `run_decompositions` does it.
        rules: rules that build ops of PyTorch: `stage="normalize", into=aten_namespace`. Custom ops are named
            `"my_library.op"`.

    Raises:
        RuleError: a rule builds ops of Core AI, or an invalid result.
        UnsupportedError: something has no way back to PyTorch (branches, loops, sizes that are read from tensors,
            checks of values); the message lists all.
    """
    wanted = rules_to_run(rules)
    with default_settings(), preparing(exported):
        program, module = imported(exported)
        run(module.graph(ENTRY), wanted, Context(module.blobs, aten))
        return with_graph(program, module.graph(ENTRY), module)


def why_not_rewritten(exported: ExportedProgram, rule: Rule) -> str:
    """Where a rule comes closest to a match in an exported program, and what it lacks there.

    Raises:
        RuleError, UnsupportedError: as `rewrite`.
    """
    rules_to_run(rule)
    with default_settings(), preparing(exported):
        return why_not_in(rule, imported(exported)[1].op, Context(namespace=aten))


def rules_to_run(rules: Rule | Iterable[Rule]) -> RuleSet:
    """Rules, if they build ops of PyTorch."""
    wanted = [rules] if isinstance(rules, Rule) else list(rules)
    for rule in wanted:
        if rule.stage is not Stage.NORMALIZE:
            raise RuleError(
                f"rule {rule.name} ({rule.source}) is of the stage {rule.stage}, which builds ops of Core AI; declare "
                'it with stage="normalize", into=aten_namespace'
            )
    return RuleSet(wanted)


class _AllArguments(Signature):
    """The signature of a graph that takes each tensor and dynamic size as an argument, weights and states too."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.inputs

    def examples(self, program: ExportedProgram) -> dict[str, object]:
        return {}


def imported(exported: ExportedProgram) -> tuple[ExportedProgram, IRModule]:
    """The functional form of a program, and its graph in the IR after the stage normalize."""
    check_complete(exported)
    program, by_pytorch = functional(exported, Lowerings(RuleSet()))
    if lost := list(_lost(exported, decomposed=bool(by_pytorch))):
        raise UnsupportedError("the program cannot be rewritten:", lost)
    signature = _signature(program)
    names = Names(signature.inputs, tuple(f"result_{index}" for index in range(len(signature.outputs))))
    module = IRModule()
    staged = Staged(name=ENTRY, program=program, lowerings=(), signature=signature, names=names)
    import_program(module, staged, Lowerings(RuleSet()))
    for op in module.graph(ENTRY).regions[0].block.ops:
        if op.name == DETACH:
            kept = create(STAND_IN, {"self": op.operands[0]}, [op.results[0].type])
            kept.location = op.location
            op.parent.insert_op_before(kept, op)  # type: ignore[union-attr]
            replace_op(op, list(kept.results))
    normalize(module, rules_of_stage(Stage.NORMALIZE), Options(strict=True))
    return program, module


def _lost(exported: ExportedProgram, *, decomposed: bool) -> Iterator[Problem]:
    """What a program would lose: checks of values, and places where gradients end.

    Args:
        exported: the program.
        decomposed: whether PyTorch had to make it functional, which drops `detach`.
    """
    places = Origins(exported.graph)
    for node in nodes_of(exported.graph):
        name = operator_name(node)
        if node.target in CHECKS:
            yield places[node].problem(name, "a check of values would be lost")
        elif node.target is torch.ops.aten.detach.default and decomposed:
            yield places[node].problem(name, "PyTorch's run_decompositions would let gradients pass through it")
        elif node.target is SWITCH and node.args[0] is False and _reads_parameter(node, exported):
            advice = "use detach() in the model, which a program keeps, in place of torch.no_grad()"
            yield places[node].problem(name, "gradients of parameters would pass through a region without them", advice)


def _reads_parameter(node: Node, exported: ExportedProgram) -> bool:
    seen, waiting = set[Node](), [node]
    while waiting:
        if (each := waiting.pop()) not in seen:
            seen.add(each)
            waiting += each.all_input_nodes
    return any(each.name in exported.graph_signature.inputs_to_parameters for each in seen)


def _signature(program: ExportedProgram) -> Signature:
    fixed = {
        spec.arg.name: spec.arg.value
        for spec in program.graph_signature.input_specs
        if isinstance(spec.arg, ConstantArgument)
    }
    given = [node for node in program.graph.find_nodes(op="placeholder") if node.name not in fixed]
    inputs = tuple(n.name for n in given if isinstance(n.meta.get("val"), torch.Tensor | torch.SymInt | torch.SymFloat))
    returned = program.graph.output_node().args[0]
    outputs = tuple(node.name for node in returned if isinstance(node, Node))  # type: ignore[union-attr]
    return replace(_AllArguments(), inputs=inputs, outputs=outputs, fixed_inputs=fixed)
