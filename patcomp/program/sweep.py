"""A program in several sizes of its weights, beside itself: bytes, labels and outputs on example inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.compression import Alternative, CompressionRequest, weights_of
from patcomp.evaluate.comparison import psnr_of
from patcomp.evaluate.element_types import to_tensor
from patcomp.ir.tables import table_of_numbers, text_of
from patcomp.ir.types import element_name, storage_bytes
from patcomp.program.compressed import lowered_for
from patcomp.program.examples import Examples

if TYPE_CHECKING:
    from rich.table import Table

    from patcomp.program.program import AIProgram

_LABELS = "logits"
"""How the names of outputs end that score classes."""
_NAMES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


@dataclass(frozen=True)
class SweepOutcome:
    """A program with weights of some size, beside the program that it is compared with.

    Attributes:
        name: how the weights are stored.
        bytes: of all weights that can be compressed, with their scales and tables.
        bits: the same for each element.
        agreement: the share of equal labels and of equal integers, over all examples; None without such outputs. Labels
            are the best classes of outputs that are called logits: along the axis of channels of images, else along the
            last axis.
        signal: the least PSNR of an output of an example, in dB.
    """

    name: str
    bytes: int
    bits: float
    agreement: float | None
    signal: float


@dataclass(frozen=True)
class SweepReport:
    """A program in several sizes of its weights. `print(report)` shows a table."""

    rows: Sequence[SweepOutcome]

    headings: ClassVar[tuple[str, ...]] = ("weights", "bytes", "bits", "same label", "signal, dB")

    @property
    def alternatives(self) -> list[Alternative]:
        """Bytes and loss, as a plot shows them: the error of an output as a part of its peak, where there is one."""
        found = [Alternative(each.name, each.bytes, 10 ** (-each.signal / 20)) for each in self.rows]
        return [each for each in found if each.loss]

    def as_dict(self) -> dict[str, Any]:
        """The report as data for JSON; a signal without error is the text `"inf"`."""
        rows = [asdict(each) for each in self.rows]
        return {"rows": [{**row, "signal": row["signal"] if math.isfinite(row["signal"]) else "inf"} for row in rows]}

    def texts(self) -> list[tuple[str, ...]]:
        """The rows of the table."""
        return [
            (each.name, f"{each.bytes:,}", f"{each.bits:.2f}",
             "-" if each.agreement is None else f"{each.agreement:.1%}", f"{each.signal:.1f}")
            for each in self.rows
        ]  # fmt: skip

    def __str__(self) -> str:
        return text_of(self.tables()[0])

    def tables(self) -> list[Table]:
        """The table."""
        return [table_of_numbers("outputs for the examples", self.headings, self.texts())]


def sweep_program(
    program: AIProgram,
    inputs: Any,
    *,
    reference: AIProgram | None = None,
    calibrate: Any = None,
    budget: str | CompressionRequest | None = None,
    entrypoint: str = "main",
    progress: Callable[[str], object] = lambda name: None,
) -> SweepReport:
    """One table of a program as it is, in 8 and 4 bits, and within a budget.

    Args:
        program: the program, which is not changed.
        inputs: held-out example inputs, one or a list, as `AIProgram.compress` takes them.
        reference: what all are compared with, such as the program of float32 beside one of float16; by default the
            program.
        calibrate: other example inputs, by which weights are rounded.
        budget: `"4.5bits"` or `"30%"`; by default the bytes of `4bit`, with schemes that are chosen for each weight.
        entrypoint: the function.
        progress: is told the name of each before it is made.

    Raises:
        ValueError: no weight can be compressed, or there is no example.
        EvaluationError: the inputs are not those of the program.
    """
    if isinstance(inputs, list) and not inputs:
        raise ValueError("a sweep needs at least one example")
    judge = reference or program
    wanted = Examples.of(judge, inputs, entrypoint).outputs

    def outcome(name: str, made: AIProgram, size: int) -> SweepOutcome:
        outputs = Examples.of(made, inputs, entrypoint).outputs
        return SweepOutcome(name, size, 8 * size / elements, *_compared(wanted, outputs))

    weights = list(weights_of(program.module))
    elements = sum(each.count for each in weights) or 1
    sizes = [storage_bytes(each.shape, each.type.element_type) for each in weights]
    rows = []
    if reference is not None:
        before = sum(storage_bytes(each.shape, each.type.element_type) for each in weights_of(judge.module))
        rows.append(SweepOutcome(floats_of(judge), before, 8 * before / elements, *_compared(wanted, wanted)))
    rows.append(outcome(floats_of(program), program, sum(sizes)))
    after = 0
    for given in ("8bit", "4bit", budget):
        size = after if given is None else None
        request = CompressionRequest.of(given or "8bit", lowered_for(program))
        name = request.text if given is not None else "budget"
        progress(name)
        made = program.compress(
            request, budget=size, inputs=calibrate, entrypoint=entrypoint, calibrate=calibrate is not None
        )
        assert made.compression is not None
        after = made.compression.after
        rows.append(outcome(name, made, after))
    return SweepReport(rows)


def floats_of(program: AIProgram, otherwise: str = "as it is") -> str:
    """The type of most weights, such as `float16`; `otherwise` if there is no weight."""
    counts: dict[str, int] = {}
    for weight in weights_of(program.module):
        name = element_name(weight.type.element_type)
        counts[name] = counts.get(name, 0) + weight.count
    name = max(counts, key=counts.__getitem__, default=otherwise)
    return _NAMES.get(name, name)


def _compared(wanted: Sequence[Mapping[str, Any]], made: Sequence[Mapping[str, Any]]) -> tuple[float | None, float]:
    """The share of equal labels, and the least signal."""
    equal = count = 0
    least = math.inf
    for own, other in zip(wanted, made, strict=True):
        for name, value in own.items():
            first, second = to_tensor(value), to_tensor(other[name])
            if first.is_floating_point() or first.is_complex():
                least = min(least, psnr_of(first, second))
            labels = [_labels(name, each) for each in (first, second)]
            if labels[0] is not None and labels[1] is not None:
                equal += int((labels[0] == labels[1]).sum())
                count += labels[0].numel()
    return equal / count if count else None, least


def _labels(name: str, value: Any) -> Any:
    """The classes of a tensor, or its integers; None of other numbers."""
    if not value.is_floating_point():
        return None if value.is_complex() else value
    return value.argmax(1 if value.dim() == 4 else -1) if name.endswith(_LABELS) and value.dim() else None
