"""Element types that the toolchain's verifier accepts in an op, and that a later step does not know."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from patcomp.defects.defect import Detect
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.types import element_name
from patcomp.ir.xdsl import TensorType


def refused_elements(elements: Mapping[str, Collection[str]], what: str) -> dict[str, Detect]:
    """A detector for each op, which refuses operands of some element types.

    Args:
        elements: the names of the element types by the op's name without `coreai.`.
        what: what becomes of them, "cannot be saved in this op".
    """
    return {f"coreai.{name}": _refusal(refused, what) for name, refused in elements.items()}


def _refusal(refused: Collection[str], what: str) -> Detect:
    def detect(op: CoreaiOp, module: IRModule) -> Iterator[str]:
        for value in op.operands:
            if isinstance(value.type, TensorType) and element_name(value.type.element_type) in refused:
                yield f"the element type {element_name(value.type.element_type)} {what}"
                return

    return detect
