"""The stages of a conversion: their texts, a table of what each did, and a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from patcomp.errors import UnknownNameError, near_names
from patcomp.ir.tables import text_of

if TYPE_CHECKING:
    from rich.table import Table


class StageTexts(Mapping[str, str]):
    """The text of the program after each stage: `program.stages["recover"]`.

    It prints as a table of the stages, with the number of ops and rewrites and the seconds of each. Conversion keeps no
    text; the first access to one runs the stages again.
    """

    def __init__(self, replay: Callable[[], dict[str, str]], reports: Sequence[Any] = ()):
        self._replay, self._reports = replay, reports
        self._texts: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._texts is None:
            self._texts = self._replay()
        return self._texts

    def __getitem__(self, stage: str) -> str:
        texts = self._all()
        if stage not in texts:
            raise UnknownNameError(f"there is no stage {stage!r}; there are {near_names(stage, texts, len(texts))}")
        return texts[stage]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __str__(self) -> str:
        return text_of(stage_table(self._reports))

    __repr__ = __str__

    def __rich__(self) -> Any:
        return stage_table(self._reports)


def stage_table(reports: Sequence[Any]) -> Table:
    """The stages of a conversion: ops before and after, rules that fired, rewrites they made, seconds."""
    from rich.table import Table

    table = Table("stage", title="stages", title_justify="left")
    for column in ("ops in", "ops out", "rules fired", "rewrites", "seconds"):
        table.add_column(column, justify="right")
    for report in reports:
        statistics = report.statistics
        counts = (report.ops_before, report.ops_after, len(statistics.fired), statistics.rewrites)
        table.add_row(report.name, *map(str, counts), f"{report.seconds:.3f}")
    return table


@contextmanager
def progress_bar(verbose: bool) -> Iterator[Callable[[str], None]]:
    """Show a progress bar if `verbose`; the value is called with the name of each stage that is done."""
    if not verbose:
        yield lambda stage: None
        return
    from rich.console import Console
    from rich.progress import Progress

    from patcomp.rewrites import Dumps

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("converting", total=len(Dumps.NAMES) - 1)
        yield lambda stage: bar.update(task, advance=1, description=stage)
