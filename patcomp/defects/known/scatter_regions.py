"""Scatters whose region combines the old and the new value: the new value is stored in any case."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.defect import Defect, Probe
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule


def _detect(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    block = op.regions[0].blocks[0] if op.regions[0].blocks else None
    yielded = block.last_op if block is not None else None
    if block is None or yielded is None or len(list(block.ops)) != 1 or len(block.args) != 2:
        yield "its region must take the old and the new value and hold nothing but a yield"
    elif list(yielded.operands) != [block.args[1]]:
        yield "it always stores the update, whatever its region yields, so the region must yield its second argument"


DEFECT = Defect(
    name="scatter_regions",
    says="The runtime does not ask the region of a `scatter_nd`, and always stores the new value.",
    detect={"coreai.scatter_nd": _detect},
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<3xf32> {coreai.name = "x"}, %i: tensor<2x1xsi32> {coreai.name = "i"},
    %u: tensor<2xf32> {coreai.name = "u"})
    -> (tensor<3xf32> {coreai.name = "y"}) {
  %y = coreai.scatter_nd %x with %u at %i {
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
      coreai.yield %old : tensor<f32>
  } : (tensor<3xf32>, tensor<2xf32>, tensor<2x1xsi32>) to tensor<3xf32>
  coreai.output %y : tensor<3xf32>
}
""",
            inputs={"x": [1, 2, 3], "i": [[0], [2]], "u": [10, 20]},
            gives={"y": [1, 2, 3]},
            symptom="is wrong",
        ),
    ),
)
