"""Scales of compressed weights that have another type than the offset: the numbers are wrong."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.defect import Defect, Probe
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.types import element_name


def _detect(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    _, scale, _, offset = (element_name(operand.type.element_type) for operand in op.operands)  # type: ignore[attr-defined]
    if scale not in (offset, "f8E8M0FNU"):  # found by trying: the runtime reads the bits of one type as the other
        yield f"the scale is {scale} and offset2 is {offset}, which gives wrong numbers; cast the scale to {offset}"


DEFECT = Defect(
    name="scales_of_other_types",
    says="The runtime reads the bits of a scale as a number of the offset's type.",
    detect={"coreai.blockwise_shift_scale": _detect},
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<1x2xf32> {coreai.name = "x"}) -> (tensor<1x2xf32> {coreai.name = "y"}) {
  %data = coreai.constant dense<[[1, 2]]> : tensor<1x2xsi8>
  %scale = coreai.constant dense<2.0> : tensor<1x1xf16>
  %shift = coreai.constant dense<0> : tensor<1x1xsi8>
  %offset = coreai.constant dense<0.0> : tensor<1x1xf32>
  %weight = coreai.blockwise_shift_scale %data, %scale, %shift, %offset
      : (tensor<1x2xsi8>, tensor<1x1xf16>, tensor<1x1xsi8>, tensor<1x1xf32>) -> tensor<1x2xf32>
  %y = coreai.mul %x, %weight : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
  coreai.output %y : tensor<1x2xf32>
}
""",
            inputs={"x": [[1, 1]]},
            gives={"y": [[2, 4]]},
            symptom="is wrong",
        ),
    ),
)
