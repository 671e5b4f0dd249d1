"""Measure the quality of a compressed language model: its loss on a text beside the loss of the original model, and by
layer."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp import AIProgram
from patcomp.compression import Alternative
from patcomp.errors import ConversionWarning
from patcomp.ir.tables import table_of_numbers, text_of
from patcomp.program.compressed import Plan
from patcomp_models.language.contract import MAIN
from patcomp_models.language.held_out import HeldOut

if TYPE_CHECKING:
    from rich.table import Table

_LAYER = re.compile(r"(.*?\.\d+)\.")
"""The layer of a weight: its name up to the first number."""


@dataclass(frozen=True)
class Quality:
    """A compressed model on a text.

    Attributes:
        name: how it was compressed.
        bytes: of all weights that can be compressed, with their scales and tables.
        bits: the same for each element.
        loss: nats for each token of the text.
        perplexity: e to the power of the loss.
        agreement: the share of tokens after which the most probable token is that of the model before.
        layers: the rise of the loss, in nats, if the weights of one layer alone are compressed.
    """

    name: str
    bytes: int
    bits: float
    loss: float
    perplexity: float
    agreement: float
    layers: Mapping[str, float]


@dataclass(frozen=True)
class QualityReport:
    """A model on a text before and after compression, in one or several ways. `print(report)` shows tables."""

    before: Quality
    after: Sequence[Quality]

    headings: ClassVar[tuple[str, ...]] = ("weights", "bytes", "bits", "loss", "rise", "perplexity", "same token")

    @property
    def alternatives(self) -> list[Alternative]:
        """Bytes and loss of all, as a plot shows them."""
        return [Alternative(each.name, each.bytes, each.loss) for each in (self.before, *self.after)]

    def as_dict(self) -> dict[str, Any]:
        """The report as data for JSON."""
        return {"before": asdict(self.before), "after": [asdict(each) for each in self.after]}

    def texts(self) -> list[tuple[str, ...]]:
        """The rows of the table of all."""
        return [
            (each.name, f"{each.bytes:,}", f"{each.bits:.2f}", f"{each.loss:.4f}",
             "" if each is self.before else f"{each.loss - self.before.loss:+.4f}", f"{each.perplexity:.3f}",
             f"{each.agreement:.1%}")
            for each in (self.before, *self.after)
        ]  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(text_of(table) for table in self.tables())

    def tables(self) -> list[Table]:
        """The table of all, and for each compression with layers the table of these."""
        made = [table_of_numbers("loss on the text", self.headings, self.texts())]
        for each in self.after:
            if each.layers:
                rows = [(layer, f"{lost:+.4f}") for layer, lost in each.layers.items()]
                made.append(table_of_numbers(f"{each.name}: each layer alone", ("layer", "rise"), rows))
        return made


class MeasuredQuality:
    """What compressions do to the loss on a text. Programs and plans are those of a bundle, by role.

    Args:
        programs: before.
        text: the text.
        by_layer: whether each layer is also compressed alone.

    Attributes:
        after: a row for each compression that was measured.
        made: the programs of the last one.
    """

    def __init__(self, programs: Mapping[str, AIProgram], text: HeldOut, *, by_layer: bool = False):
        self._programs, self._text, self._by_layer = programs, text, by_layer
        self._own = text.read_by(programs)
        self._before = 0, 1
        self.after: list[Quality] = []
        self.made: dict[str, AIProgram] = {}

    def add(self, name: str, plans: Mapping[str, Plan]) -> None:
        """Measure a compression."""
        self.made = all_applied(plans)
        reports = [report for program in self.made.values() if (report := program.compression) is not None]
        before, elements = sum(each.before for each in reports), sum(each.elements for each in reports)
        after, found = sum(each.after for each in reports), self._text.read_by(self.made)
        self._before = before, elements
        layers = self._rises(plans) if self._by_layer else {}
        agreement = self._own.agreement(found)
        self.after.append(
            Quality(name, after, 8 * after / elements, found.loss, found.perplexity, agreement, layers)
        )  # fmt: skip

    def report(self, name: str = "before") -> QualityReport:
        """The table of all.

        Args:
            name: how the programs before are called in it.
        """
        size, elements = self._before
        before = Quality(name, size, 8 * size / elements, self._own.loss, self._own.perplexity, 1.0, {})
        return QualityReport(before, self.after)

    def _rises(self, plans: Mapping[str, Plan]) -> dict[str, float]:
        """The rise of the loss for each layer alone."""
        layers: dict[tuple[str, str], list[str]] = {}
        for role, plan in plans.items():
            for name in plan.names:
                match = _LAYER.match(name)
                layers.setdefault((role, match[1] if match else name), []).append(name)
        rises = {}
        for (role, layer), names in layers.items():
            alone = replace(self._programs[role], module=plans[role].module(names))
            loss = self._text.read_by({**self._programs, role: alone}).loss
            rises[layer if len(plans) == 1 else f"{role}: {layer}"] = loss - self._own.loss
        return rises


def all_applied(plans: Mapping[str, Plan]) -> dict[str, AIProgram]:
    """The programs of plans, by role; a warning names each large weight that stays as it is. A table of embeddings or a
    tower may have no weight that a request means, and stays."""
    made = {role: plan.applied() if role == MAIN or plan.names else plan.program for role, plan in plans.items()}
    for program in made.values():
        for other in program.compression.others if program.compression is not None else ():
            warnings.warn(str(other), ConversionWarning, stacklevel=5)
    return made
