"""One conversion: staged programs, imported into one module and taken through the stages."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from patcomp.emit.dims import Dims
from patcomp.errors import Problem, StageError, UnsupportedError
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.externalization.regions import form_regions
from patcomp.frontend_torch.importing.importer import import_program
from patcomp.frontend_torch.interface.names import Names
from patcomp.frontend_torch.interface.signature import Signature
from patcomp.ir.module import IRModule
from patcomp.patterns import RuleSet
from patcomp.rewrites import Compilation, Dumps, Options, run_pipeline


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
    diagnostics: tuple[Problem, ...] = ()
    """The warnings to issue when it is converted."""
    problems: tuple[Problem, ...] = ()
    """Custom ops that nothing lowers yet."""
    lowerings: tuple[str, ...] = ()
    """The lowerings that were registered when it was prepared."""
    prepare: Callable[[Any], Staged] = field(kw_only=True)
    """Prepares the program again, for a converter."""


@dataclass(frozen=True)
class Conversion:
    """Staged programs and their options; a conversion is deterministic, so it can be repeated."""

    staged: Sequence[Staged]
    rules: RuleSet
    lowerings: Lowerings
    options: Options

    def run(self, dumps: Dumps | None, advance: Callable[[str], object]) -> Compilation:
        """Imports the programs and runs the stages.

        Args:
            dumps: where the text after each stage goes.
            advance: called with the name of each stage that is done.

        Raises:
            UnsupportedError: ops that cannot be converted, all of them listed.
            StageError: a defect in a rule; says where the IR before that stage is.
        """

        def after_stage(stage: str, module: IRModule) -> None:
            if dumps is not None:
                dumps.write(stage, module)
            advance(stage)

        try:
            return run_pipeline(self.imported(), self.rules, self.options, after_stage=after_stage)
        except StageError as error:
            place = self._dump_before(error, dumps)
            raise StageError(f"{error}\n{place}", error.stage) from error

    def texts(self) -> dict[str, str]:
        """The text after each stage; runs the conversion again."""
        texts: dict[str, str] = {}

        def keep(stage: str, module: IRModule) -> None:
            texts[stage] = module.text()

        compilation = run_pipeline(self.imported(), self.rules, self.options, after_stage=keep)
        texts["emit"] = compilation.module.text()
        return texts

    def module_before(self, stage: str) -> IRModule:
        """The program before a stage; runs the conversion again."""
        return run_pipeline(self.imported(), self.rules, self.options, only_before=stage).module

    def imported(self) -> IRModule:
        """The programs in one module, as the stages get it.

        Raises:
            UnsupportedError: what cannot be imported, all of it listed.
        """
        module = IRModule()
        problems: list[Problem] = []
        for item in self.staged:
            try:
                import_program(
                    module, item.program, item.signature,
                    name=item.name, names=item.names, lowerings=self.lowerings, expansions=item.expansions,
                )  # fmt: skip
            except UnsupportedError as error:
                problems += error.problems
        if problems:
            raise UnsupportedError(headline(problems), problems)
        form_regions(module)
        return module

    def _dump_before(self, error: StageError, dumps: Dumps | None) -> str:
        """The path of the IR before the failed stage; written now unless the user requested dumps."""
        failed = error.stage
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


class Progress:
    """A progress bar over the stages when asked for, else nothing."""

    def __init__(self, verbose: bool):
        self.bar: Any = None
        if verbose:
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True))

    def __enter__(self) -> Callable[[str], None]:
        if self.bar is None:
            return lambda stage: None
        self.bar.start()
        task = self.bar.add_task("converting", total=len(Dumps.NAMES) - 1)
        return lambda stage: self.bar.update(task, advance=1, description=stage)

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.stop()
