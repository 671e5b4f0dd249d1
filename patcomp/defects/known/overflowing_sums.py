"""Products and scans of integers that overflow: the lowerings split them, so that they wrap."""

from __future__ import annotations

from patcomp.defects.defect import Defect, Probe

DEFECT = Defect(
    name="overflowing_sums",
    says="The runtime ends the process where a product or a scan of integers overflows.",
    met_in=(
        "patcomp/evaluate/ops/linear_algebra.py",
        "patcomp/evaluate/ops/reductions.py",
        "patterns_catalog/lower/combining.py",
        "patterns_catalog/lower/integer_sums.py",
        "patterns_catalog/lower/scans.py",
    ),
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<1x2xsi8> {coreai.name = "x"}, %w: tensor<2x1xsi8> {coreai.name = "w"})
    -> (tensor<1x1xsi8> {coreai.name = "y"}) {
  %y = coreai.decomposable.broadcasting_batch_matmul %x, %w : (tensor<1x2xsi8>, tensor<2x1xsi8>) -> tensor<1x1xsi8>
  coreai.output %y : tensor<1x1xsi8>
}
""",
            inputs={"x": [[100, 100]], "w": [[2], [2]]},
            gives={"y": [[-112]]},
            symptom="dies",
        ),
    ),
)
