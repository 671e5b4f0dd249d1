"""One conversion: staged programs, imported into one module and taken through the stages."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from patcomp.emit.checks import ValueChecks
from patcomp.emit.dims import Dims
from patcomp.errors import Problem, StageError, UnsupportedError, VerifyError
from patcomp.frontend_torch.completeness import preparing
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.externalization.regions import form_regions
from patcomp.frontend_torch.importing.importer import import_program
from patcomp.frontend_torch.interface.core_ml import CompressedWeight
from patcomp.frontend_torch.interface.names import Names
from patcomp.frontend_torch.interface.signature import Signature
from patcomp.ir.anonymous import anonymous, make_anonymous
from patcomp.ir.module import IRModule
from patcomp.ir.verify import verify
from patcomp.patterns import RuleSet
from patcomp.rewrites import Compilation, Dumps, Options, collector_paused, run_pipeline

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Staged:
    """A program that is ready for import, with the user's options."""

    name: str
    program: ExportedProgram
    expansions: dict[Node, GraphModule]
    signature: Signature
    names: Names
    given: tuple[Sequence[str] | None, Sequence[str] | None]
    is_module: bool
    externalized: tuple[str, ...] = ()
    """The requested externalizations."""
    dims: Dims = field(default_factory=Dims)
    """Its dynamic dimensions."""
    checks: ValueChecks | None = None
    """What it checks of values."""
    compressed: Mapping[str, CompressedWeight | str] = field(default_factory=dict)
    """The weights that buffers describe as compressed, by the FX name of their placeholder."""
    diagnostics: tuple[Problem, ...] = ()
    """The warnings that were issued when it was staged."""
    problems: tuple[Problem, ...] = ()
    """Custom ops that nothing lowers yet."""
    lowerings: tuple[str, ...] = ()
    """The lowerings that were registered when it was prepared."""
    left_to_pytorch: tuple[Problem, ...] = ()
    """Why PyTorch had to decompose all of it; empty if it did not."""
    prepare: Callable[[Any], Staged] = field(kw_only=True)
    """Prepares the program again, for a converter."""


@dataclass(frozen=True)
class Conversion:
    """Staged programs and their options; a conversion is deterministic, so it can be repeated."""

    staged: Sequence[Staged]
    rules: RuleSet
    lowerings: Lowerings
    options: Options
    places: bool = True
    """Whether reports and answers about the program name places in the model."""

    def run(self, dumps: Dumps | None, advance: Callable[[str], object]) -> Compilation:
        """Import the programs and run the stages.

        Args:
            dumps: writes the text after each stage; None for no dumps.
            advance: called with the name of each stage that is done.

        Raises:
            UnsupportedError: ops cannot be converted; the message lists all of them.
            StageError: a rule has a defect; the message says where the IR before that stage is.
        """

        def after_stage(stage: str, module: IRModule) -> None:
            if dumps is not None:
                dumps.write(stage, self.shown(module))
            advance(stage)

        try:
            with collector_paused():
                return run_pipeline(self.imported(), self.rules, self.options, after_stage=after_stage)
        except StageError as error:
            found = self._first_defect(error)
            raise StageError(f"{found}\n{self._dump_before(found.stage, dumps)}", found.stage) from found

    def shown(self, module: IRModule, *, locations: bool = False) -> IRModule:
        """A program as its reader may see it: a copy without names of the model if places are not to be named.
        The report keeps `locations`, whose names it does not show."""
        return module if self.places else anonymous(module, locations=locations)

    def texts(self) -> dict[str, str]:
        """The text after each stage; runs the conversion again."""
        texts: dict[str, str] = {}

        def keep(stage: str, module: IRModule) -> None:
            texts[stage] = self.shown(module).text()

        compilation = run_pipeline(self.imported(), self.rules, self.options, after_stage=keep)
        texts["emit"] = self.shown(compilation.module).text()
        return texts

    def html(self, program: Any, **options: Any) -> str:
        """The HTML report of a program that this conversion made; runs the conversion again."""
        from patcomp.report import html_page

        def replay(after_stage: Callable[[str, IRModule], object]) -> Compilation:
            def show(stage: str, module: IRModule) -> None:
                after_stage(stage, self.shown(module, locations=True))

            compilation = run_pipeline(self.imported(), self.rules, self.options, after_stage=show)
            return replace(compilation, module=self.shown(compilation.module, locations=True))

        with collector_paused():
            return html_page(program, replay, self.rules, places=self.places, **options)

    def module_before(self, stage: str) -> IRModule:
        """The program before a stage; runs the conversion again."""
        module = run_pipeline(self.imported(), self.rules, self.options, only_before=stage).module
        if not self.places:
            make_anonymous(module)
        return module

    def imported(self) -> IRModule:
        """The programs in one module, before the first stage.

        Raises:
            UnsupportedError: nodes cannot be imported; the message lists all of them.
        """
        module = IRModule()
        problems: list[Problem] = []
        for item in self.staged:
            try:
                with preparing(item.program, TypeError, ValueError):
                    import_program(
                        module, item.program, item.signature,
                        name=item.name, names=item.names, lowerings=self.lowerings, expansions=item.expansions,
                        compressed=item.compressed,
                    )  # fmt: skip
            except UnsupportedError as error:
                problems += error.problems
        if problems:
            raise UnsupportedError(headline(problems), problems)
        form_regions(module)
        return module

    def _first_defect(self, error: StageError) -> StageError:
        """The error of the stage that caused another stage's error; runs the conversion again.

        A module is not verified after every stage, so a stage may fail because an earlier one produced invalid IR.
        """
        try:
            module = self.imported()
            verify(module, runtime=False)
        except VerifyError as first:
            return StageError(f"the imported program is invalid: {first}", "normalize")
        if self.options.verify_all:
            return error
        try:
            run_pipeline(module, self.rules, replace(self.options, verify_all=True))
        except StageError as first:
            return first
        return error

    def _dump_before(self, failed: str, dumps: Dumps | None) -> str:
        """The file with the IR before the failed stage; it is written now unless the user requested dumps."""
        if dumps is None:
            dumps = Dumps(Path(tempfile.mkdtemp(prefix="patcomp-")))
            run_pipeline(self.imported(), self.rules, self.options, after_stage=dumps.write, only_before=failed)
        before = dumps.NAMES[dumps.NAMES.index(failed) - 1]
        return f"the IR before this stage is in {dumps.path(before)}"


def headline(problems: Sequence[Problem]) -> str:
    """The first line of a report of problems."""
    unsupported = sorted({p.op for p in problems if p.message.startswith("unsupported op")})
    kind = "ATen ops" if all(op.startswith("aten.") for op in unsupported) else "ops"
    named = f"; unsupported {kind}: {', '.join(unsupported)}" if unsupported else ""
    return f"the program cannot be converted{named}:"


@contextmanager
def progress_bar(verbose: bool) -> Iterator[Callable[[str], None]]:
    """Show a progress bar if `verbose`; the value is called with the name of each stage that is done."""
    if not verbose:
        yield lambda stage: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("converting", total=len(Dumps.NAMES) - 1)
        yield lambda stage: bar.update(task, advance=1, description=stage)
