"""`partition`: cut a program into the largest parts that convert, and the rest, which stays in PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from graphlib import TopologicalSorter
from typing import Literal

from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support

from patcomp.errors import Problem, StageError, UnsupportedError, VerifyError
from patcomp.frontend_torch.converter import TorchConverter
from patcomp.frontend_torch.functional.programs import functional
from patcomp.frontend_torch.way_in import ProgramTypeError
from patcomp.partitions.extraction import ModelPart, extracted, with_nested_graphs
from patcomp.partitions.graphs import cuttable, products_of, recorded_elements
from patcomp.partitions.left import Kept, Left
from patcomp.partitions.partitioned import Partitioned
from patcomp.partitions.report import report_of
from patcomp.program.program import AIProgram
from patcomp.pytorch import default_settings
from patcomp.targets import Target

TargetChoice = Literal["cpu", "gpu", "neural_engine"] | Target | None
"""A device, as for `TorchConverter.to_coreai`."""

_REFUSED = (UnsupportedError, StageError, VerifyError)


def partition(
    exported: ExportedProgram,
    *,
    do_not_convert: Iterable[Kept] = (),
    least_intensity: float = 2.0,
    converter: TorchConverter | None = None,
    target: TargetChoice = None,
) -> Partitioned:
    """Cut a program into the largest parts that convert, and the rest, which stays in PyTorch.

        partitioned = patcomp.partition(torch.export.export(model, (x,)))
        print(partitioned.report)      # what stays out and why, what crosses
        partitioned(x)                 # the parts on the evaluator, the rest in PyTorch
        partitioned.program            # the parts: an entry point each, with the weights shared

    The converter decides what converts: ops without a rule stay in PyTorch, and so do ops that a rule refuses when the
    parts are converted; the parts are then cut again without them. States stay with PyTorch: a buffer that the model
    writes to crosses into the parts that read it, and its new content crosses out of the part that computes it.

    A part costs more than it gives if it computes little for what crosses. It becomes a part only if its intensity is
    at least `least_intensity`: what it computes (multiply-adds of products, and elements of the results of other ops)
    divided by the elements that cross into and out of it. All parts that can be one part are one, also those that have
    nothing to do with each other. What a call itself takes, 0.7 ms on the Linux runtime, does not count, so that a
    small model is cut as a large one is.

    Args:
        exported: the program, decomposed or not; neither it nor its weights are changed or copied.
        do_not_convert: what stays in PyTorch: paths or patterns of paths of modules (`"head"`, `"layers.*.router"`),
            names of FX nodes, module classes, and ops (`torch.ops.aten.topk`, `"aten.topk"`, `"mylib::nms"`).
        least_intensity: the least that a part computes for each element that crosses; 0 makes a part of every op that
            converts. Sizes that only data decide count as 1, other dynamic sizes as in the example.
        converter: the converter whose rules, lowerings and choices convert the parts; what it has staged stays out.
        target: the device that the parts are made for, as for `TorchConverter.to_coreai`.

    Raises:
        ProgramTypeError: the argument is not an `ExportedProgram`.
        UnknownNameError: no op of the program has a name in `do_not_convert`.
        UnsupportedError: writes in place cannot be turned into values.

    Warns:
        ConversionWarning: as `TorchConverter.to_coreai`, about the parts.
    """
    if not isinstance(exported, ExportedProgram):
        raise ProgramTypeError(
            f"partition takes a torch.export.ExportedProgram, got {type(exported).__name__}; export the module with "
            "torch.export.export(model, args)"
        )
    given = TorchConverter() if converter is None else converter
    with default_settings():
        program, _ = functional(exported, given.lowerings)
    return partition_functional(exported, program, do_not_convert, least_intensity, given, target)


def partition_functional(
    exported: ExportedProgram,
    program: ExportedProgram,
    do_not_convert: Iterable[Kept],
    least_intensity: float,
    converter: TorchConverter | None,
    target: TargetChoice,
) -> Partitioned:
    """`partition`, of a program without writes in place.

    Args:
        exported: the program of the user.
        program: the same without writes in place; it is not changed.
    """
    converter = copy(converter) if converter is not None else TorchConverter()
    converter.clear()
    with default_settings():
        program = cuttable(program)
        left = Left(program)
        left.keep_out([do_not_convert] if isinstance(do_not_convert, str) else do_not_convert)
        left.ask_tables(converter)
        costs = {node: products_of(node) for node in left.ops}
        while True:
            parts, small = _cut(program, left, costs, least_intensity)
            made, issued = _converted(parts, converter, target, left)
            if made is not None or not parts:
                break
    for each in issued:
        warnings.warn(each.message, each.category, stacklevel=3)
    return Partitioned(exported, program, tuple(parts), made, report_of(left, parts, small, costs))


def _cut(
    program: ExportedProgram, left: Left, costs: Mapping[Node, int], least_intensity: float
) -> tuple[list[ModelPart], dict[Node, Problem]]:
    """The parts of a program, and why the nodes of parts that compute too little stay in PyTorch.

    Args:
        program, left: the program, and what does not convert.
        costs: the multiply-adds of each op.
        least_intensity: as for `partition`.
    """
    left.keep_layouts()
    support = create_op_support(lambda _, node: left.may_convert(node))
    cutter = CapabilityBasedPartitioner(program.graph_module, support, allows_single_node_partition=True)
    proposed = _in_order(program.graph, [list(each.nodes) for each in cutter.propose_partitions()])
    parts, small = list[ModelPart](), dict[Node, Problem]()
    for nodes in proposed:
        part = extracted(program, with_nested_graphs(nodes), f"part_{len(parts)}")
        crossing = sum(recorded_elements(node.meta["val"]) for node in (*part.inputs, *part.outputs))
        computed = sum(costs[node] or recorded_elements(node.meta.get("val")) for node in nodes if node in costs)
        if part.outputs and (computed >= least_intensity * crossing or not (left.reasons or len(proposed) > 1)):
            parts.append(part)
            continue
        reason = Problem(
            f"too little work in a part of {len(nodes)} nodes: it computes {computed:,} for {crossing:,} elements that "
            "cross",
            advice=f"least_intensity={computed / crossing if crossing else 0:.2g} makes it a part",
        )
        small |= dict.fromkeys(nodes, reason)
    return parts, small


def _in_order(graph: Graph, groups: Sequence[Sequence[Node]]) -> list[list[Node]]:
    """Groups of nodes in an order in which they can run, and the nodes of each in the order of the graph."""
    index = {node: number for number, group in enumerate(groups) for node in group}
    members: dict[Node | int, list[Node]] = {}
    before: dict[Node | int, dict[Node | int, None]] = {}
    for node in graph.nodes:
        own: Node | int = index.get(node, node)
        members.setdefault(own, []).append(node)
        sources = (index.get(source, source) for source in node.all_input_nodes)
        before.setdefault(own, {}).update(dict.fromkeys(source for source in sources if source != own))
    return [members[each] for each in TopologicalSorter(before).static_order() if isinstance(each, int)]


def _converted(
    parts: Sequence[ModelPart], converter: TorchConverter, target: TargetChoice, left: Left
) -> tuple[AIProgram | None, list[warnings.WarningMessage]]:
    """The parts as a program with an entry point each, and what its conversion warns of; no program if there are no
    parts, or if ops are refused, which `left` has from then on."""
    staged, refused = copy(converter), not parts
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        for part in parts:
            try:
                staged.add_exported_program(part.exported, entrypoint_name=part.name)
            except _REFUSED as error:
                left.refuse(part.nodes, error)
                refused = True
        if refused:
            return None, []
        try:
            return staged.to_coreai(target=target), issued
        except _REFUSED as error:
            nodes = [node for part in parts for node in part.nodes]
            if not left.add_problems(getattr(error, "problems", ()), nodes):
                _refuse_each(parts, staged, target, left, error)
    return None, []


def _refuse_each(
    parts: Sequence[ModelPart], staged: TorchConverter, target: TargetChoice, left: Left, error: Exception
) -> None:
    """Leave the parts that the converter refuses without a word about their nodes.

    Raises:
        Exception: the error of all parts together, if it takes each of them alone.
    """
    refused = False
    for part in parts:
        try:
            staged.to_coreai(entrypoints=[part.name], target=target)
        except _REFUSED as own:
            left.refuse(part.nodes, own)
            refused = True
    if not refused:
        raise error
