"""What `AIProgram.prove` returns: how strongly each stage's program equals the program before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from patcomp.errors import MismatchError


class Equality(Enum):
    """How strongly two programs are equal; the strongest first."""

    BITS = "equal to the bit"
    LEMMA = "equal with an identity of numbers"
    REALS = "equal over the reals"
    NUMBERS = "not proved, equal on numbers"
    UNDECIDED = "not proved"
    WRONG = "wrong"

    @property
    def is_proof(self) -> bool:
        return self in (Equality.BITS, Equality.LEMMA, Equality.REALS)


@dataclass(frozen=True)
class Unproved:
    """A value without a proof, or with different numbers."""

    value: str
    """The name of the value, or of the output."""
    op: str
    """The op that computes it after the stage."""
    module: str = ""
    """The module of the model that the op comes from."""
    source: str = ""
    """The line of the model."""
    reason: str = ""
    """Why there is no proof, or the numbers that differ."""

    def __str__(self) -> str:
        if not self.op:
            return self.reason
        place = ", ".join(
            filter(None, [f"in {self.module}" if self.module else "", self.source and f"at {self.source}"])
        )
        return f"%{self.value} = {self.op}{f' {place}' if place else ''}{f': {self.reason}' if self.reason else ''}"


@dataclass(frozen=True)
class StageProof:
    """A stage: whether the program after it equals the program before it, for an entry point."""

    stage: str
    equality: Equality
    same: int = 0
    """How many values are computed by the same op of the same values."""
    proved: int = 0
    """How many values are proved to be equal on symbols."""
    lemmas: tuple[str, ...] = ()
    """The identities of numbers that the proof needs."""
    drawn: int = 0
    """For how many of the proved values integers were drawn numbers."""
    unproved: tuple[Unproved, ...] = ()
    """The values without a proof, in order. What follows from them is compared as if they were equal."""
    seconds: float = 0.0

    @property
    def remark(self) -> str:
        parts = [*self.lemmas]
        if self.drawn:
            parts.append(f"integers were drawn for {self.drawn} values")
        parts += [str(each) for each in self.unproved[:1]]
        if len(self.unproved) > 1:
            parts.append(f"and {len(self.unproved) - 1} more")
        return "; ".join(parts)


@dataclass(frozen=True)
class ProofOfRun:
    """A proof of a conversion: each stage's program beside the program before it.

        program.prove().check()

    It is true if every stage is proved, and prints as a table.
    """

    stages: dict[str, Sequence[StageProof]] = field(default_factory=dict)
    """The stages of each entry point, in order."""
    sizes: dict[str, str] = field(default_factory=dict)
    """For entry points with open sizes, the shapes of the inputs that the proof is about."""

    @property
    def all_stages(self) -> list[StageProof]:
        return [each for stages in self.stages.values() for each in stages]

    @property
    def equality(self) -> Equality:
        """The weakest one of all stages."""
        order = list(Equality)
        return max((each.equality for each in self.all_stages), key=order.index, default=Equality.UNDECIDED)

    def __bool__(self) -> bool:
        return self.equality.is_proof

    def check(self) -> None:
        """Raise if a stage is wrong or not proved.

        Raises:
            MismatchError: the message names the stages and their values.
        """
        if not self:
            failed = [each for each in self.all_stages if not each.equality.is_proof]
            raise MismatchError(
                "the conversion is not proved:\n" + "\n".join(f"  stage {_line(each)}" for each in failed)
            )

    def __str__(self) -> str:
        rows = [("stage", "same ops", "on symbols", "seconds", "verdict")]
        several = len(self.stages) > 1
        for entry, stages in self.stages.items():
            for each in stages:
                name = f"{entry}: {each.stage}" if several else each.stage
                said = each.equality.value + (f" ({each.remark})" if each.remark else "")
                rows.append((name, str(each.same), str(each.proved), f"{each.seconds:.1f}", said))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(row[c].rjust(widths[c]) for c in (1, 2, 3)), row[4]]) for row in rows
        ]
        lines += [f"{entry}: for {sizes}, as sizes are open" for entry, sizes in self.sizes.items()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "equality": self.equality.value,
            "proved": bool(self),
            "sizes": self.sizes,
            "stages": {
                entry: [
                    {
                        "stage": each.stage, "equality": each.equality.value, "same": each.same, "proved": each.proved,
                        "lemmas": list(each.lemmas), "drawn": each.drawn, "seconds": round(each.seconds, 3),
                        "unproved": [vars(value) for value in each.unproved],
                    }
                    for each in stages
                ]
                for entry, stages in self.stages.items()
            },
        }  # fmt: skip


def _line(stage: StageProof) -> str:
    return f"{stage.stage}: {stage.equality.value}{f' ({stage.remark})' if stage.remark else ''}"
