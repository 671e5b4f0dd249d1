"""Branches without results: the toolchain prints a text that it cannot read."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.defect import Defect
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule


def _detect(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    if op.regions[1].blocks and not op.results:
        yield "without results it has no effect, and the toolchain cannot read its own text of it"


DEFECT = Defect(
    name="branches_without_results",
    says="The toolchain cannot read its own text of an `if` without results.",
    detect={"coreai.if": _detect},
    probes="such a program runs, and no toolchain is asked to read its own text of one",
)
