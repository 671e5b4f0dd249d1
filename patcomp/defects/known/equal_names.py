"""Inputs, states or outputs of one name: the runtime takes one and loses the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from patcomp.defects.defect import Defect, Probe
from patcomp.defects.signatures import names_by_kind
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule


def _detect(graph: CoreaiOp, module: IRModule) -> Iterator[str]:
    kinds = names_by_kind(graph)
    for kind, names in kinds.items():
        for name, count in Counter(name for name in names if name).items():
            if count > 1:
                yield f"{count} {kind}s are named {name!r}; the runtime takes one and loses the others"
    for output in kinds.get("output", ()):
        if output and output in kinds["state"]:
            yield f"output {output!r} has the name of a state, and the runtime loses it"


DEFECT = Defect(
    name="equal_names",
    says="The runtime loses values whose names are equal, without an error.",
    detect={"coreai.graph": _detect},
    probes=(
        Probe(
            program="""
coreai.graph @main(%h: !coreai.handle<tensor<2xf32>> {coreai.name = "h"})
    -> (!coreai.token {coreai.name = "h"}, tensor<2xf32> {coreai.name = "h"}) {
  %start = coreai.create_token : !coreai.token
  %old, %read = coreai.read_handle %h, %start : (<tensor<2xf32>>, !coreai.token) -> (tensor<2xf32>, !coreai.token)
  %y = coreai.relu %old : (tensor<2xf32>) -> tensor<2xf32>
  coreai.output %read, %y : !coreai.token, tensor<2xf32>
}
""",
            inputs={},
            gives={"h": [3, 4]},
            symptom="is refused",
            states={"h": [3, 4]},
        ),
    ),
)
