"""Branches without an else branch: the process that saves them ends."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.defect import Defect, Probe
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule


def _detect(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    if not op.regions[1].blocks:
        yield "without an else branch, saving aborts the process"


DEFECT = Defect(
    name="branches_without_else",
    says="The toolchain ends the process where it saves an `if` without an else branch.",
    detect={"coreai.if": _detect},
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}, %c: tensor<i1> {coreai.name = "c"})
    -> (tensor<2xf32> {coreai.name = "y"}) {
  "coreai.if"(%c) ({
    "coreai.yield"() : () -> ()
  }, {
  }) : (tensor<i1>) -> ()
  %y = coreai.relu %x : (tensor<2xf32>) -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [1, 2], "c": True},
            gives={"y": [1, 2]},
            symptom="dies",
        ),
    ),
)
