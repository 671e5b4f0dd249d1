"""Repetitions of a tensor zero times: type inference refuses them."""

from __future__ import annotations

from patcomp.defects.defect import Defect, Probe

DEFECT = Defect(
    name="repetitions_of_zero",
    says="The toolchain does not compile a `tile` of zero repetitions.",
    met_in=("patcomp/ir/infer/shapes.py", "patterns_catalog/lower/updates.py"),
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<0xf32> {coreai.name = "y"}) {
  %times = coreai.constant dense<0> : tensor<1xui32>
  %y = coreai.tile %x, %times : (tensor<2xf32>, tensor<1xui32>) -> tensor<0xf32>
  coreai.output %y : tensor<0xf32>
}
""",
            inputs={"x": [1, 2]},
            gives={"y": []},
            symptom="is refused",
        ),
    ),
)
