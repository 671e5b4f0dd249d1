"""Normalize: give equivalent ops one spelling, so that each composite needs only one pattern."""

from __future__ import annotations

import numpy as np

from patcomp.ir import aten
from patcomp.ir.builder import Builder
from patcomp.ir.cleanup import remove_dead_ops
from patcomp.ir.custom import CustomOp
from patcomp.ir.elements import to_numpy
from patcomp.ir.locations import fused
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, is_empty, static_shape
from patcomp.ir.value import replace_op
from patcomp.ir.xdsl import Operation, ops_inside
from patcomp.patterns import RuleSet, run
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites.options import Options


def normalize(module: IRModule, rules: RuleSet, options: Options) -> Statistics:
    """Apply the normalize rules to every graph until nothing changes, and drop dead ops."""
    statistics = Statistics()
    for graph in module.graphs:
        for op in ops_inside(graph):
            if not isinstance(op, aten.AtenOp | CustomOp) or not op.results or op.name == "aten.complex":
                continue  # the runtime has no complex constants; the parts of an empty value become constants
            if all(is_empty(result.type) for result in op.results):
                _make_empty(op, module)
                statistics.record("empty result", True, 0.0)
        statistics.add(run(graph, rules.index, options.context(module, aten)))
        remove_dead_ops(graph)
    return statistics


def _make_empty(op: Operation, module: IRModule) -> None:
    """Replace empty results by constants: there is nothing to compute, and the runtime has no kernels for them."""
    block = op.parent
    assert block is not None
    builder = Builder(block, before=op, blobs=module.blobs, location=fused("empty result", [op]))
    made = []
    for result in op.results:
        assert isinstance(result.type, TensorType)
        values, element = to_numpy(np.empty(static_shape(result.type), np.bool_), result.type.element_type)
        made.append(builder.constant(values, element).ssa)
    replace_op(op, made)
