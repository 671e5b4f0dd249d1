"""Sums from which the summand is subtracted again: the lowering of `log1p` keeps a maximum in between."""

from __future__ import annotations

from patcomp.defects.defect import Defect, Probe

DEFECT = Defect(
    name="cancelled_sums",
    says="The toolchain makes x of (x + 1) - 1, and loses the rounding of the sum.",
    met_in=("patterns_catalog/lower/exponentials.py",),
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
  %one = coreai.constant dense<1.0> : tensor<f32>
  %sum = coreai.decomposable.broadcasting_add %x, %one : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  %y = coreai.decomposable.broadcasting_sub %sum, %one : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [1e-8, 1]},
            gives={"y": [0, 1]},
            symptom="is wrong",
        ),
    ),
)
