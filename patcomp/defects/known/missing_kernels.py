"""Element types that an asset can hold in an op, and for which the runtime has no kernel."""

from __future__ import annotations

from patcomp.defects.defect import Defect, Probe
from patcomp.defects.elements import refused_elements

_COMPLEX = {f"decomposable.broadcasting_{name}": {"complex<f32>"} for name in ("equal", "not_equal")}
_BOOL = {f"decomposable.broadcasting_{name}": {"i1"} for name in ("add", "mul")}


DEFECT = Defect(
    name="missing_kernels",
    says="The runtime has no kernel for an op and an element type that the toolchain saves.",
    detect={
        **refused_elements({**_COMPLEX, "greater": {"f8E4M3FN", "f8E5M2"}}, "has no kernel for this op"),
        **refused_elements(_BOOL, "has no kernel for this op; use the logical op, or the same-shape op"),
    },
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xi1> {coreai.name = "x"}, %w: tensor<2xi1> {coreai.name = "w"})
    -> (tensor<2xi1> {coreai.name = "y"}) {
  %y = coreai.decomposable.broadcasting_add %x, %w : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
  coreai.output %y : tensor<2xi1>
}
""",
            inputs={"x": [True, False], "w": [False, False]},
            gives={"y": [True, False]},
            symptom="is refused",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xi1> {coreai.name = "x"}, %w: tensor<2xi1> {coreai.name = "w"})
    -> (tensor<2xi1> {coreai.name = "y"}) {
  %y = coreai.decomposable.broadcasting_mul %x, %w : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
  coreai.output %y : tensor<2xi1>
}
""",
            inputs={"x": [True, False], "w": [False, False]},
            gives={"y": [False, False]},
            symptom="is refused",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xcomplex<f32>> {coreai.name = "x"}, %w: tensor<2xcomplex<f32>> {coreai.name = "w"})
    -> (tensor<2xi1> {coreai.name = "y"}) {
  %y = coreai.decomposable.broadcasting_equal %x, %w
      : (tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>) -> tensor<2xi1>
  coreai.output %y : tensor<2xi1>
}
""",
            inputs={"x": [1, 2j], "w": [1, 2]},
            gives={"y": [True, False]},
            symptom="is refused",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xcomplex<f32>> {coreai.name = "x"}, %w: tensor<2xcomplex<f32>> {coreai.name = "w"})
    -> (tensor<2xi1> {coreai.name = "y"}) {
  %y = coreai.decomposable.broadcasting_not_equal %x, %w
      : (tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>) -> tensor<2xi1>
  coreai.output %y : tensor<2xi1>
}
""",
            inputs={"x": [1, 2j], "w": [1, 2]},
            gives={"y": [False, True]},
            symptom="is refused",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xi1> {coreai.name = "y"}) {
  %small = coreai.cast %x : tensor<2xf32> to tensor<2xf8E5M2>
  %ones = coreai.constant dense<1.0> : tensor<2xf8E5M2>
  %y = coreai.greater %small, %ones : (tensor<2xf8E5M2>, tensor<2xf8E5M2>) -> tensor<2xi1>
  coreai.output %y : tensor<2xi1>
}
""",
            inputs={"x": [1, 2]},
            gives={"y": [False, True]},
            symptom="is refused",
        ),
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xi1> {coreai.name = "y"}) {
  %small = coreai.cast %x : tensor<2xf32> to tensor<2xf8E4M3FN>
  %ones = coreai.constant dense<1.0> : tensor<2xf8E4M3FN>
  %y = coreai.greater %small, %ones : (tensor<2xf8E4M3FN>, tensor<2xf8E4M3FN>) -> tensor<2xi1>
  coreai.output %y : tensor<2xi1>
}
""",
            inputs={"x": [1, 2]},
            gives={"y": [False, True]},
            symptom="is refused",
        ),
    ),
)
