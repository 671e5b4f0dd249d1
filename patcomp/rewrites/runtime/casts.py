"""Keep the toolchain from dropping casts that change numbers: insert a copy between two such casts."""

from __future__ import annotations

from patcomp.ir.casts import is_dropped
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import ops_inside
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites.runtime.loops import copied


def keep_casts(module: IRModule, statistics: Statistics) -> None:
    """Insert a copy between each cast that the toolchain would drop and the cast of its result."""
    for op in ops_inside(module.op):
        if op.name == "coreai.cast" and is_dropped(op.operands[0]):
            op.operands[0] = copied(op.operands[0], op, module)
            statistics.record("keep cast", True, 0.0)
