"""A defect of the toolchain, and the program that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from patcomp.errors import Problem
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule

if TYPE_CHECKING:
    from patcomp.patterns.statistics import Statistics

Detect = Callable[[CoreaiOp, IRModule], Iterator[str]]
"""The problems that an op with correct types causes; each says what happens and what to write instead."""

Mend = Callable[[IRModule, "Statistics"], None]
"""Rewrites a module in place so that the toolchain computes it rightly, and records each rewrite."""

DefectStage = Literal["recover", "lowered", "optimize"]
"""When a defect is mended: before the rules of recover; after each stage from lower on that rewrote something; or at
the end of optimize."""

Symptom = Literal["dies", "is refused", "is wrong"]
"""What a toolchain with the defect does with a program: ends its process, raises an error, or gives wrong numbers."""


@dataclass(frozen=True)
class Probe:
    """A program that a toolchain without the defect saves, loads and runs with these numbers."""

    program: str
    """Its text; the entry point is `main`."""
    inputs: Mapping[str, Any]
    """Numbers by name, nested lists or arrays; their element types are those of the arguments."""
    gives: Mapping[str, Any]
    """The right outputs by name."""
    symptom: Symptom
    """What a toolchain with the defect does instead."""
    states: Mapping[str, Any] = field(default_factory=dict)
    """The contents of states by name before the call."""


@dataclass(frozen=True)
class Defect:
    """A program that is right, and that a version of the toolchain aborts on, refuses or computes wrongly."""

    name: str
    """The name of its file."""
    says: str
    """What the toolchain does, in a sentence."""
    probes: tuple[Probe, ...] | str
    """Programs that show the defect, which is healed if all of them give the right numbers; or why there are none."""
    seen_in: tuple[str, ...] = ("1.0.0b3",)
    """The versions of `coreai-core` on which the probes failed."""
    healed_in: tuple[str, ...] = ()
    """The versions on which every probe and the tests passed: patcomp does nothing about the defect there."""
    detect: Mapping[str, Detect] = field(default_factory=dict)
    """What the verifier asks of each op, by the op's name; `coreai.graph` for signatures. If the end of optimize mends
    the defect, it is asked of finished programs only."""
    mend: Mend | None = None
    ops: tuple[str, ...] = ()
    """The ops that a program to mend has at least one of; empty for any program."""
    stage: DefectStage = "optimize"
    """When it is mended."""
    after: tuple[str, ...] = ()
    """The names of the defects that are mended before, in the same stage; beside them why, or that the order is free:
    then it only makes the order the same in every conversion."""
    warn: Callable[[IRModule], Iterator[Problem]] | None = None
    """What the user is told of a converted program."""
    met_in: tuple[str, ...] = ()
    """Files outside of this folder that go around the defect as well; they do so for every version."""

    @property
    def action(self) -> str:
        """What patcomp does: `mends, refuses`."""
        actions = {"mends": self.mend, "refuses": self.detect, "warns": self.warn, "goes around": self.met_in}
        return ", ".join(name for name, done in actions.items() if done)

    def is_on(self, version: str | None) -> bool:
        """Whether patcomp does something about it for a version; None where no toolchain is installed."""
        return version not in self.healed_in

    def state(self, version: str | None) -> str:
        """What is known of a version: `present`, `healed`, or `not probed`, for which the defect is on."""
        if version is None:
            return "no toolchain"
        return "healed" if version in self.healed_in else "present" if version in self.seen_in else "not probed"
