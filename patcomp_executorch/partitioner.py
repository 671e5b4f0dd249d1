"""The partitioner: which nodes of a program patcomp converts, as parts for ExecuTorch to delegate."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
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
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support

from patcomp import ConversionWarning, PatcompError, TorchConverter, get_decomp_table
from patcomp.errors import UnsupportedError, reason_of
from patcomp.frontend_torch.fx.nodes import producer_of
from patcomp.pytorch import OpOverload
from patcomp_executorch.backend import Specs
from patcomp_executorch.edge import aten_program, is_number, program_of_node, values_of, weight_inputs

_LOGGER = logging.getLogger("patcomp.executorch")
_WIDE = (torch.int64, torch.float64)


class CoreAIPartitioner(ExecuTorchsPartitioner):
    """Delegates what patcomp converts to Core AI; in the place of ExecuTorch's class of this name.

        to_edge_transform_and_lower(exported, partitioner=[CoreAIPartitioner()], transform_passes=get_default_passes())

    It takes the same arguments: `uses_sidecar`, `min_deployment_version`, `input_enumerations`, `aot_compile_config`,
    `take_over_constant_data` and `take_over_mutable_buffer`. `do_not_delegate(node)` and the passes of
    `executorch.backends.apple.coreai` keep their meaning.

    A node is delegated if patcomp converts it alone. Core AI has 32-bit numbers, so a tensor of 64 bits, or a number,
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
        left = refused_nodes(exported_program)
        inner = weight_inputs(exported_program) if self.take_over_constant_data else {}
        while True:
            parts = _proposed(exported_program, left)
            crossing = {node: reason for part in parts for node, reason in _crossings(part, inner)}
            if not crossing:
                break
            left |= crossing
        for number, part in enumerate(parts):
            for node in part:
                node.meta["delegation_tag"] = f"tag{number}"
        self.left_out = {node.name: reason for node, reason in left.items()}
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


def refused_nodes(program: ExportedProgram) -> dict[Node, str]:
    """The ops of a program that patcomp does not convert, or that are tagged, with the reasons."""
    plain = aten_program(program)
    own = {node.name: node for node in plain.graph.nodes}
    known: dict[str, str] = {}
    found = {}
    for node in program.graph.nodes:
        if node.op != "call_function" or is_number(node) or producer_of(node) is not node:
            continue
        if node.meta.get(DO_NOT_DELEGATE_TAG, False):
            found[node] = "it is tagged by do_not_delegate"
            continue
        key = _key(node) or node.name
        if key not in known:
            known[key] = _refusal(own[node.name], plain)
        if known[key]:
            found[node] = known[key]
    return found


def _refusal(node: Node, program: ExportedProgram) -> str:
    """Why patcomp does not convert an op alone; empty if it does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)  # the conversion of the part issues them
        try:
            TorchConverter().add_exported_program(program_of_node(node, program)).to_coreai()
        except UnsupportedError as error:
            return "; ".join(problem.message for problem in error.problems) or reason_of(error)
        except PatcompError as error:
            return reason_of(error)
    return ""


def _key(node: Node) -> str:
    """What the conversion of an op depends on; empty where numbers or the graphs of control flow belong to it."""
    if any(each.op == "get_attr" or is_number(each) for each in node.all_input_nodes):
        return ""

    def told(value: Any) -> Any:
        if not isinstance(value, Node):
            return repr(value)
        kinds = [(each.dtype, str(each.shape)) for each in values_of(value) if isinstance(each, torch.Tensor)]
        return value.op == "placeholder", tuple(kinds)

    arguments = torch.fx.node.map_aggregate((node.args, node.kwargs), told)
    return str((node.target, arguments))


def _proposed(program: ExportedProgram, left: dict[Node, str]) -> list[list[Node]]:
    """The largest parts of a program without the nodes that are left out, and without parts of numbers only."""

    def may_be_in(_: Any, node: Node) -> bool:
        return node.op == "get_attr" or (node.op == "call_function" and producer_of(node) not in left)

    support = create_op_support(may_be_in)
    cutter = CapabilityBasedPartitioner(program.graph_module, support, allows_single_node_partition=True)
    parts = [list(part.nodes) for part in cutter.propose_partitions()]
    return [part for part in parts if not all(node.op == "get_attr" or is_number(node) for node in part)]


def _crossings(part: Sequence[Node], inner: Any) -> Iterator[tuple[Node, str]]:
    """The nodes of a part that take or give what a delegate cannot take or give.

    Args:
        inner: the names of the weights, which come into the part with it.
    """
    inside = set(part)
    for node in part:
        for source in node.all_input_nodes:
            if source not in inside and source.name not in inner and (kind := _unfit(source)):
                yield producer_of(node), f"it takes {kind} from outside of its part"
        if any(user not in inside for user in node.users) and (kind := _unfit(node)):
            yield producer_of(node), f"it gives {kind} to the outside of its part"


def _unfit(node: Node) -> str:
    """What a node gives that cannot cross the edge of a delegate; empty if it can."""
    if is_number(node):
        return "a number"
    wide = [each.dtype for each in values_of(node) if isinstance(each, torch.Tensor) and each.dtype in _WIDE]
    return f"a tensor of {wide[0]}" if wide else ""
