"""Names of operators as users write them: `aten.add`, `aten::add.Tensor`, `torch.ops.aten.add.default`."""

from __future__ import annotations

from difflib import get_close_matches

import torch

from patcomp.errors import UnknownNameError
from patcomp.ir import aten
from patcomp.pytorch import OpOverloadPacket, operator_of


def overloads_of(name: str) -> list[str]:
    """The ops that a name stands for, as the `aten` dialect spells them: one overload, or all that mutate nothing.

    Raises:
        UnknownNameError: there is none; the message suggests similar names.
    """
    spelled = name.replace("::", ".").removeprefix("torch.ops.")
    if "." not in spelled:
        spelled = f"aten.{spelled}"
    namespace, op, *overload = spelled.split(".", 2)
    packet = aten.op_name(f"{namespace}.{op}")
    known = _functional().get(packet) or _registered(namespace, op)
    if not known:
        near = get_close_matches(packet, _functional(), n=5, cutoff=0.75)
        advice = f"; similar names are {', '.join(near)}" if near else ""
        if namespace == "torch" and (own := f"aten.{name.rpartition('.')[2]}") in _functional():
            advice = f"; write {own}"
        elif namespace != "aten":
            advice += "; import the module that registers it first"
        raise UnknownNameError(f"PyTorch has no operator {name}{advice}")
    if not overload:
        return known
    wanted = aten.op_name(spelled)
    if wanted not in known and wanted not in _registered(namespace, op):
        raise UnknownNameError(f"{packet} has no overload {overload[0]!r}; its overloads are {', '.join(known)}")
    return [wanted]


def may_draw(op: str) -> bool:
    """Whether an op of the `aten` dialect may draw random numbers."""
    return torch.Tag.nondeterministic_seeded in operator_of(op.replace(".", "::", 1)).tags


def _functional() -> dict[str, list[str]]:
    """Every overload that mutates nothing, by the name without it."""
    found: dict[str, list[str]] = {}
    for op in aten.known_names():
        found.setdefault(".".join(op.split(".")[:2]), []).append(op)
    return found


def _registered(namespace: str, op: str) -> list[str]:
    """Every overload that PyTorch knows, of any library."""
    packet = getattr(getattr(torch.ops, namespace), op, None)
    names = packet.overloads() if isinstance(packet, OpOverloadPacket) else []
    return [aten.op_name(f"{namespace}.{op}.{overload}") for overload in names]
