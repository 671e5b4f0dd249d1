"""What compression did to each weight: bits, bytes, and how far the numbers moved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from patcomp.compression.measures import Measure
from patcomp.compression.weights import OtherWeight
from patcomp.ir.tables import text_of

if TYPE_CHECKING:
    from rich.table import Table

_SIGNALS: Mapping[Measure, str] = {
    "outputs": "signal: of the outputs for the examples, if this weight alone is compressed",
    "weights": "signal: of the weight's own channels, which need not be that of the outputs",
}


@dataclass(frozen=True)
class WeightReport:
    """A weight before and after.

    Attributes:
        name: its name in the model.
        kinds: what reads it.
        shape: its shape.
        scheme: the scheme's name; empty if it was left alone.
        before: bytes before.
        after: bytes after, with scales, palettes and masks.
        signal: how much of the signal is left, in dB, by the report's measure; infinite if nothing is lost, None if it
            is not known: the weight was compressed before the conversion, or the examples do not read it.
        by_examples: whether it was rounded so that outputs stay on example inputs; otherwise each number alone.
    """

    name: str
    kinds: tuple[str, ...]
    shape: tuple[int, ...]
    scheme: str
    before: int
    after: int
    signal: float | None
    by_examples: bool = False

    @property
    def psnr(self) -> float | None:
        """The same as `signal`, by the name that it had when it was relative to the weight's peak."""
        return self.signal


@dataclass(frozen=True)
class Alternative:
    """A way to compress a language model that was measured on a text.

    Attributes:
        name: of the scheme or budget; `"before"` for none.
        bytes: of the weights, with scales, palettes and masks.
        loss: nats for each token of the text.
    """

    name: str
    bytes: int
    loss: float


@dataclass(frozen=True)
class CompressionReport:
    """The weights of a program, in its order. `print(report)` shows a table."""

    weights: Sequence[WeightReport]
    output_psnr: Mapping[str, float]
    """The PSNR of each output against the program before, in dB; empty without example inputs."""
    others: Sequence[OtherWeight] = ()
    """The large weights that no scheme stores."""
    alternatives: Sequence[Alternative] = ()
    """What was measured beside it, the program before first."""
    notes: Sequence[str] = ()
    """What was asked for and not done, and why."""
    measure: Measure = "weights"
    """What `signal` is of a weight: the least PSNR of an output if this weight alone is compressed, against the program
    before (`"outputs"`); or the squared length of the weight's channels over their squared error (`"weights"`)."""

    @property
    def before(self) -> int:
        """Bytes of all weights that could be compressed, before."""
        return sum(weight.before for weight in self.weights)

    @property
    def after(self) -> int:
        """The same, after."""
        return sum(weight.after for weight in self.weights)

    @property
    def elements(self) -> int:
        """How many elements these weights have."""
        return sum(math.prod(weight.shape) for weight in self.weights)

    def as_dict(self) -> dict[str, Any]:
        """The report as data for JSON; numbers that JSON lacks are texts, `"inf"`."""
        return {
            "weights": [{**asdict(weight), "signal": _plain(weight.signal)} for weight in self.weights],
            "measure": self.measure,
            "before": self.before,
            "after": self.after,
            "others": [asdict(weight) for weight in self.others],
            "alternatives": [asdict(each) for each in self.alternatives],
            "notes": list(self.notes),
            "output_psnr": {name: _plain(psnr) for name, psnr in self.output_psnr.items()},
        }

    def __str__(self) -> str:
        return "\n".join([text_of(self._table()), *self._lines()])

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(self._table(), *self._lines())

    def _lines(self) -> list[str]:
        """What is said below the table."""
        outputs = (f"output {name}: {psnr:.1f} dB" for name, psnr in self.output_psnr.items())
        measure = [_SIGNALS[self.measure]] if any(weight.signal is not None for weight in self.weights) else []
        return [*measure, *outputs, *self._rounding(), *self.notes, *map(str, self.others)]

    def _rounding(self) -> Iterator[str]:
        """How many weights were rounded by examples, if any were, and what reads the others."""
        smaller = [weight for weight in self.weights if weight.scheme]
        others = [weight for weight in smaller if not weight.by_examples]
        if len(others) < len(smaller):
            readers = ", ".join(dict.fromkeys(kind for weight in others for kind in weight.kinds))
            rest = f"; {len(others)} by {readers} were rounded number by number" if others else ""
            yield f"{len(smaller) - len(others)} of {len(smaller)} weights were rounded by the examples{rest}"

    def _table(self) -> Table:
        from rich.table import Table

        table = Table("weight", "read by", "shape", "scheme", title="weights", title_justify="left")
        for column in ("bytes", "becomes", "signal, dB"):
            table.add_column(column, justify="right")
        for row in self._rows():
            table.add_row(*row)
        return table

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for weight in self.weights:
            shape = "x".join(map(str, weight.shape))
            numbers = (
                f"{weight.before:,}",
                f"{weight.after:,}",
                "-" if weight.signal is None else f"{weight.signal:.1f}",
            )
            yield weight.name, ", ".join(weight.kinds), shape, weight.scheme or "-", *numbers
        share = f"{self.after / self.before:.1%}" if self.before else "-"
        yield "all", "", "", "", f"{self.before:,}", f"{self.after:,}", share


def _plain(signal: float | None) -> float | str | None:
    return signal if signal is None or math.isfinite(signal) else str(signal)
