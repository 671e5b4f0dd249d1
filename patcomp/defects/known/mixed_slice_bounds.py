"""Slice bounds of several element types: type inference refuses them."""

from __future__ import annotations

from patcomp.defects.defect import Defect, Probe

DEFECT = Defect(
    name="mixed_slice_bounds",
    says="The runtime ends the process at slice bounds of several element types.",
    met_in=("patcomp/ir/infer/shapes.py",),
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<3xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
  %start = coreai.constant dense<0> : tensor<1xsi16>
  %end = coreai.constant dense<2> : tensor<1xsi32>
  %step = coreai.constant dense<1> : tensor<1xsi32>
  %y = coreai.slice %x, %start, %end, %step
      : (tensor<3xf32>, tensor<1xsi16>, tensor<1xsi32>, tensor<1xsi32>) -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [1, 2, 3]},
            gives={"y": [1, 2]},
            symptom="dies",
        ),
    ),
)
