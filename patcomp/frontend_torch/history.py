"""The history of exported programs: their conversion, and its repetition for questions about it."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from patcomp.collector import collector_paused
from patcomp.emit.files.manifest import tool_versions
from patcomp.errors import Problem, StageError, UnsupportedError, VerifyError
from patcomp.evaluate.expectation import Expectation
from patcomp.evaluate.registry import Implementation
from patcomp.frontend_torch.completeness import preparing
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.externalization.regions import form_regions
from patcomp.frontend_torch.fx.provenance import model_class
from patcomp.frontend_torch.importing.importer import import_program
from patcomp.frontend_torch.importing.repeats import Repeat, repeats_of
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.frontend_torch.interface.names import in_types_of
from patcomp.frontend_torch.way_in import headline
from patcomp.interface.dims import Dims
from patcomp.ir.module import IRModule
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Operation
from patcomp.patterns.context import UNLIMITED
from patcomp.patterns.installed_catalogs import versions_of
from patcomp.patterns.user_catalogs import Catalog
from patcomp.program.history import History
from patcomp.program.program import AIProgram
from patcomp.rewrites import Compilation, Dumps, run_pipeline
from patcomp.rewrites.repetition import NotRepeatedError, RepeatedLayers
from patcomp.rewrites.target.transposes import CARRY as CARRY_TRANSPOSES
from patcomp.version import __version__

if TYPE_CHECKING:
    from patcomp.frontend_torch.verification.departure import DepartureSearch
    from patcomp.interface.reference import Save
    from patcomp.ir.debug_facts import DebugFacts


_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TorchHistory(History):
    """The history of exported programs."""

    staged: Sequence[Staged]
    lowerings: Lowerings
    catalogs: Sequence[Catalog] = ()
    installed_catalogs: bool = False

    @property
    def versions(self) -> Mapping[str, str]:
        named = {"patterns_catalog": __version__, **versions_of(self.catalogs, self.installed_catalogs)}
        catalogs = ", ".join(f"{name} {version}".strip() for name, version in named.items())
        return {**tool_versions(), "catalogs": catalogs}

    @property
    def model(self) -> str:
        return ", ".join(dict.fromkeys(filter(None, (model_class(item.program.graph) for item in self.staged))))

    def imported(self) -> IRModule:
        """The programs in one module, before the first stage.

        Raises:
            UnsupportedError: nodes cannot be imported; the message lists all of them.
        """
        return self._imported([()] * len(self.staged))[0]

    def _imported(self, repeats: Sequence[Sequence[Repeat]]) -> tuple[IRModule, list[RepeatedLayers]]:
        """The programs in one module, without the layers that the repeats of each leave out; and these layers."""
        module, repetitions = IRModule(), list[RepeatedLayers]()
        problems: list[Problem] = []
        for item, found in zip(self.staged, repeats, strict=True):
            try:
                with preparing(item.program, TypeError, ValueError):
                    repetitions += import_program(module, item, self.lowerings, found)
            except UnsupportedError as error:
                problems += error.problems
        if problems:
            raise UnsupportedError(headline(problems), problems)
        form_regions(module)
        return module, repetitions

    def unlowered(self, module: IRModule) -> Callable[[Operation], Implementation | None]:
        from patcomp.frontend_torch.verification.unlowered import implementation

        return partial(implementation, module)

    def departure_search(
        self, module: IRModule, entrypoint: str, expectation: Expectation, initial: Mapping[str, Any],
        tolerance: float | None,
    ) -> DepartureSearch:  # fmt: skip
        from patcomp.frontend_torch.verification.departure import DepartureSearch
        from patcomp.frontend_torch.verification.values import ValueComparison

        item = self._converted(entrypoint, "by='module'", "verify with the model that was exported, or")
        return DepartureSearch(self, ValueComparison(item, module, expectation, initial, tolerance))

    def debug_facts(self) -> DebugFacts:
        from patcomp.frontend_torch.verification.debug_facts import debug_facts

        if not self.places:
            raise LookupError("a program of Mode.RELEASE has no debug information; convert it with Mode.DEBUG")
        target = self.options.target
        carried = target is not None and CARRY_TRANSPOSES in target.steps
        return {item.name: debug_facts(item, carried=carried) for item in self.staged}

    def reference_run(
        self, entrypoint: str, values: Mapping[str, Any], computed: Collection[str]
    ) -> Callable[[Save], None]:
        from patcomp.frontend_torch.verification.reference_run import save_reference

        item = self._converted(entrypoint, "a reference run", "make it of the program")
        return partial(save_reference, item, values, computed)

    def _converted(self, entrypoint: str, what: str, instead: str) -> Staged:
        """The exported program of an entry point, with weights.

        Raises:
            LookupError: there is none; the message says what needs it, and what to do instead.
        """
        found = {item.name: item for item in self.staged}
        if entrypoint not in found:
            raise LookupError(
                f"{what} needs an entry point that was converted ({', '.join(found)}); {entrypoint!r} was "
                "made of one later"
            )
        if self.later and not found[entrypoint].has_values:
            raise LookupError(
                f"{what} needs the weights of the exported model, which a compressed program does not keep; {instead} "
                "before the program is compressed"
            )
        return found[entrypoint]

    def without(self, weights: Collection[object]) -> Self:
        return replace(self, staged=[item.without(weights) for item in self.staged])

    def program(
        self, compilation: Compilation, initial: Mapping[str, dict[str, Any]], dims: Mapping[str, Dims], seconds: float
    ) -> AIProgram:
        """The program that the conversion made.

        Args:
            compilation: what `run` returned.
            initial: the contents of the states of each entry point.
            dims: the dynamic dimensions of each entry point after the conversion.
            seconds: how long the conversion took.
        """
        module = compilation.module
        states = {name: in_types_of(module.graph(name), state) for name, state in initial.items() if state}
        return AIProgram(
            module,
            calls={item.name: item.call for item in self.staged},
            initial_state={name: MappingProxyType(state) for name, state in states.items()},
            dims=dims,
            checks={item.name: item.checks for item in self.staged if item.checks is not None},
            draws={item.name: item.names.of_draws(item.signature) for item in self.staged if item.signature.draws},
            diagnostics=(*(each for item in self.staged for each in item.diagnostics), *compilation.diagnostics),
            left_to_pytorch=tuple(each for item in self.staged for each in item.left_to_pytorch),
            limits=compilation.limits,
            seconds=seconds,
            history=replace(self, reports=compilation.reports),
        )

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
                if dumps is None and (made := self._by_layers(advance)) is not None:
                    return made
                return run_pipeline(self.imported(), self.rules, self.options, after_stage=after_stage)
        except StageError as error:
            found = self._first_defect(error)
            raise StageError(f"{found}\n{self._dump_before(found.stage, dumps)}", found.stage) from found

    def _by_layers(self, advance: Callable[[str], object]) -> Compilation | None:
        """Convert each layer that a model repeats once; None if no model does, or its layers do not stay equal."""
        options = self.options
        prepared = options.target is not None and options.target.steps  # which read the weights
        if prepared or options.keep or options.budget is not UNLIMITED:
            return None
        repeats = [repeats_of(item) for item in self.staged]
        if not any(repeats):
            return None
        try:
            module, repetitions = self._imported(repeats)
            return run_pipeline(
                module, self.rules, options, after_stage=lambda stage, _: advance(stage), repetitions=repetitions
            )
        except (NotRepeatedError, UnsupportedError) as reason:
            _LOG.info("the program is converted as a whole: %s", reason)
            return None

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
