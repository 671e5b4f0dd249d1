"""What a program costs on the Neural Engine beyond its arithmetic, estimated from public measurements."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from patcomp.compression.scheme import reads_stored
from patcomp.devices import Fact, known_facts
from patcomp.ir.constants import is_constant
from patcomp.ir.module import IRModule
from patcomp.ir.types import BIT_WIDTHS, TensorType, element_name, shape_of
from patcomp.ir.weights import stored_weights
from patcomp.ir.xdsl import Operation, SSAValue, ops_inside
from patcomp.questions.regions import Regions

CHIPS = {"M1": (51e9, 2.0), "M5": (145e9, 4.72)}
"""Of two chips: the bytes of weights that cross the memory in a second, and the memory on the chip in megabytes. The
facts `bandwidth` and `working sets` have the source."""

_SORTS = ("coreai.sort", "coreai.argsort")


@dataclass(frozen=True)
class Estimate:
    """The time that a part of a program takes, by public measurements; no measurement of this program."""

    what: str
    least: float
    """Milliseconds."""
    most: float
    fact: Fact
    """The measurements."""

    def to_dict(self) -> dict[str, Any]:
        """The estimate as plain data."""
        plain = {"what": self.what, "least_ms": self.least, "most_ms": self.most}
        return {**plain, "measured_on": self.fact.seen, "sources": self.fact.source}

    def __str__(self) -> str:
        sources = ", ".join(self.fact.source)
        return f"{self.what}: {self.time} (measured on {self.fact.seen}; {sources})"

    @property
    def time(self) -> str:
        """The time in words: `2.2 to 3.4 ms`."""
        least, most = f"{self.least:.2g}", f"{self.most:.2g}"
        return f"{least} ms" if least == most else f"{least} to {most} ms"


def estimates(module: IRModule, count: int) -> tuple[Estimate, ...]:
    """The estimates for a program: crossings, sorts, and the weights that each call reads.

    Args:
        module: the program.
        count: how often the engine waits for other units.
    """
    found = []
    if count:
        found.append(of_crossings(f"{count} crossing{'s' * (count > 1)} to other units and back", count))
    if any(op.name in _SORTS for op in ops_inside(module.op)):
        found.append(_of_fact("a sort or top-k, whatever its size", "sorts and top-k", 1))
    streamed, expanded = _weight_bytes(module)
    if streamed:
        slow, fast = (CHIPS[chip][0] for chip in ("M1", "M5"))
        more = f" ({expanded:,} on chips that expand them)" if expanded > streamed else ""
        text = f"{streamed:,} bytes of weights, read once{more}"
        found.append(Estimate(text, 1e3 * streamed / fast, 1e3 * expanded / slow, _fact("bandwidth")))
    return tuple(found)


def of_crossings(what: str, count: int) -> Estimate:
    """The time of crossings."""
    return _of_fact(what, "crossings", count)


def _of_fact(what: str, name: str, count: int) -> Estimate:
    fact = _fact(name)
    assert fact.milliseconds is not None
    return Estimate(what, count * fact.milliseconds[0], count * fact.milliseconds[1], fact)


def _fact(name: str) -> Fact:
    return next(fact for fact in known_facts() if fact.name == name)


def _weight_bytes(module: IRModule) -> tuple[int, int]:
    """The bytes of weights as they are stored, and where integers with scales are expanded to float16 in memory."""
    stored = sum(weight.bytes for weight in stored_weights(module))
    more = 0
    for op in ops_inside(module.op):
        if op.name == "coreai.blockwise_shift_scale" and reads_stored(op):
            data, result = op.operands[0], op.results[0]
            more += max(0, _bytes(result, 16) - _bytes(data))
    return stored, stored + more


def _bytes(value: SSAValue, bits: int | None = None) -> int:
    """The bytes of a tensor, in its own type or with so many bits; 0 if its size is not known."""
    if not isinstance(value.type, TensorType):
        return 0
    count = 1
    for size in shape_of(value.type):
        if size is None:
            return 0
        count *= size
    return count * (bits or BIT_WIDTHS[element_name(value.type.element_type)]) // 8


def large_working_sets(module: IRModule) -> list[Operation]:
    """The products whose tensors exceed the memory on the larger chip, so that they wait for the memory."""
    most = CHIPS["M5"][1] * 1e6
    return [
        op
        for op in ops_inside(module.op)
        if getattr(getattr(op, "ROW", None), "multiply_adds", None)
        and not is_constant(op)
        and sum(map(_bytes, (*op.operands, *op.results))) > most
    ]


def crossings_alone(module: IRModule, elsewhere: Mapping[str, Collection[Operation]]) -> dict[str, int]:
    """How often each kind of problem alone cuts the engine's work.

    Args:
        module: the program.
        elsewhere: the ops that run elsewhere, by what the problem is.
    """
    return {what: crossings(module, set(ops)) for what, ops in elsewhere.items()}


def crossings(module: IRModule, elsewhere: set[Operation]) -> int:
    """How often the engine waits for other units, in a call of each entry point."""
    return sum(max(Regions.of(graph, module, elsewhere).count - 1, 0) for graph in module.entry_graphs)
