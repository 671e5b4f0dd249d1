"""Reductions over no axes: type inference refuses them, and rules leave them out."""

from __future__ import annotations

from patcomp.defects.defect import Defect, Probe

DEFECT = Defect(
    name="reductions_of_no_axis",
    says="The runtime sums everything where a reduction has no axes.",
    met_in=("patcomp/ir/infer/reductions.py",),
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
  %axes = coreai.constant dense<> : tensor<0xsi32>
  %y = coreai.reduce_sum %x, %axes : (tensor<2xf32>, tensor<0xsi32>) -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [1, 2]},
            gives={"y": [1, 2]},
            symptom="is wrong",
        ),
    ),
)
