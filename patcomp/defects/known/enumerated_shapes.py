"""Enumerated shapes that are left in a signature: the process that saves them ends."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.defect import Defect, Probe
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import ArrayAttr, DictionaryAttr


def _detect(graph: CoreaiOp, module: IRModule) -> Iterator[str]:
    for key, what in (("arg_attrs", "argument"), ("res_attrs", "result")):
        entries = graph.properties.get(key)
        for index, entry in enumerate(entries.data if isinstance(entries, ArrayAttr) else ()):
            if isinstance(entry, DictionaryAttr) and "coreai.enumerated_shapes" in entry.data:
                yield f"{what} {index} has coreai.enumerated_shapes left; saving would abort the process"


DEFECT = Defect(
    name="enumerated_shapes",
    says="The toolchain ends the process where it saves a signature with enumerated shapes.",
    detect={"coreai.graph": _detect},
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<?xf32> {coreai.name = "x", coreai.enumerated_shapes = {s = [2]}})
    -> (tensor<?xf32> {coreai.name = "y"}) {
  %y = coreai.relu %x : (tensor<?xf32>) -> tensor<?xf32>
  coreai.output %y : tensor<?xf32>
}
""",
            inputs={"x": [1, 2]},
            gives={"y": [1, 2]},
            symptom="dies",
        ),
    ),
)
