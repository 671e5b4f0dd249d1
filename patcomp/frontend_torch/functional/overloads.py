"""Find the functional form of an operator that writes to its arguments."""

from __future__ import annotations

from typing import Any

import torch

from patcomp.pytorch import OpOverload, schema_of_overload


def without_writes(op: OpOverload, name: str) -> OpOverload | None:
    """The overload of an ATen operator that takes the arguments of `op` and writes to none of them; None if there is
    none.

    Args:
        op: an operator that writes to an argument, or turns it into another view.
        name: of the other operator, without namespace and overload: `add` for `aten.add_.Tensor`.
    """
    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        found = getattr(packet, overload)
        if not schema_of_overload(found).is_mutable and _parameters(found) == _parameters(op):
            return found  # type: ignore[no-any-return]
    return None


def _parameters(op: OpOverload) -> list[tuple[Any, ...]]:
    arguments = schema_of_overload(op).arguments
    return [(each.name, str(each.type), each.kwarg_only, each.default_value) for each in arguments]
