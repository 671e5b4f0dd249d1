"""Inputs, states and outputs without a name, beside others that have one: the process that runs them ends."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.defect import Defect, Probe
from patcomp.defects.signatures import names_by_kind
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule


def _detect(graph: CoreaiOp, module: IRModule) -> Iterator[str]:
    for kind, names in names_by_kind(graph).items():
        for index, name in enumerate(names):
            if name is None:
                yield f"{kind} {index} has no name, but others have; running would abort the process"
            elif not name:
                yield f"{kind} {index} has an empty name; running would abort the process"


DEFECT = Defect(
    name="missing_names",
    says="The runtime ends the process if one output has a name and another one has none.",
    detect={"coreai.graph": _detect},
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}, tensor<2xf32>) {
  %y = coreai.relu %x : (tensor<2xf32>) -> tensor<2xf32>
  coreai.output %y, %x : tensor<2xf32>, tensor<2xf32>
}
""",
            inputs={"x": [1, 2]},
            gives={"y": [1, 2]},
            symptom="dies",
        ),
    ),
)
