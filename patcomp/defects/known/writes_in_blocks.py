"""Writes of states inside of branches and loops: the process ends."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.defect import Defect, Probe
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule


def _detect(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    parent = op.parent_op()
    while parent is not None and parent.name != "coreai.graph":
        if parent.name in ("coreai.if", "coreai.while"):
            yield f"a write inside {parent.name} aborts the process; yield the value and write it outside"
            return
        parent = parent.parent_op()


DEFECT = Defect(
    name="writes_in_blocks",
    says="The toolchain ends the process if a branch or a loop writes a state.",
    detect={"coreai.write_handle": _detect},
    probes=(
        Probe(
            program="""
coreai.graph @main(%h: !coreai.handle<tensor<2xf32>> {coreai.name = "h"}, %x: tensor<2xf32> {coreai.name = "x"},
    %c: tensor<i1> {coreai.name = "c"})
    -> (!coreai.token {coreai.name = "h"}, tensor<2xf32> {coreai.name = "y"}) {
  %start = coreai.create_token : !coreai.token
  %branch = coreai.if %c {
    %written = coreai.write_handle %h, %x, %start : (<tensor<2xf32>>, tensor<2xf32>, !coreai.token) -> !coreai.token
    coreai.yield %written : !coreai.token
  } else {
    coreai.yield %start : !coreai.token
  } : tensor<i1> -> !coreai.token
  %y, %read = coreai.read_handle %h, %branch : (<tensor<2xf32>>, !coreai.token) -> (tensor<2xf32>, !coreai.token)
  coreai.output %read, %y : !coreai.token, tensor<2xf32>
}
""",
            inputs={"x": [1, 2], "c": True},
            gives={"y": [1, 2]},
            symptom="dies",
            states={"h": [3, 4]},
        ),
    ),
)
