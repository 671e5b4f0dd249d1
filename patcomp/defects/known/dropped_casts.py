"""Casts that the toolchain drops, although they change numbers: a copy stands between two such casts.

It merges a cast of a cast if the middle type has at least as many bits as the first type: for `x.int().float()` the
runtime computes `x`.
"""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.copies import copy_of
from patcomp.defects.defect import Defect, Probe
from patcomp.ir.casts import holds
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.types import BIT_WIDTHS, element_name
from patcomp.ir.value import made_by
from patcomp.ir.xdsl import Attribute, SSAValue, TensorType, ops_inside
from patcomp.patterns.statistics import Statistics

_CAST = "coreai.cast"


def is_dropped(value: SSAValue) -> bool:
    """Whether the toolchain drops the cast that made a value when the value is cast again, so that numbers change."""
    cast = made_by(value, _CAST)
    if cast is None or holds(_element(value), _element(cast.operands[0])):
        return False
    widths = []
    while cast is not None:  # casts before it become one first
        widths.append(_width(cast.operands[0]))
        cast = made_by(cast.operands[0], _CAST)
    return _width(value) >= min(widths)


def _element(value: SSAValue) -> Attribute:
    assert isinstance(value.type, TensorType)
    return value.type.element_type


def _width(value: SSAValue) -> int:
    return BIT_WIDTHS[element_name(_element(value))]


def keep_casts(module: IRModule, statistics: Statistics) -> None:
    """Insert a copy between each cast that the toolchain would drop and the cast of its result."""
    for op in ops_inside(module.op):
        if op.name == _CAST and is_dropped(op.operands[0]):
            op.operands[0] = copy_of(op.operands[0], op, module)
            statistics.record("keep cast", True, 0.0)


def _detect(op: CoreaiOp, module: IRModule) -> Iterator[str]:
    if is_dropped(op.operands[0]):
        yield "the toolchain drops the cast of its operand, which changes numbers; compute a copy in between"


DEFECT = Defect(
    name="dropped_casts",
    says="The toolchain merges a cast of a cast although the type in between does not hold the numbers.",
    detect={_CAST: _detect},
    mend=keep_casts,
    ops=(_CAST,),
    stage="lowered",
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}) -> (tensor<2xf32> {coreai.name = "y"}) {
  %whole = coreai.cast %x : tensor<2xf32> to tensor<2xsi32>
  %y = coreai.cast %whole : tensor<2xsi32> to tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [1.5, -2.5]},
            gives={"y": [1, -2]},
            symptom="is wrong",
        ),
    ),
)
