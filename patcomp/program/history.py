"""How a converter made a program: the answers about a program that need more than its IR."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from patcomp.collector import collector_paused
from patcomp.ir.anonymous import anonymous
from patcomp.ir.module import IRModule
from patcomp.patterns import RuleSet
from patcomp.program.proof_of_run import ProofOfRun
from patcomp.program.stages import StageTexts
from patcomp.rewrites import Compilation, Options, StageReport, run_pipeline, specialize
from patcomp.rewrites.options import Sizes
from patcomp.settings import plain_settings
from patcomp.targets import Target

if TYPE_CHECKING:
    from patcomp.evaluate.expectation import Expectation
    from patcomp.evaluate.overflow import Overflow
    from patcomp.evaluate.registry import Implementation
    from patcomp.evaluate.verification import Verification
    from patcomp.interface.reference import Save
    from patcomp.ir.debug_facts import DebugFacts
    from patcomp.ir.xdsl import Operation
    from patcomp.questions.findings import Audit
    from patcomp.questions.ops import Attempt

PROVER = "patcomp_lab.proof.run"
"""The module with `prove`. Proofs stand above programs, which therefore know their prover by name only."""

AfterStage = Callable[[str, IRModule], object]
"""Called with the name of each stage and the program after it."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class History(ABC):
    """What a converter converted, with which rules and options.

    A conversion is deterministic. So no text of a stage is kept: a question about a stage repeats the conversion.
    """

    rules: RuleSet
    options: Options
    places: bool = True
    """Whether answers name places in the model."""
    reports: Sequence[StageReport] = ()
    """What each stage did, in order."""
    later: Mapping[str, IRModule] = field(default_factory=dict)
    """The program after each stage that followed the conversion, by the name of the stage."""

    # ---- what a frontend knows --------------------------------------------------------------------

    @property
    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """`AIProgram.versions`."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """`AIProgram.manifest`."""
        rules = {
            stage.name: {name: rule.rewrites for name, rule in sorted(stage.statistics.rules.items()) if rule.rewrites}
            for stage in self.reports
        }
        options = self.options.to_dict()
        if not self.places:
            del options["keep"]  # the names of modules
        return {**self.versions, "options": options, "rules": {stage: fired for stage, fired in rules.items() if fired}}

    @property
    @abstractmethod
    def model(self) -> str:
        """The classes of the models that were converted, `LlamaForCausalLM`; empty if no program says it."""

    @abstractmethod
    def imported(self) -> IRModule:
        """The program before the first stage."""

    @abstractmethod
    def unlowered(self, module: IRModule) -> Callable[[Operation], Implementation | None]:
        """How the evaluator runs the ops of a program that the stage lower has not replaced yet."""

    @abstractmethod
    def departure_search(
        self, module: IRModule, entrypoint: str, expectation: Expectation, initial: Mapping[str, Any],
        tolerance: float | None,
    ) -> Any:  # fmt: skip
        """A search for the place where a program departs from its model, with `module_errors()`, `departure()` and
        `runtime_departure(run)`.

        Args:
            module: the program.
            initial: the initial contents of the states of the entry point.
            expectation, tolerance: the inputs, what the model computes of them, and the largest difference that passes.

        Raises:
            LookupError: the entry point was made after the conversion, or the weights of the model are gone.
        """

    @abstractmethod
    def debug_facts(self) -> DebugFacts:
        """The facts of the nodes of each entry point, for debuggers.

        Raises:
            LookupError: the program does not keep places in the model.
        """

    @abstractmethod
    def reference_run(
        self, entrypoint: str, values: Mapping[str, Any], computed: Collection[str]
    ) -> Callable[[Save], None]:
        """Run an exported program by PyTorch, and save the values of its nodes.

        Args:
            values: the inputs, and states to start from, by the names in the program.
            computed: the names of the nodes whose values ops of the asset compute.

        Raises:
            LookupError: the entry point was made after the conversion, or the weights of the model are gone.
        """

    @abstractmethod
    def without(self, weights: Collection[object]) -> Self:
        """The same history without references to these tensors. Once nobody else holds them, a repeated conversion sees
        weights without values."""

    # ---- answers ----------------------------------------------------------------------------------

    @cached_property
    def stages(self) -> StageTexts:
        """The text after each stage."""
        return StageTexts(self._texts, self.reports)

    def explain(self, module: IRModule, what: str) -> str:
        """`AIProgram.explain`."""
        from patcomp.questions.programs import explain

        return explain(module, self.rules, what)

    def why_not(self, rule: str) -> str:
        """`AIProgram.why_not`."""
        return self.closest(rule).text

    def closest(self, rule: str) -> Attempt:
        """How close a rule came to a match."""
        from patcomp.questions.programs import closest_attempt

        return closest_attempt(self.rules, self._before, rule, self.options.assume)

    def audit(self, module: IRModule, target: Target, overflows: Sequence[Overflow]) -> Audit:
        """`AIProgram.audit`."""
        from patcomp.questions.audit import audit

        return audit(module, target, self.rules, overflows)

    def specialize(self, module: IRModule, entrypoint: str, variants: Mapping[str, Sizes]) -> IRModule:
        """A module in which variants replace an entry point."""
        with plain_settings():
            return specialize(module, entrypoint, variants, self.rules, self.options)

    def html(self, program: Any, **options: Any) -> str:
        """The HTML report of a program with this history."""
        from patcomp.report import html_page

        def replay(after_stage: AfterStage) -> Compilation:
            def show(stage: str, module: IRModule) -> None:
                after_stage(stage, self.shown(module, locations=True))

            compilation = self.repeated(show)
            return replace(compilation, module=self.shown(compilation.module, locations=True))

        with collector_paused():
            return html_page(
                program,
                replay,
                self.rules,
                closest=self.closest,
                places=self.places,
                target=self.options.target,
                **options,
            )

    def followed_by(self, report: StageReport, module: IRModule) -> Self:
        """The history of a program that a further stage made."""
        return replace(self, reports=(*self.reports, report), later={**self.later, report.name: module})

    # ---- repetition -------------------------------------------------------------------------------

    def repeated(self, after_stage: AfterStage | None = None, *, only_before: str | None = None) -> Compilation:
        """Convert again.

        Raises:
            LookupError: the conversion depends on weights that are gone.
        """
        with plain_settings():
            compilation = run_pipeline(
                self.imported(), self.rules, self.options, after_stage=after_stage, only_before=only_before
            )
        for now, then in zip(compilation.reports, self.reports if self.later else (), strict=False):
            # of steps, a conversion counts what they did in the layers that it did not leave out
            if (now.ops_after, {*now.statistics.fired}) != (then.ops_after, {*then.statistics.fired}):
                raise LookupError(
                    f"the stage {now.name} cannot be repeated, because its rules read weights that were compressed "
                    "since; ask the program before it is compressed, or keep the model"
                )
        return compilation

    def shown(self, module: IRModule, *, locations: bool = False) -> IRModule:
        """A program as its reader may see it: a copy without names of the model if places are not to be named.
        The report keeps `locations`, whose names it does not show."""
        return module if self.places else anonymous(module, locations=locations)

    def _texts(self) -> dict[str, str]:
        texts: dict[str, str] = {}

        def keep(stage: str, module: IRModule) -> None:
            texts[stage] = self.shown(module).text()

        texts["emit"] = self.shown(self.repeated(keep).module).text()
        return texts | {stage: module.text() for stage, module in self.later.items()}

    def _before(self, stage: str) -> IRModule:
        """The program before a stage."""
        if stage not in self._known:
            self._known[stage] = self.shown(self.repeated(only_before=stage).module)
        return self._known[stage]

    @cached_property
    def _known(self) -> dict[str, IRModule]:
        return {}


def known_history(history: History | None) -> History:
    """The history of a program that has one.

    Raises:
        LookupError: no converter made the program.
    """
    if history is None:
        raise LookupError(
            "this program was not made by a converter, so it has no rules and no places in a model to report"
        )
    return history


class Questions:
    """What a program answers by its history."""

    module: IRModule
    history: History | None

    def html(
        self,
        path: str | Path,
        *,
        verification: Verification | None = None,
        times: bool = False,
        command: str = "",
    ) -> Path:
        """Write a report of the conversion as one HTML file, which needs no network and no other file.

            program.html("report.html", verification=program.verify_against(model, inputs, by="module"))

        It shows the graphs of all stages with the rules that made each op; the weights, the work and the tensors of
        each module of the final program; what does not suit each target; composites, warnings and near misses.
        The conversion is repeated for the report. A program that was loaded has one stage and no rules. The file has
        the text of the IR and the paths of modules and source lines, but no weights.

        Args:
            path: the file, which is replaced.
            verification: the result of `verify_against`, to show it in the report.
            times: whether to show the seconds of stages and rules. Without them, the same model gives the same file on
                the same day, or with the same `SOURCE_DATE_EPOCH`.
            command: the command that converted the program, if one did, which the report shows.

        Returns:
            The path.

        Raises:
            OSError: the file cannot be written.
            ValueError: the environment variable `SOURCE_DATE_EPOCH` is not a number.
        """
        from patcomp.emit.files.metadata import creation_day
        from patcomp.emit.files.replacement import check_writable
        from patcomp.report import html_page

        path = Path(path)
        check_writable(path)

        options: dict[str, Any] = {
            "verification": verification,
            "times": times,
            "date": creation_day(),
            "command": command,
        }
        history = self.history
        text = html_page(self, None, RuleSet(()), **options) if history is None else history.html(self, **options)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    @property
    def reports(self) -> Sequence[StageReport]:
        """What each stage of the conversion did, in order; empty if the program was not made by a converter."""
        return () if self.history is None else self.history.reports

    @property
    def stages(self) -> Mapping[str, str]:
        """The text after each stage, by name: `program.stages["recover"]`; empty if the program was not made by a
        converter. The first look at a text repeats the conversion."""
        return {} if self.history is None else self.history.stages

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of patcomp, PyTorch, xDSL, coreai-core and the catalogs that made the program.

        It is empty if the program was not made by a converter.
        """
        return {} if self.history is None else self.history.versions

    @property
    def manifest(self) -> Mapping[str, Any]:
        """How the program was made: its versions, the `options` of the conversion, and under `rules`, how often each
        rule of each stage rewrote. Assets have it in their metadata. It is empty if no converter made the program."""
        return {} if self.history is None else self.history.manifest

    def explain(self, what: str) -> str:
        """Which rules made some ops of the program, and which nodes and lines of the model these come from.

        Args:
            what: the name of a value (`"%linear"`), an FX node (`"linear"`) or a source line (`"model.py:12"`).

        Raises:
            TypeError: `what` is not a text.
            UnknownNameError: no op has this name, node or line; it is a `KeyError`.
            LookupError: the program was not made by a converter.
        """
        if not isinstance(what, str):
            raise TypeError(f"explain takes a value ('%linear'), an FX node or a line ('model.py:12'), got {what!r}")
        return known_history(self.history).explain(self.module, what)

    def why_not(self, rule: str) -> str:
        """Where a rule came closest to a match in the program, and what was missing there.

        Args:
            rule: the name of a rule, as `patcomp catalog list` shows it: `"rms_norm"`.

        Raises:
            TypeError: `rule` is not a text.
            UnknownNameError: there is no such rule; it is a `KeyError`.
            LookupError: the program was not made by a converter.
        """
        if not isinstance(rule, str):
            raise TypeError(f"why_not takes the name of a rule ('rms_norm'), got {rule!r}")
        return known_history(self.history).why_not(rule)

    def prove(self, inputs: Any = None, *, entrypoint: str | None = None) -> ProofOfRun:
        """Prove that each stage's program equals the program before it, for all inputs, up to rounding.

            program.prove((tokens,)).check()

        The conversion is repeated. The import is not proved: `verify_against` compares the program with the model.

        Args:
            inputs: the model's arguments, as `verify_against` takes them. Their sizes are those of the proof, if sizes
                are open, and their integers are used where symbols do not reach what is computed of integers. By
                default sizes are the smallest ones, and integers 0 and 1.
            entrypoint: the graph to prove; by default all of them.

        Returns:
            A `ProofOfRun`, which is true if every stage is proved. It prints as a table with the verdict of each stage,
            and names the ops that are not proved. Its `check()` raises if a stage is wrong or not proved.

        Raises:
            EvaluationError: the inputs are not those of the program.
            LookupError: the program was not made by a converter, the entry point was made later, or the weights of the
                model are gone.
            ValueError: inputs are given for several entry points.
        """
        made: ProofOfRun = import_module(PROVER).prove(self, inputs, entrypoint)
        return made
