"""Arguments and results of entry points that are numbers and no tensors: the process that runs them ends."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.defect import Defect, Probe
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.types import HandleType, ImageType, TokenType
from patcomp.ir.xdsl import FunctionType, TensorType


def _detect(graph: CoreaiOp, module: IRModule) -> Iterator[str]:
    signature = graph.properties["function_type"]
    assert isinstance(signature, FunctionType)
    if "priv" in graph.properties or "externalize" in graph.properties:
        return
    for what, types in (("argument", signature.inputs), ("result", signature.outputs)):
        for index, type_ in enumerate(types):
            if not isinstance(type_, TensorType | HandleType | TokenType | ImageType):
                yield f"{what} {index} is a bare {type_}, on which the runtime aborts; make it a tensor"


DEFECT = Defect(
    name="bare_numbers",
    says="The runtime ends the process at an argument that is a number and no tensor.",
    detect={"coreai.graph": _detect},
    probes=(
        Probe(
            program="""
coreai.graph @main(%n: f32 {coreai.name = "n"}, %x: tensor<2xf32> {coreai.name = "x"})
    -> (tensor<2xf32> {coreai.name = "y"}) {
  %y = coreai.relu %x : (tensor<2xf32>) -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"n": 1, "x": [1, 2]},
            gives={"y": [1, 2]},
            symptom="dies",
        ),
    ),
)
