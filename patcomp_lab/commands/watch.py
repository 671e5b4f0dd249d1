"""`patcomp rule watch`: what the rules of a file do to a model, again at each save of the file."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from patcomp.commands.common import (
    UsageError,
    check_page,
    counted,
    hide_export_warnings,
    load_catalogs,
    run_file,
    say,
    tell,
    write_page,
)
from patcomp.commands.models import ModelArgument, ModelOptions, converted_model, load_sources
from patcomp.commands.options import takes_options
from patcomp.commands.subjects import MODELS, subject_of
from patcomp.conversion.source import add_sources
from patcomp.errors import ConversionWarning, PatcompError

if TYPE_CHECKING:
    from patcomp import AIProgram
    from patcomp.patterns import Rule, RuleSet

_SHOWN = 20
"""The places of a rule, and the lines of a difference, that are shown."""

_PAUSE = 0.3
"""The seconds between two looks at the files."""


@takes_options
def watch_rules(
    file: Annotated[Path, typer.Argument(help="A file FILE.py that declares rules.", show_default=False)],
    model: ModelArgument,
    rule: Annotated[
        list[str] | None, typer.Option(help="Only the rule of this name; may be given several times.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write the report, which begins with the rule.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Run the rules once, and do not wait for changes.")] = False,
    *,
    options: ModelOptions,
) -> None:
    """Run the rules of a file on a model, again at each save: which fired, which came close, what they change.

    The model is exported once, and again when its own file is saved. Ctrl-C ends.

    $ patcomp rule watch my_rules.py nets.py:net
    """
    hide_export_warnings()
    if not file.is_file():
        raise UsageError(f"there is no file {file}; `patcomp rule new NAME` writes one")
    if html is not None:
        check_page(html)
    subject_of(model, "rule watch", MODELS)  # a wrong name would be waited for
    watch = _Watch(file, model, options, rule or (), html)
    if once:
        tell(watch.answer())
        return
    with suppress(KeyboardInterrupt):
        for _ in changes(watch.files, pause):
            say(f"{file} on {model}")
            try:
                tell(watch.answer(), flush=True)
            except (PatcompError, LookupError, OSError, ValueError) as error:
                say(f"error: {error}")
            say(f"watching {', '.join(map(str, watch.files))}; Ctrl-C ends")


def pause() -> None:
    """Wait until the next look at the files."""
    time.sleep(_PAUSE)


def changes(files: Sequence[Path], pause: Callable[[], object]) -> Iterator[None]:
    """Yield at first, and each time after one of some files was saved.

    Args:
        files: the files. While one is gone, as in the moment when an editor replaces it, nothing is yielded.
        pause: is called between two looks at the files.
    """

    def state() -> list[tuple[int, int]] | None:
        try:
            return [(found.st_mtime_ns, found.st_size) for found in map(Path.stat, files)]
        except FileNotFoundError:
            return None

    shown: list[tuple[int, int]] | None = None
    while True:
        now = state()
        if now is not None and now != shown:
            shown = now
            yield
        pause()


@dataclass
class _Watch:
    """The rules of a file on a model."""

    file: Path
    model: str
    options: ModelOptions
    only: Sequence[str]
    """The names of the rules to show; all if it is empty."""
    html: Path | None
    _without: tuple[int, AIProgram] | None = field(default=None, init=False)
    """The program without the rules, and when the file of its model was saved."""

    @property
    def model_file(self) -> Path:
        """The file of the model."""
        name, separator, _ = self.model.rpartition(".py:")
        return Path(f"{name}.py" if separator else self.model)

    @property
    def files(self) -> list[Path]:
        """The file of the rules, and that of the model, if it is another one."""
        is_other = self.model_file.is_file() and not self.model_file.samefile(self.file)
        return [self.file, *([self.model_file] if is_other else [])]

    def answer(self) -> str:
        """Which rules fired and where, which came close, and what they change in the program.

        Raises:
            PatcompError: the file or the model cannot be run or converted.
            UsageError: the file has no rules, or none of a name.
        """
        from patcomp.patterns import collect

        catalog = run_file(self.file)
        rules = collect(catalog)
        shown = self._chosen(rules)
        before = self._program_without()
        assert before.history is not None
        from patcomp import TorchConverter
        from patcomp.ir.difference import difference

        converter = TorchConverter(catalog=[catalog, *load_catalogs(self.options.catalog)], random="inputs")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConversionWarning)  # what concerns a rule is said below
            after = add_sources(converter, self._sources).to_coreai()
        change = str(difference(before.module, after.module))
        if self.html is not None:
            self._write_report(after, shown, change)
        lines = [line for each in shown for line in _about(each, after)]
        return "\n".join(
            [*lines, *_cut(f"the program with {self.file.name}, compared with the one without it", change)]
        )

    def _chosen(self, rules: RuleSet) -> list[Rule]:
        known = [each.name for each in rules]
        if not known:
            raise UsageError(f"{self.file} has no rules")
        if unknown := [name for name in self.only if name not in known]:
            raise UsageError(f"{self.file} has no rule {', '.join(unknown)}; it has {', '.join(known)}")
        return [each for each in rules if not self.only or each.name in self.only]

    def _program_without(self) -> AIProgram:
        """The model's program without the rules; the model is loaded again if its file was saved."""
        saved = self.model_file.stat().st_mtime_ns if self.model_file.is_file() else 0
        if self._without is None or self._without[0] != saved:
            self._sources = load_sources(self.model, "rule watch", self.options)
            self._without = saved, converted_model(self._sources, self.options)
        return self._without[1]

    def _write_report(self, program: AIProgram, rules: Sequence[Rule], change: str) -> None:
        assert self.html is not None
        assert program.history is not None
        write_page(self.html, program.history.html(program, watched={each.name: change for each in rules}))


def _about(rule: Rule, program: AIProgram) -> Iterator[str]:
    """What a rule did in a conversion, or why it did nothing."""
    assert program.history is not None
    statistics = [report.statistics for report in program.reports]
    problem = next((each.failures[rule.name] for each in statistics if rule.name in each.failures), None)
    if problem is not None:
        yield f"rule {rule.name} is broken: {problem}"
        return
    count = sum(each.fired.get(rule.name, 0) for each in statistics)
    if not count:
        yield f"rule {rule.name}: fired nowhere"
        yield from (f"  {line}" for line in program.history.closest(rule.name).text.splitlines())
        return
    places = [record.place for each in statistics for record in each.records if record.rule == rule.name]
    yield f"rule {rule.name}: fired, {counted(count, 'rewrite')}"
    yield from (f"  {place}" for place in places[:_SHOWN])
    if len(places) > _SHOWN:
        yield f"  and {len(places) - _SHOWN} more"


def _cut(title: str, text: str) -> Iterator[str]:
    """A title and the first lines of a text."""
    lines = text.splitlines()
    yield f"{title}:"
    yield from (f"  {line}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"  and {len(lines) - _SHOWN} more lines; --html FILE shows all"
