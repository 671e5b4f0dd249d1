"""A fact about a device: what it does with a construct of a program, and who said so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Operation

Severity = Literal["wrong", "aborts", "falls back", "slow"]
"""What the device does: gives wrong numbers without an error; ends the process, or refuses to load; leaves the
construct to another unit; or computes it at a cost."""

Unit = Literal["cpu", "gpu", "neural_engine"]
"""A compute unit; each has the name of the target for it."""

UNITS: tuple[Unit, ...] = ("cpu", "gpu", "neural_engine")


@dataclass(frozen=True)
class Construct:
    """A condition on an op, with its meaning in words."""

    says: str
    """What the op is like: `of float16`."""
    holds: Callable[[Operation, IRModule], bool]
    """Whether an op of a module is like that."""


@dataclass(frozen=True)
class Fact:
    """What a device does with a construct. A row of the tables in `known`; each has a public source."""

    name: str
    """A few words; unique."""
    units: tuple[Unit, ...]
    """The compute units that do so."""
    severity: Severity
    says: str
    """What happens, in a sentence."""
    source: tuple[str, ...]
    """The addresses of the reports."""
    seen: str
    """The devices and the builds of the OS, or of the toolchain, that the reports name."""
    ops: tuple[str, ...] = ()
    """The ops that it is about, by their full names, and composites, `composite rope`. Empty if the fact is about
    no single op; `finding` or `about` then says what it is about, or it is about assets and how apps load them."""
    where: tuple[Construct, ...] = ()
    """The conditions on such an op; all must hold."""
    finding: str = ""
    """The finding of an audit that it explains, as the beginning of its text: `f32 values`."""
    about: str = ""
    """The construct in words, where nothing looks for it."""
    healed: str = ""
    """The build without it; empty if none is known. patcomp says nothing of what is healed."""
    advice: str = ""
    """What to do."""
    rules: tuple[str, ...] = ()
    """The rules of targets that avoid it."""
    avoided: str = ""
    """Why no program of patcomp has it, or which other part of patcomp avoids it."""
    quiet: str = ""
    """Why a conversion does not warn of it although the severity is high; an audit lists it."""
    milliseconds: tuple[float, float] | None = None
    """The time that the reports measured for one such place, least and most."""

    @property
    def warned(self) -> bool:
        """Whether a conversion warns of the construct: the numbers are wrong, or the process ends."""
        return (
            bool(self.ops) and self.severity in ("wrong", "aborts") and not (self.quiet or self.avoided or self.healed)
        )

    @property
    def audited(self) -> bool:
        """Whether an audit looks for the construct."""
        return bool(self.ops) and not (self.avoided or self.healed)

    def fits(self, op: Operation, module: IRModule) -> bool:
        """Whether an op, which is one of `ops`, has the construct."""
        return all(each.holds(op, module) for each in self.where)

    @property
    def construct(self) -> str:
        """The construct in words."""
        listed = ", ".join(name.removeprefix("coreai.").removeprefix("decomposable.") for name in self.ops)
        return ", ".join(filter(None, [listed or self.finding or self.about, *(each.says for each in self.where)]))
