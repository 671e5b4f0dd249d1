"""Slices that reverse a whole dimension: type inference refuses them, and rules use `reverse`."""

from __future__ import annotations

from patcomp.defects.defect import Defect, Probe

DEFECT = Defect(
    name="reversing_slices",
    says="The toolchain folds a slice that reverses a whole dimension to its operand.",
    met_in=("patcomp/ir/infer/shapes.py",),
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<3xf32> {coreai.name = "x"}) -> (tensor<3xf32> {coreai.name = "y"}) {
  %start = coreai.constant dense<2> : tensor<1xsi32>
  %end = coreai.constant dense<-4> : tensor<1xsi32>
  %step = coreai.constant dense<-1> : tensor<1xsi32>
  %y = coreai.slice %x, %start, %end, %step
      : (tensor<3xf32>, tensor<1xsi32>, tensor<1xsi32>, tensor<1xsi32>) -> tensor<3xf32>
  coreai.output %y : tensor<3xf32>
}
""",
            inputs={"x": [1, 2, 3]},
            gives={"y": [3, 2, 1]},
            symptom="is wrong",
        ),
    ),
)
