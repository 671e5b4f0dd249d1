"""Measure the quality of a compressed language model: its loss on a text beside the loss of the original model, and by
layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from patcomp import AIProgram
from patcomp.compression import Alternative, CompressionRequest
from patcomp.ir.tables import text_of
from patcomp.program.compressed import Plan, with_alternatives
from patcomp.targets import Target
from patcomp_models.language.text_loss import Reading, Text

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

    def as_dict(self) -> dict[str, Any]:
        """The report as data for JSON."""
        return {"before": asdict(self.before), "after": [asdict(each) for each in self.after]}

    def __str__(self) -> str:
        return "\n".join(text_of(table) for table in self.tables())

    def tables(self) -> list[Table]:
        """The table of all, and for each compression with layers the table of these."""
        from rich.table import Table

        whole = Table("weights", title="loss on the text", title_justify="left")
        for column in ("bytes", "bits", "loss", "rise", "perplexity", "same token"):
            whole.add_column(column, justify="right")
        for each in (self.before, *self.after):
            rise = "" if each is self.before else f"{each.loss - self.before.loss:+.4f}"
            whole.add_row(
                each.name, f"{each.bytes:,}", f"{each.bits:.2f}", f"{each.loss:.4f}", rise, f"{each.perplexity:.3f}",
                f"{each.agreement:.1%}",
            )  # fmt: skip
        made = [whole]
        for each in self.after:
            if each.layers:
                table = Table("layer", title=f"{each.name}: each layer alone", title_justify="left")
                table.add_column("rise", justify="right")
                for layer, lost in each.layers.items():
                    table.add_row(layer, f"{lost:+.4f}")
                made.append(table)
        return made


def plan_of(
    program: AIProgram, request: CompressionRequest, calibration: Text | None, target: Target | None = None
) -> Plan:
    """How a program is compressed.

    Args:
        program: the program.
        request: what is asked for.
        calibration: a text by which weights are rounded, and a budget chooses schemes.
        target: the device that the program is for; by default that of its conversion.
    """
    examples = None if calibration is None else calibration.examples(program)
    entrypoint = "main" if calibration is None else calibration.entrypoint
    return Plan.of(program, request.config, request.budget, request.bits, examples, entrypoint, target=target)


def measured(
    program: AIProgram,
    text: Text,
    plans: Mapping[str, Callable[[], Plan]],
    *,
    by_layer: bool,
    started: Callable[[str], object] = lambda name: None,
) -> tuple[QualityReport, AIProgram]:
    """What each of several compressions does to the loss on a text, and the program of the last one.

    Args:
        program: the program before.
        text: the text.
        plans: makes the plan of each, by name.
        by_layer: whether each layer is also compressed alone.
        started: is told the name of each before it is made.
    """
    own = text.read_by(program)
    rows, before, made = [], None, program
    for name, plan_of in plans.items():
        started(name)
        plan = plan_of()
        made = plan.applied()
        report = made.compression
        assert report is not None
        elements = report.elements
        before = Quality("before", report.before, 8 * report.before / elements, own.loss, own.perplexity, 1.0, {})
        found = text.read_by(made)
        layers = _rises(program, plan, text, own) if by_layer else {}
        bits = 8 * report.after / elements
        agreement = own.agreement(found)
        rows.append(Quality(name, report.after, bits, found.loss, found.perplexity, agreement, layers))
    assert before is not None
    tried = [Alternative(each.name, each.bytes, each.loss) for each in (before, *rows)]
    return QualityReport(before, rows), with_alternatives(made, tried)


def _rises(program: AIProgram, plan: Plan, text: Text, own: Reading) -> dict[str, float]:
    """The rise of the loss for each layer alone."""
    layers: dict[str, list[str]] = {}
    for name in plan.names:
        match = _LAYER.match(name)
        layers.setdefault(match[1] if match else name, []).append(name)
    return {
        layer: text.read_by(replace(program, module=plan.module(names))).loss - own.loss
        for layer, names in layers.items()
    }
