"""Gathers of constants at negative indices: a rule counts these from the front."""

from __future__ import annotations

from patcomp.defects.defect import Defect, Probe

DEFECT = Defect(
    name="negative_gather_indices",
    says="The toolchain reads outside of a constant where it folds a gather at negative indices.",
    met_in=("patterns_catalog/optimize/indices.py",),
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<1xf32> {coreai.name = "x"}) -> (tensor<1xf32> {coreai.name = "y"}) {
  %table = coreai.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %last = coreai.constant dense<-1> : tensor<1x1xsi32>
  %number = coreai.gather_nd %table at %last : (tensor<3xf32>, tensor<1x1xsi32>) to tensor<1xf32>
  %y = coreai.add %x, %number : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
  coreai.output %y : tensor<1xf32>
}
""",
            inputs={"x": [0]},
            gives={"y": [3]},
            symptom="is wrong",
        ),
    ),
)
