"""Same-shape ops of which one operand has a dynamic size: type inference refuses them."""

from __future__ import annotations

from patcomp.defects.defect import Defect, Probe

DEFECT = Defect(
    name="open_same_shapes",
    says="The toolchain does not save a same-shape op on a dynamic and a known size, which its verifier takes.",
    met_in=("patcomp/ir/infer/elementwise.py",),
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<?xf32> {coreai.name = "x"}, %w: tensor<2xf32> {coreai.name = "w"})
    -> (tensor<2xf32> {coreai.name = "y"}) {
  %y = coreai.add %x, %w : (tensor<?xf32>, tensor<2xf32>) -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [1, 2], "w": [3, 4]},
            gives={"y": [4, 6]},
            symptom="is refused",
        ),
    ),
)
