"""What a partition says: the parts, what stays in PyTorch and why, and what crosses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch.fx import Node

from patcomp.errors import Problem, printable
from patcomp.partitions.extraction import ModelPart
from patcomp.partitions.graphs import recorded_bytes, type_text
from patcomp.partitions.left import Left


@dataclass(frozen=True)
class Crossing:
    """A tensor or number that goes into parts or comes out of one."""

    value: str
    """The FX node that computes it, or the input or buffer of the model."""
    type: str
    """`float32 2x16`; `number` for a size."""
    bytes: int
    """At the sizes of the example."""
    source: str
    """The part that computes it; `PyTorch`, or `input` for what the model is given."""
    readers: tuple[str, ...]
    """The parts that read it, and `PyTorch` if the rest reads it or returns it."""

    def __str__(self) -> str:
        return f"%{self.value}: {self.type}, {self.bytes:,} bytes, {self.source} -> {', '.join(self.readers)}"


@dataclass(frozen=True)
class PartReport:
    """A part."""

    name: str
    """Its entry point."""
    ops: int
    multiply_adds: int
    """Of its products and convolutions, at the sizes of the example."""

    def __str__(self) -> str:
        return f"{self.name}: {self.ops} ops, {self.multiply_adds:,} multiply-adds"


@dataclass(frozen=True)
class PartitionReport:
    """What converts and what does not; it prints as text."""

    parts: tuple[PartReport, ...]
    left: tuple[Problem, ...]
    """Each op that stays in PyTorch: the reason, op, FX node, module and source line, and what would bring it in."""
    crossings: tuple[Crossing, ...]
    ops: int
    """The ops of the program, without sizes and checks."""
    multiply_adds: int
    """Of the whole program, at the sizes of the example."""

    @property
    def converted_ops(self) -> float:
        """The share of the ops that convert, from 0 to 1; 1 without any ops."""
        return sum(part.ops for part in self.parts) / self.ops if self.ops else 1.0

    @property
    def converted_multiply_adds(self) -> float:
        """The share of the multiply-adds that convert, from 0 to 1; 1 without any."""
        return sum(part.multiply_adds for part in self.parts) / self.multiply_adds if self.multiply_adds else 1.0

    @property
    def crossing_bytes(self) -> int:
        """The bytes that cross in a run: a value counts for each of its readers on another side."""
        return sum(each.bytes * len(each.readers) for each in self.crossings)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON."""
        return {
            **asdict(self),
            "converted_ops": self.converted_ops,
            "converted_multiply_adds": self.converted_multiply_adds,
            "crossing_bytes": self.crossing_bytes,
        }

    def __str__(self) -> str:
        lines = [
            f"{self.converted_ops:.1%} of {self.ops} ops and {self.converted_multiply_adds:.1%} of "
            f"{self.multiply_adds:,} multiply-adds convert, in {len(self.parts)} parts",
            *(f"  {part}" for part in self.parts),
        ]
        groups: dict[tuple[str, str], list[Problem]] = {}
        for problem in self.left:
            groups.setdefault((problem.message, problem.advice), []).append(problem)
        if groups:
            lines.append(f"{len(self.left)} ops stay in PyTorch:")
        for (message, advice), problems in groups.items():
            lines += [f"  {message}", *(f"    {problem.place}" for problem in problems)]
            if words := advice.partition("\n\n")[0]:
                lines.append(f"    to bring in: {words}")
        if self.crossings:
            lines += [f"{self.crossing_bytes:,} bytes cross:", *(f"  {each}" for each in self.crossings)]
        return printable("\n".join(lines))


def report_of(
    left: Left, parts: Sequence[ModelPart], small: Mapping[Node, Problem], adds: Mapping[Node, int]
) -> PartitionReport:
    """The report of a partition.

    Args:
        left: what the converter refuses and the user keeps out.
        parts: of the program.
        small: the nodes of parts that compute too little, with the reason.
        adds: the multiply-adds of each op.
    """
    inside = {node: part.name for part in parts for node in part.nodes}
    outside = []
    for node in left.ops:
        if node not in inside:
            outside.append(left.reasons.get(node) or left.at(node, small[node]))
    described = [
        PartReport(part.name, sum(node in adds for node in part.nodes), sum(adds.get(node, 0) for node in part.nodes))
        for part in parts
    ]
    return PartitionReport(
        tuple(described), tuple(outside), tuple(_crossings(parts, inside)), len(adds), sum(adds.values())
    )


def _crossings(parts: Sequence[ModelPart], inside: Mapping[Node, str]) -> Iterator[Crossing]:
    for node in dict.fromkeys(node for part in parts for node in (*part.inputs, *part.outputs)):
        source = inside.get(node) or ("input" if node.op == "placeholder" else "PyTorch")
        readers = [part.name for part in parts if node in part.inputs]
        others = [user for user in node.users if user not in inside]
        if source in {part.name for part in parts} and others:
            readers.append("PyTorch")
        value = node.meta["val"]
        yield Crossing(node.name, type_text(value), recorded_bytes(value), source, tuple(readers))
