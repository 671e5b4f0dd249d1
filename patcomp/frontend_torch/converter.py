"""`TorchConverter`: stages exported programs and modules, and converts them into an `AIProgram`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from patcomp.emit.program import AIProgram, Stages
from patcomp.errors import PatcompError, Problem, StageError, UnsupportedError
from patcomp.frontend_torch.decompose import Decomposer, functional
from patcomp.frontend_torch.decompositions import get_decomp_table
from patcomp.frontend_torch.importer import import_program, operator_name
from patcomp.frontend_torch.provenance import origin_of
from patcomp.frontend_torch.signature import Signature, check_names, signature_of
from patcomp.ir import aten
from patcomp.ir.locations import UNKNOWN
from patcomp.ir.module import IRModule
from patcomp.patterns import Rejected, RuleSet, collect
from patcomp.rewrites import Dumps, Widths, explain, known_composites, run_pipeline, why_not


class ProgramTypeError(PatcompError, TypeError, AttributeError):
    """Something else than an `ExportedProgram` was given where one is needed."""


class EntrypointError(PatcompError, ValueError, RuntimeError):
    """An entry point name that is not staged."""


@dataclass(frozen=True)
class _Staged:
    name: str
    program: ExportedProgram
    expansions: dict[Node, GraphModule]
    signature: Signature
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    given: tuple[Sequence[str] | None, Sequence[str] | None]
    is_module: bool


class TorchConverter:
    """Converts PyTorch programs to Core AI.

        program = TorchConverter().add_exported_program(exported).to_coreai()

    Args:
        mode: `Mode.DEBUG` keeps on every op where it comes from; `Mode.RELEASE` drops that.
        catalog: Python modules of rules that are tried before patcomp's own; a rule of the same name as
            one of patcomp's replaces it.
        int64: what becomes of 64-bit integers, which indices cannot be: `"narrow"`, 32 bits, where constants and
            inputs that do not fit are errors; `"keep"`, 64 bits but for indices; `"error"`, they are refused.
        float64: the same for 64-bit floats.

    Raises:
        ValueError: another choice for 64-bit numbers.
    """

    class Mode(Enum):
        """How much the program remembers of its source."""

        DEBUG = "debug"
        RELEASE = "release"

    def __init__(
        self,
        *,
        mode: TorchConverter.Mode = Mode.DEBUG,
        catalog: Iterable[ModuleType] = (),
        int64: str = "narrow",
        float64: str = "narrow",
    ):
        from patterns_catalog import default_rules

        self.mode = self.Mode(mode)
        self.widths = Widths(int64, float64)
        self.rules: RuleSet = default_rules()
        if catalog := list(catalog):
            self.rules = self.rules.preceded_by(collect(*catalog), override=True)
        self._staged: dict[str, _Staged] = {}

    # ---- staging ----------------------------------------------------------------------------------

    def add_exported_program(
        self,
        exported_program: ExportedProgram,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        entrypoint_name: str = "main",
    ) -> TorchConverter:
        """Stages an exported program, decomposed with `get_decomp_table()`; returns the converter.

        Args:
            exported_program: the program; neither it nor its weights are changed or copied.
            input_names: a name for each input, in order; by default the names of `forward`'s parameters.
            output_names: a name for each output; by default the names of the nodes that compute them.
            state_names: a name for each mutated buffer and input.
            entrypoint_name: the graph's symbol; unique among what is staged.

        Raises:
            ProgramTypeError: not an `ExportedProgram`.
            UnsupportedError: the program is not decomposed, or holds ops, inputs or outputs that cannot be
                converted; all of them are listed, with module path and source line. It is a `ValueError`.
            ValueError: names of the wrong number, repeated or empty, or an entry point that is staged already.
        """
        self._stage(exported_program, input_names, output_names, state_names, entrypoint_name, is_module=False)
        return self

    def add_pytorch_module(
        self,
        model: nn.Module | None = None,
        export_fn: Callable[[nn.Module], ExportedProgram] | None = None,
        externalize_modules: Sequence[Any] | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        entrypoint_name: str = "main",
        *,
        module: nn.Module | None = None,
    ) -> TorchConverter:
        """Stages a module through `export_fn`, which exports and decomposes it; returns the converter.

        Args:
            model: the module (`module=` means the same).
            export_fn: returns the decomposed `ExportedProgram` of the module; called once, now.
            externalize_modules: submodules to keep as graphs of their own; not supported yet.
            input_names, output_names, state_names, entrypoint_name: as in `add_exported_program`.

        Raises:
            RuntimeError: `export_fn` failed; its error is the cause.
            TypeError: no module or no `export_fn`.
            As `add_exported_program` otherwise.
        """
        given = model if model is not None else module
        if given is None or export_fn is None:
            raise TypeError("add_pytorch_module needs a model and export_fn=")
        if externalize_modules:
            raise UnsupportedError(
                "externalize_modules is not supported yet:",
                [Problem(f"{getattr(item, '__name__', item)} cannot be externalized") for item in externalize_modules],
            )
        self._check_entrypoint(entrypoint_name)
        try:
            program = export_fn(given)
        except Exception as error:
            raise RuntimeError(
                f"Your model failed to export: {error}\nexport_fn must return "
                "torch.export.export(model, args).run_decompositions(patcomp.get_decomp_table())"
            ) from error
        self._stage(program, input_names, output_names, state_names, entrypoint_name, is_module=True)
        return self

    def _check_entrypoint(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"entrypoint_name must be a string, got {name!r}")
        if not name.strip():
            raise ValueError("entrypoint_name must not be empty")
        if name in self._staged:
            raise ValueError(f"a program with entrypoint_name={name!r} is already staged; names must be unique")

    def _stage(
        self,
        program: ExportedProgram,
        input_names: Sequence[str] | None,
        output_names: Sequence[str] | None,
        state_names: Sequence[str] | None,
        name: str,
        *,
        is_module: bool,
    ) -> None:
        self._check_entrypoint(name)
        if not isinstance(program, ExportedProgram):
            raise ProgramTypeError(
                f"expected a torch.export.ExportedProgram, got {type(program).__name__}; export the module with "
                "torch.export.export(model, args), or use add_pytorch_module(model, export_fn=...)"
            )
        program = functional(program)
        expansions, problems = self._decomposed(program)
        signature = None
        try:
            signature = signature_of(program)
        except UnsupportedError as error:
            problems += error.problems
        if problems or signature is None:
            raise UnsupportedError(_headline(problems), problems)
        check_names("state", state_names, ())
        self._staged[name] = _Staged(
            name,
            program,
            expansions,
            signature,
            check_names("input", input_names, signature.inputs),
            check_names("output", output_names, signature.outputs, unique_defaults=True),
            (input_names, output_names),
            is_module,
        )

    def _decomposed(self, program: ExportedProgram) -> tuple[dict[Node, GraphModule], list[Problem]]:
        """What takes the place of nodes that no rule takes, and the nodes for which there is nothing."""
        expansions: dict[Node, GraphModule] = {}
        problems: list[Problem] = []
        for node in program.graph.nodes:
            if not self._decomposer.takes(node):
                continue
            try:
                inside = self._decomposer.graph_of(node) if isinstance(node.target, torch._ops.OpOverload) else None
            except Rejected as rejection:
                problems.append(_problem(node, str(rejection)))
                continue
            except Exception as error:  # whatever PyTorch's decompositions raise
                reason = str(error).partition("\n")[0]
                problems.append(_problem(node, f"unsupported op, taking it apart fails: {reason}"))
                continue
            if inside is None:
                problems.append(_problem(node))
            elif unknown := self._decomposer.unknown(inside):
                problems.append(_problem(node, f"unsupported op, made of {', '.join(unknown)}"))
            else:
                expansions[node] = inside
        return expansions, problems

    @cached_property
    def _known(self) -> frozenset[str]:
        taken = {op for rule in self.rules.procedural() for op in rule.ops}
        # what is only part of patterns may have to be decomposed; what cannot be is reported when it is lowered
        decomposable = {aten.op_name(op.name()) for op in get_decomp_table()}
        return frozenset(taken | (self.rules.pattern_ops() - decomposable))

    @cached_property
    def _decomposer(self) -> Decomposer:
        from patterns_catalog import default_decompositions

        own, of_complex = (
            {
                op: rule.function
                for rules in (default_decompositions(), self.rules)
                for op, rule in rules.decompositions(of_complex=flag).items()
            }
            for flag in (False, True)
        )
        return Decomposer(self._known, own, of_complex)

    # ---- conversion -------------------------------------------------------------------------------

    def to_coreai(
        self,
        *,
        entrypoints: Sequence[str] | None = None,
        recover: str | Iterable[str] = "all",
        dump_ir: str | Path | None = None,
        verbose: bool = False,
    ) -> AIProgram:
        """Converts what is staged, in the order of staging.

        Args:
            entrypoints: convert only these entry points.
            recover: which composites the program may have: `"all"`, `"none"` or their names, `["rms_norm"]`. What
                others would compute is computed in place; `docs/composites.md` lists all.
            dump_ir: folder for the IR after each stage (`00-import.mlir` ... `07-emit.mlir`); by default the
                environment variable `PATCOMP_DUMP`, else none.
            verbose: show a progress bar.

        Raises:
            RuntimeError: nothing is staged.
            EntrypointError: a name in `entrypoints` is not staged; it is a `ValueError`.
            ValueError: a name in `recover` is no composite; the message lists those there are.
            UnsupportedError: ops that no rule takes, all of them listed.
            StageError: a defect in a rule; names stage, rule and op, and where the IR before that stage is.
        """
        staged, composites = self._selected(entrypoints), _composites(recover)
        if not staged:
            raise RuntimeError("No programs to convert. Call add_exported_program() or add_pytorch_module() first.")
        folder = dump_ir if dump_ir is not None else os.environ.get("PATCOMP_DUMP")
        dumps = Dumps(Path(folder)) if folder else None
        with _progress(verbose) as advance:

            def after_stage(stage: str, module: IRModule) -> None:
                if dumps is not None:
                    dumps.write(stage, module)
                advance(stage)

            try:
                module = self._imported(staged)
                compilation = run_pipeline(
                    module, self.rules, after_stage=after_stage, composites=composites, widths=self.widths
                )
            except StageError as error:
                place = self._dump_before(error, staged, dumps, composites)
                raise StageError(f"{error}\n{place}", error.stage) from error
        if self.mode is self.Mode.RELEASE:
            for op in compilation.module.op.walk():
                op.location = UNKNOWN
        if dumps is not None:
            dumps.write("emit", compilation.module)
        rules, module, stages = self.rules, compilation.module, Stages(lambda: self._replay(staged, composites))
        return AIProgram(
            module,
            compilation.reports,
            stages,
            explain=lambda what: explain(module, rules, what),
            why_not=lambda name: why_not(rules, stages, name),
        )

    def _selected(self, entrypoints: Sequence[str] | None) -> list[_Staged]:
        if entrypoints is None:
            return list(self._staged.values())
        if isinstance(entrypoints, str):
            raise TypeError(f"entrypoints must be a list of names, got the string {entrypoints!r}")
        unknown = [name for name in entrypoints if name not in self._staged]
        if unknown:
            raise EntrypointError(f"no program is staged as {unknown}; there are {list(self._staged) or 'none'}")
        return [item for name, item in self._staged.items() if name in entrypoints]

    def _imported(self, staged: Sequence[_Staged]) -> IRModule:
        module = IRModule()
        problems: list[Problem] = []
        for item in staged:
            try:
                import_program(
                    module, item.program, item.signature,
                    name=item.name, input_names=item.input_names, output_names=item.output_names,
                    expansions=item.expansions,
                )  # fmt: skip
            except UnsupportedError as error:
                problems += error.problems
        if problems:
            raise UnsupportedError(_headline(problems), problems)
        return module

    def _replay(self, staged: Sequence[_Staged], composites: Collection[str] | None) -> dict[str, str]:
        texts: dict[str, str] = {}

        def keep(stage: str, module: IRModule) -> None:
            texts[stage] = module.text()

        compilation = run_pipeline(
            self._imported(staged), self.rules, after_stage=keep, composites=composites, widths=self.widths
        )
        texts["emit"] = compilation.module.text()
        return texts

    def _dump_before(
        self, error: StageError, staged: Sequence[_Staged], dumps: Dumps | None, composites: Collection[str] | None
    ) -> str:
        """Where the IR before the failed stage is; written now unless dumps were asked for."""
        failed = error.stage
        if dumps is None:
            dumps = Dumps(Path(tempfile.mkdtemp(prefix="patcomp-")))
            run_pipeline(
                self._imported(staged),
                self.rules,
                after_stage=dumps.write,
                only_before=failed,
                composites=composites,
                widths=self.widths,
            )
        before = dumps.NAMES[dumps.NAMES.index(failed) - 1]
        return f"the IR before this stage is in {dumps.path(before)}"

    def clear(self, *, entrypoints: Sequence[str] | None = None) -> None:
        """Removes what is staged, or only the named entry points.

        Raises:
            EntrypointError: a name is not staged.
        """
        for item in self._selected(entrypoints):
            del self._staged[item.name]

    def __repr__(self) -> str:
        lines = []
        for item in self._staged.values():
            kind = "nn.Module" if item.is_module else "ExportedProgram"
            inputs, outputs = (list(names or []) for names in item.given)
            lines.append(f"    {item.name}: {kind} {inputs} -> {outputs}")
        return "\n".join(["TorchConverter(", "  programs:", *(lines or ["    (none)"]), ")"])


def _composites(recover: str | Iterable[str]) -> frozenset[str] | None:
    """The composites that `recover=` names; None for all.

    Raises:
        ValueError: one of them does not exist.
    """
    if recover == "all":
        return None
    if isinstance(recover, str) and recover != "none":
        raise ValueError(f"recover must be 'all', 'none' or a list of composites, got {recover!r}")
    chosen = frozenset() if recover == "none" else frozenset(recover)
    known = known_composites()
    if unknown := sorted(chosen.difference(known)):
        raise ValueError(f"no composite is called {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def _headline(problems: Sequence[Problem]) -> str:
    unsupported = sorted({p.op for p in problems if p.message.startswith("unsupported op")})
    named = f"; unsupported ATen ops: {', '.join(unsupported)}" if unsupported else ""
    return f"the program cannot be converted{named}:"


def _problem(node: Node, message: str = "unsupported op") -> Problem:
    origin = origin_of(node)
    advice = "rewrite the model without it, or add a rule for it to a catalog"
    return Problem(message, operator_name(node), node.name, origin.module_path, origin.source, advice)


class _progress:  # noqa: N801  (a context manager used like a function)
    """A progress bar over the stages when asked for, else nothing."""

    def __init__(self, verbose: bool):
        self.bar: Any = None
        if verbose:
            from rich.progress import Progress

            self.bar = Progress()

    def __enter__(self) -> Callable[[str], None]:
        if self.bar is None:
            return lambda stage: None
        self.bar.start()
        task = self.bar.add_task("converting", total=len(Dumps.NAMES) - 1)
        return lambda stage: self.bar.update(task, advance=1, description=stage)

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.stop()
