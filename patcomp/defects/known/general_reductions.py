"""Reductions with a region of their own: the process that loads such an asset ends."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.defect import Defect, Probe
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule


def _detect(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    yield "an asset with this op aborts the process that loads it; use reduce_sum, reduce_max, ..."


DEFECT = Defect(
    name="general_reductions",
    says="An asset with `reduce` or `reduce_index` ends the process that loads it.",
    detect=dict.fromkeys(("coreai.reduce", "coreai.reduce_index"), _detect),
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<2x3xf32> {coreai.name = "x"}) -> (tensor<2x1xf32> {coreai.name = "y"}) {
  %axis = coreai.constant dense<1> : tensor<1xsi32>
  %zero = coreai.constant dense<0.0> : tensor<f32>
  %y = coreai.reduce %x, %axis, init %zero {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %sum = coreai.add %a, %b : (tensor<f32>, tensor<f32>) -> tensor<f32>
    coreai.yield %sum : tensor<f32>
  } : (tensor<2x3xf32>, tensor<1xsi32>, tensor<f32>) -> tensor<2x1xf32>
  coreai.output %y : tensor<2x1xf32>
}
""",
            inputs={"x": [[1, 2, 3], [4, 5, 6]]},
            gives={"y": [[6], [15]]},
            symptom="dies",
        ),
    ),
)
