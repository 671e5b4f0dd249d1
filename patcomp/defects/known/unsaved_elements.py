"""Element types that an op cannot be saved with, although the toolchain's verifier takes them."""

from __future__ import annotations

from patcomp.defects.defect import Defect, Probe
from patcomp.defects.elements import refused_elements

_SMALL = {"f4E2M1FN", "f8E8M0FNU"}
_ELEMENTS = {
    **dict.fromkeys(
        (
            "transpose", "expand_dims", "shrink_dims", "broadcast_to", "broadcast_in_dims", "concat", "split",
            "slice", "slice_update", "reverse", "where", "decomposable.broadcasting_where",
        ), _SMALL
    ),
    "gather_along_axis": {"complex<f32>"},
    "scatter_along_axis": {"complex<f32>"},
    "decomposable.broadcasting_greater": {"i1"},
}  # fmt: skip


DEFECT = Defect(
    name="unsaved_elements",
    says="The toolchain's verifier takes element types with which an op cannot be saved.",
    detect=refused_elements(_ELEMENTS, "cannot be saved in this op"),
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<1x2xf8E8M0FNU> {coreai.name = "x"}) -> (tensor<2x1xf8E8M0FNU> {coreai.name = "y"}) {
  %order = coreai.constant dense<[1, 0]> : tensor<2xui32>
  %y = coreai.transpose %x, %order : (tensor<1x2xf8E8M0FNU>, tensor<2xui32>) -> tensor<2x1xf8E8M0FNU>
  coreai.output %y : tensor<2x1xf8E8M0FNU>
}
""",
            inputs={"x": [[1, 2]]},
            gives={"y": [[1], [2]]},
            symptom="is refused",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xcomplex<f32>> {coreai.name = "x"}, %i: tensor<2xsi32> {coreai.name = "i"})
    -> (tensor<2xcomplex<f32>> {coreai.name = "y"}) {
  %axis = coreai.constant dense<0> : tensor<si32>
  %y = coreai.gather_along_axis %x at %i along %axis
      : (tensor<2xcomplex<f32>>, tensor<2xsi32>, tensor<si32>) to tensor<2xcomplex<f32>>
  coreai.output %y : tensor<2xcomplex<f32>>
}
""",
            inputs={"x": [1, 2j], "i": [1, 0]},
            gives={"y": [2j, 1]},
            symptom="is refused",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xi1> {coreai.name = "x"}, %w: tensor<2xi1> {coreai.name = "w"})
    -> (tensor<2xi1> {coreai.name = "y"}) {
  %y = coreai.decomposable.broadcasting_greater %x, %w : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
  coreai.output %y : tensor<2xi1>
}
""",
            inputs={"x": [True, False], "w": [False, False]},
            gives={"y": [True, False]},
            symptom="is refused",
        ),
    ),
)
