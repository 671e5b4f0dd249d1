"""Padding of complex numbers: the process ends."""

from __future__ import annotations

from patcomp.defects.defect import Defect, Probe
from patcomp.defects.elements import refused_elements

DEFECT = Defect(
    name="complex_padding",
    says="The toolchain ends the process at a padding of complex numbers.",
    detect=refused_elements({"pad": {"complex<f32>"}}, "aborts the process in this op"),
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xcomplex<f32>> {coreai.name = "x"}, %v: tensor<complex<f32>> {coreai.name = "v"})
    -> (tensor<4xcomplex<f32>> {coreai.name = "y"}) {
  %sizes = coreai.constant dense<1> : tensor<2xui32>
  %y = coreai.pad %x, %sizes, %v mode = <constant>
      : (tensor<2xcomplex<f32>>, tensor<2xui32>, tensor<complex<f32>>) -> tensor<4xcomplex<f32>>
  coreai.output %y : tensor<4xcomplex<f32>>
}
""",
            inputs={"x": [1, 2j], "v": 0},
            gives={"y": [0, 1, 2j, 0]},
            symptom="dies",
        ),
    ),
)
