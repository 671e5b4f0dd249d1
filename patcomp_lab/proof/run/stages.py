"""Compare the program after a stage with the program before it, value by value.

The values of the program after the stage are visited in order. A value that the same op computes from the same values
is equal. One that has the name and the numbers of a value before the stage is a candidate: if symbols are the same,
the two are one value from then on. So what is run on symbols is as small as what one rewrite changes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from patcomp.evaluate.comparison import compare
from patcomp.ir.constants import is_constant
from patcomp.ir.locations import origins
from patcomp.ir.types import shape_of
from patcomp.ir.xdsl import TensorType
from patcomp.program.proof_of_run import Equality, StageProof, Unproved
from patcomp_lab.proof.run.flat import Node
from patcomp_lab.proof.run.parts import PartNumbers, ValueFinding, compared
from patcomp_lab.proof.run.values import StageProgram
from patcomp_lab.proof.worlds import CodeKind


@dataclass
class StageComparison:
    """Compares two programs.

    Args:
        stage: the name of the stage between them.
        before, after: the programs, with the same classes; each value of the first one has its class.
        numbers_before, numbers_after: their numbers.
    """

    stage: str
    before: StageProgram
    after: StageProgram
    numbers_before: PartNumbers
    numbers_after: PartNumbers
    findings: list[ValueFinding] = field(default_factory=list)
    unproved: list[Unproved] = field(default_factory=list)
    same: int = 0
    is_wrong: bool = False
    has_numbers: bool = True
    """Whether the values without a proof are equal on numbers."""

    def proof(self) -> StageProof:
        started = time.perf_counter()
        wanted = self._wanted()
        for node in self.after.flat.nodes:
            self.after.classify(node)
            if node not in wanted or is_constant(node.op):
                continue
            for result in node.results:
                self._value(result, node)
        for name in self.after.flat.outputs:
            self._output(name)
        missing = self.before.flat.outputs.keys() ^ self.after.flat.outputs.keys()
        self.unproved += [Unproved(name, "an output", reason="only one of the programs has it") for name in missing]
        self.is_wrong = self.is_wrong or bool(missing)
        if (reason := self.after.flat.disorder) and not self.before.flat.disorder:
            self.unproved.append(Unproved("", "an access of a state", reason=reason))
            self.is_wrong = True
        return self._said(time.perf_counter() - started)

    def _wanted(self) -> set[Node]:
        """The ops that the outputs need."""
        flat, found, waiting = self.after.flat, set(), list(self.after.flat.outputs.values())
        while waiting:
            node = flat.maker.get(waiting.pop())
            if node is not None and node not in found:
                found.add(node)
                waiting += node.operands
        return found

    # ---- values ---------------------------------------------------------------------------------

    def _value(self, value: int, node: Node) -> None:
        if self.after.of[value] in self.before.members:
            self.same += 1
            return
        for old in self._candidates(value):
            if self._joined(old, value, node, self.after.flat.names.get(value, "")):
                return

    def _joined(self, old: int, value: int, node: Node | None, name: str) -> bool:
        """Prove that two values are equal, and let them be one; with equal numbers also if there is no proof."""
        found = compared(self.before, old, self.after, value, self.numbers_before)
        if found.kind is None:
            if not name:
                return False
            self.unproved.append(_unproved(name, node, found.reason))
            self.has_numbers = self.has_numbers and self._are_known(old, value)
        else:
            self.findings.append(found)
        self.after.join(value, self.before.of[old])
        return True

    def _candidates(self, value: int) -> Iterator[int]:
        """The values before the stage with the same name and equal numbers; they may be the same value."""
        name = self.after.flat.names.get(value)
        for old in self.before.flat.named.get(name, ()) if name is not None else ():
            if self._fit(old, value) and self._difference(old, value) is None:
                yield old

    def _fit(self, old: int, value: int) -> bool:
        types = self.before.flat.types[old], self.after.flat.types[value]
        if not all(isinstance(type_, TensorType) for type_ in types):
            return False
        ranks = [len(shape_of(type_)) for type_ in types]
        return ranks[0] == ranks[1]

    def _are_known(self, old: int, value: int) -> bool:
        """Whether the numbers of both values are known."""
        pairs = zip(self.numbers_before, self.numbers_after, strict=True)
        return all(isinstance(x, Tensor) for before, after in pairs for x in (before.get(old), after.get(value)))

    def _difference(self, old: int, value: int) -> str | None:
        """How the numbers of two values differ; None if they do not, or are not known."""
        for before, after in zip(self.numbers_before, self.numbers_after, strict=True):
            expected, given = before.get(old), after.get(value)
            if not isinstance(expected, Tensor) or not isinstance(given, Tensor):
                continue
            if expected.shape != given.shape:
                return f"the shape {tuple(given.shape)} in place of {tuple(expected.shape)}"
            if expected.is_floating_point() != given.is_floating_point():
                return f"numbers of {given.dtype} in place of {expected.dtype}"
            if not compare("", "", expected, given).passed:
                return _counterexample(expected, given)
        return None

    # ---- outputs --------------------------------------------------------------------------------

    def _output(self, name: str) -> None:
        value, old = self.after.flat.outputs[name], self.before.flat.outputs.get(name)
        if old is None or self.after.of[value] == self.before.of[old]:
            return
        node = self.after.flat.maker.get(value)
        if (difference := self._difference(old, value)) is not None or not self._fit(old, value):
            self.is_wrong = True
            self.unproved.insert(0, self._culprit(name, difference or "a value of another type"))
            return
        self._joined(old, value, node, name)

    def _culprit(self, output: str, difference: str) -> Unproved:
        """The first value with other numbers than the value of its name before the stage."""
        for node in self.after.flat.nodes:
            for value in node.results:
                name = self.after.flat.names.get(value)
                olds = self.before.flat.named.get(name, ()) if name is not None else ()
                if olds and all(self._difference(old, value) is not None for old in olds):
                    inner = self._difference(olds[0], value)
                    return _unproved(name or "", node, f"{inner}; the output {output!r} has {difference}")
        node_of = self.after.flat.maker.get(self.after.flat.outputs[output])
        return _unproved(output, node_of, difference)

    def _said(self, seconds: float) -> StageProof:
        kinds = {found.kind for found in self.findings}
        lemmas = sorted({lemma for found in self.findings for lemma in found.lemmas})
        if self.is_wrong:
            equality = Equality.WRONG
        elif self.unproved:
            equality = Equality.NUMBERS if self.has_numbers else Equality.UNDECIDED
        elif CodeKind.REALS in kinds:
            equality = Equality.REALS
        else:
            equality = Equality.LEMMA if lemmas else Equality.BITS
        return StageProof(
            self.stage, equality, self.same, len(self.findings), tuple(lemmas),
            sum(found.drawn for found in self.findings), tuple(self.unproved), seconds,
        )  # fmt: skip


def _unproved(name: str, node: Node | None, reason: str) -> Unproved:
    if node is None:
        return Unproved(name, "an input", reason=reason)
    place = next(iter(origins(node.op.location)), None)
    return Unproved(name, node.op.name, place.module_path if place else "", place.source if place else "", reason)


def _counterexample(expected: Tensor, given: Tensor) -> str:
    """The element that differs most, with both numbers."""
    apart = (expected.to(torch.float64) - given.to(torch.float64)).abs().nan_to_num(nan=torch.inf)
    at = int(apart.argmax())
    place = [int(each) for each in torch.unravel_index(torch.tensor(at), expected.shape)]
    return (
        f"{given.reshape(-1)[at].item():.6g} in place of {expected.reshape(-1)[at].item():.6g} at {place}, for inputs "
        "that were drawn"
    )
