"""The partitioner: which nodes of a program patcomp converts, as parts for ExecuTorch to delegate."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from executorch.backends.apple.coreai.compiler.enumerated_shapes import resolve_input_enumerations
from executorch.backends.apple.coreai.compiler.preprocess import COMPILE_SPEC_KEYS
from executorch.backends.apple.coreai.partition.partitioner import DO_NOT_DELEGATE_TAG
from executorch.backends.apple.coreai.partition.partitioner import CoreAIPartitioner as ExecuTorchsPartitioner
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, PartitionResult
from executorch.exir.backend.utils import tag_constant_data, tag_mutated_buffer
from torch.export import ExportedProgram
from torch.fx import Node

from patcomp import ConversionWarning, get_decomp_table, partition
from patcomp.frontend_torch.fx.nodes import producer_of
from patcomp.partitions.extraction import unwritten_weights
from patcomp.pytorch import OpOverload
from patcomp_executorch.backend import Specs
from patcomp_executorch.edge import aten_program, is_number, values_of

_LOGGER = logging.getLogger("patcomp.executorch")
_WIDE = (torch.int64, torch.float64)


class CoreAIPartitioner(ExecuTorchsPartitioner):
    """Delegates what patcomp converts to Core AI; in the place of ExecuTorch's class of this name.

        to_edge_transform_and_lower(exported, partitioner=[CoreAIPartitioner()], transform_passes=get_default_passes())

    It takes the same arguments: `uses_sidecar`, `min_deployment_version`, `input_enumerations`, `aot_compile_config`,
    `take_over_constant_data` and `take_over_mutable_buffer`. `do_not_delegate(node)` and the passes of
    `executorch.backends.apple.coreai` keep their meaning.

    The parts are those of `patcomp.partition`. Core AI has 32-bit numbers, so a tensor of 64 bits, or a number,
    may be computed within a delegate, and may not cross into or out of it: `get_default_passes` narrows inputs.

    Attributes:
        left_out (dict[str, str]): why nodes were left to ExecuTorch, by the name of the node; of the last program.
    """

    def __init__(self, *, input_enumerations: Sequence[dict[int, Sequence[int]] | None] | None = None, **options: Any):
        super().__init__(input_enumerations=input_enumerations, **options)
        self._enumerations = input_enumerations
        self.left_out: dict[str, str] = {}

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the nodes of each part.

        Raises:
            ValueError: sizes are enumerated that the program does not have.
        """
        spec = self._delegation(exported_program)
        nodes = exported_program.graph.nodes
        tagged = [producer_of(node) for node in nodes if node.meta.get(DO_NOT_DELEGATE_TAG) and node.users]
        left = {node.name: "it is tagged by do_not_delegate" for node in tagged if not is_number(node)}
        weights = unwritten_weights(exported_program) if self.take_over_constant_data else {}
        while True:
            parts, refused = converting_parts(exported_program, left)
            crossing = {node.name: reason for part in parts for node, reason in _crossings(part, weights)}
            if not crossing:
                break
            left |= crossing
        for number, part in enumerate(parts):
            for node in part:
                node.meta["delegation_tag"] = f"tag{number}"
        self.left_out = refused | left
        for name, reason in self.left_out.items():
            _LOGGER.info("%s is left out of the delegates: %s", name, reason)
        if self.take_over_constant_data:
            tag_constant_data(exported_program)
        if self.take_over_mutable_buffer:
            tag_mutated_buffer(exported_program)
        return PartitionResult(exported_program, {f"tag{number}": spec for number in range(len(parts))})

    def _delegation(self, program: ExportedProgram) -> DelegationSpec:
        """The backend with its compile specs, the sizes of this program among them."""
        specs = Specs(self.delegation_spec.compile_specs)
        if sizes := resolve_input_enumerations(program, self._enumerations):
            specs.append(CompileSpec(COMPILE_SPEC_KEYS.INPUT_ENUMERATIONS.value, json.dumps(sizes).encode()))
        return DelegationSpec(self.delegation_spec.backend_id, specs)

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """The ops that ExecuTorch's decompositions leave whole, because patcomp has rules for them."""
        taken = get_decomp_table()
        default = torch.export.default_decompositions()
        return [op for op in default if op not in taken and isinstance(op, OpOverload)], None


def converting_parts(program: ExportedProgram, left: Collection[str]) -> tuple[list[dict[Node, None]], dict[str, str]]:
    """The largest parts of a program that patcomp converts, and why it does not convert the other ops, by their names.

    Args:
        left: the names of ops that are in no part.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)  # the conversion of a delegate issues them
        found = partition(aten_program(program), do_not_convert=left, least_intensity=0)
    own = {node.name: node for node in program.graph.nodes}
    parts = [{node: None for each in part.nodes if not is_number(node := own[each.name])} for part in found.parts]
    for node in reversed(program.graph.nodes):  # a number is computed in the part that alone reads it
        for part in parts:
            if is_number(node) and node.op == "call_function" and node.users and part.keys() >= node.users.keys():
                part[node] = None
    return parts, {problem.node: problem.message for problem in found.report.left}


def _crossings(part: Collection[Node], weights: Collection[str]) -> Iterator[tuple[Node, str]]:
    """The nodes of a part that take or give what a delegate cannot take or give.

    Args:
        weights: the names of the weights that come into the part with it.
    """
    for node in part:
        for source in node.all_input_nodes:
            if source not in part and source.name not in weights and (kind := _unfit(source)):
                yield producer_of(node), f"it takes {kind} from outside of its part"
        if any(user not in part for user in node.users) and (kind := _unfit(node)):
            yield producer_of(node), f"it gives {kind} to the outside of its part"


def _unfit(node: Node) -> str:
    """What a node gives that cannot cross the edge of a delegate; empty if it can."""
    if is_number(node):
        return "a number"
    wide = [each.dtype for each in values_of(node) if isinstance(each, torch.Tensor) and each.dtype in _WIDE]
    return f"a tensor of {wide[0]}" if wide else ""
