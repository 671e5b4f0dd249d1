"""How many composites of unmodified models are recovered: expected by the modules, and found by the compiler.

    python -m benchmarks.recovery [--markdown] [--only NAME ...] [--jobs 2]

Each architecture is converted with each of its attention implementations, and compared with eager PyTorch on the
evaluator and on the Core AI runtime; then it is converted from every other form of export. With `--markdown`, the
table is written to `docs/generated/recovered-composites.md`.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
import warnings
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from patcomp.commands.tables import markdown_table

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from patcomp import AIProgram
    from patcomp.emit.native import Native
    from tests.networks.zoo import Example

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "generated" / "recovered-composites.md"


@dataclass(frozen=True)
class Recovery:
    """One architecture with one attention implementation."""

    name: str
    attention: str
    expected: dict[str, int] = field(default_factory=dict)
    recovered: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    evaluator_error: float | None = None
    """The largest difference from eager PyTorch, relative to its largest value."""
    runtime_error: float | None = None
    misses: tuple[str, ...] = ()
    """What was not recovered, and why."""
    differences: tuple[str, ...] = ()
    """In which forms other composites are found, and which."""

    @property
    def title(self) -> str:
        return f"{self.name} ({self.attention})" if self.attention else self.name


def measure(name: str, attention: str) -> Recovery:
    """Convert and run one architecture."""
    prepare()
    from patcomp import TorchConverter
    from patcomp.errors import UnsupportedError
    from tests.networks.architectures import FORMS, build, export
    from tests.networks.expected import expected, recovered

    example = build(name, attention)
    wanted = expected(example.model, example.args)
    exported = export(example)
    started = time.perf_counter()
    try:
        program = TorchConverter().add_exported_program(exported).to_coreai()
    except UnsupportedError as error:
        reasons = sorted({f"{problem.op}: {problem.message}" for problem in error.problems})
        return Recovery(name, attention, wanted, misses=(f"not converted: {'; '.join(reasons)}",))
    seconds = time.perf_counter() - started
    found = recovered(program)
    errors = {backend: run_error(program, example, backend) for backend in ("evaluator", "runtime")}
    return Recovery(
        name, attention, wanted, found, seconds, errors["evaluator"], errors["runtime"],
        tuple(_misses(name, attention, program, wanted, found)),
        tuple(filter(None, (_difference(form, export(example, form), found) for form in FORMS[1:]))),
    )  # fmt: skip


def _difference(form: str, exported: ExportedProgram, found: dict[str, int]) -> str:
    """What another form of a program has instead of the composites found; empty where it has the same."""
    from patcomp import TorchConverter
    from patcomp.errors import UnsupportedError
    from tests.networks.expected import recovered

    try:
        other = recovered(TorchConverter().add_exported_program(exported).to_coreai())
    except UnsupportedError as error:
        return f"{form}: {', '.join(sorted({problem.op for problem in error.problems}))} cannot be converted"
    return _compared(form, other, found)


def _compared(form: str, other: dict[str, int], found: dict[str, int]) -> str:
    names = [name for name in sorted(other.keys() | found.keys()) if other.get(name, 0) != found.get(name, 0)]
    return f"{form}: {', '.join(f'{other.get(name, 0)} {name}' for name in names)}" if names else ""


def with_attentions_compared(rows: list[Recovery]) -> list[Recovery]:
    """The rows, with the differences between the attentions of an architecture."""
    first = {row.name: row for row in reversed(rows)}
    return [
        replace(row, differences=(*row.differences, difference))
        if (difference := _compared(f"{row.attention} attention", row.recovered, first[row.name].recovered))
        else row
        for row in rows
    ]


def prepare() -> None:
    """The models and the runtime's child process are those of the tests; their warnings are their own."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)


def run_error(program: AIProgram, example: Example, backend: str) -> float | None:
    """The error of a program's only output; None where the backend is not installed."""
    from tests.networks.expected import relative_error

    if backend == "evaluator":
        return relative_error(program, example, lambda inputs: program.run(inputs))
    if find_spec("coreai") is None:
        return None
    return relative_error(program, example, lambda inputs: native().run(program.module, inputs))


@cache
def native() -> Native:
    """The runtime in a child process, for all models that this process measures."""
    from patcomp.emit.native import Native

    return Native()


def _misses(
    name: str, attention: str, program: AIProgram, wanted: dict[str, int], found: dict[str, int]
) -> Iterable[str]:
    from tests.networks.expected import MISSES, listed_miss

    for composite, count in wanted.items():
        missing = count - found.get(composite, 0)
        if missing > 0:
            listed = listed_miss(name, attention, composite)
            reason = MISSES[listed] if listed else _near_miss(program, composite)
            yield f"{missing} {composite}: {reason}"


def _near_miss(program: AIProgram, composite: str) -> str:
    """Where the rule for a composite came closest, among those whose first op is there at all."""
    from patterns_catalog import default_rules

    word = "attention" if "attention" in composite else composite
    names = [rule.name for rule in default_rules() if word in rule.name and rule.stage == "recover"]
    answers = [" ".join(program.why_not(name).split()) for name in names]
    telling = [answer for answer in answers if "there is no" not in answer and "it applies" not in answer]
    return telling[0] if telling else "no rule comes near" if names else "there is no rule for it"


# ---- the table -------------------------------------------------------------------------------------


def columns() -> dict[str, tuple[str, ...]]:
    """The columns of the table and what each of them sums."""
    prepare()
    from tests.networks.expected import KINDS

    return KINDS


def _cells(row: Recovery) -> list[str]:
    cells = []
    for composites in columns().values():
        wanted = sum(row.expected.get(name, 0) for name in composites)
        found = sum(row.recovered.get(name, 0) for name in composites)
        cells.append(f"{found}/{wanted}" if wanted or found else "")
    return cells


def _same(row: Recovery) -> str:
    return "no" if row.differences else "yes"


def error_text(value: float | None) -> str:
    """An error in a table; empty where it was not measured."""
    return "" if value is None else f"{value:.0e}"


def _errors(row: Recovery) -> tuple[str, str]:
    return error_text(row.evaluator_error), error_text(row.runtime_error)


def _totals(rows: list[Recovery]) -> list[str]:
    totals = []
    for composites in columns().values():
        pairs = [(row.recovered.get(name, 0), row.expected.get(name, 0)) for row in rows for name in composites]
        totals.append(f"{sum(min(pair) for pair in pairs)}/{sum(wanted for _, wanted in pairs)}")
    return totals


def terminal_table(rows: list[Recovery]) -> Table:
    """The table for the terminal."""
    table = Table(title="Composites recovered from unmodified models, of those that their modules have")
    for heading in ("model", *columns(), "same in all forms", "seconds", "evaluator", "runtime"):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=heading == "model")
    for row in rows:
        cells = (row.title, *_cells(row), _same(row), f"{row.seconds:.2f}", *_errors(row))
        table.add_row(*cells, style="yellow" if row.misses or row.differences else None)
    table.add_section()
    table.add_row("all", *_totals(rows), "", f"{sum(row.seconds for row in rows):.2f}")
    return table


def markdown(rows: list[Recovery]) -> str:
    """The document."""
    numbers = [*columns(), "same in all forms", "seconds", "evaluator", "runtime"]
    cells = [(row.name, row.attention, *_cells(row), _same(row), f"{row.seconds:.2f}", *_errors(row)) for row in rows]
    cells.append(("**all**", "", *_totals(rows), "", "", "", ""))
    lines = [
        "# Composites recovered from unmodified models",
        "",
        "`python -m benchmarks.recovery --markdown` writes this page. A cell has the number of composites that the",
        "compiler recovered, and the number that the model has by its modules; `tests/networks/expected.py` has the",
        "counting rule. The column `seconds` is the time of `to_coreai()`; the last columns are the largest errors",
        "against eager PyTorch, relative to its largest value. A program has these forms: decomposed with",
        "`get_decomp_table()`, with PyTorch's default table or not at all, and with either attention.",
        "",
        *markdown_table(["model", "attention", *numbers], cells, right_aligned=numbers),
    ]
    lines += ["", "## Not recovered", "", *_listed((miss, row.title) for row in rows for miss in row.misses)]
    lines += ["", "## Which models have which", ""]
    lines += _listed((name, row.name) for row in rows for name in row.recovered)
    lines += ["", "## Different in some form", ""]
    lines += _listed((difference, row.title) for row in rows for difference in row.differences)
    return "\n".join(lines) + "\n"


def _listed(found: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each text, with the models that it is about."""
    titles: dict[str, dict[str, None]] = {}
    for text, title in found:
        titles.setdefault(text, {})[title] = None
    lines = [f"- {text.replace('|', chr(92) + '|')} — {', '.join(models)}" for text, models in sorted(titles.items())]
    return lines or ["Nothing."]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--markdown", action="store_true", help="write the table to docs/generated/recovered-composites.md"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these architectures")
    parser.add_argument("--jobs", type=int, default=2, help="processes that measure at the same time")
    options = parser.parse_args()
    prepare()
    from tests.networks.architectures import VARIANTS

    variants = [variant for variant in VARIANTS if not options.only or variant[0] in options.only]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        rows = with_attentions_compared(list(pool.map(measure, *zip(*variants, strict=True))))
    console = Console(width=max(Console().width, 120))  # also where the output is no terminal
    console.print(terminal_table(rows))
    for row in rows:
        for text in (*row.misses, *row.differences):
            console.print(f"{row.title}: {text}", highlight=False)
    if options.markdown:
        DOCUMENT.write_text(markdown(rows))
        console.print(f"written: {DOCUMENT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
