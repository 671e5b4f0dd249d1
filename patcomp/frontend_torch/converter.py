"""`TorchConverter`: stages exported programs and modules, and converts them into an `AIProgram`."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from torch import nn
from torch.export import ExportedProgram

from patcomp.errors import ConversionWarning, Problem, UnsupportedError
from patcomp.frontend_torch.custom.lowerings import Lowering, Lowerings
from patcomp.frontend_torch.custom.metal_kernel import TorchMetalKernel, check_kernels
from patcomp.frontend_torch.externalization.externalize import ModuleChoice, mark_for_externalization
from patcomp.frontend_torch.history import TorchHistory
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.frontend_torch.interface.names import initial_state
from patcomp.frontend_torch.staging import Staging
from patcomp.frontend_torch.way_in import Choices, Request, headline
from patcomp.interface.dims import Dims, check_static
from patcomp.interface.signature import ModelCall
from patcomp.interface.size_variants import size_variants
from patcomp.ir.anonymous import make_anonymous
from patcomp.ir.module import IRModule
from patcomp.narrowing.widths import Choice, Widths
from patcomp.patterns import RuleSet
from patcomp.patterns.installed_catalogs import installed_catalogs as found_catalogs
from patcomp.patterns.installed_catalogs import target_named
from patcomp.patterns.user_catalogs import Catalog, in_front, listed, rules_of, targets_of
from patcomp.program.program import AIProgram
from patcomp.program.stages import progress_bar
from patcomp.pytorch import default_settings
from patcomp.rewrites import Dumps, Options, chosen_assumptions, chosen_composites
from patcomp.rewrites.options import Sizes
from patcomp.rewrites.target import usable_target
from patcomp.targets import Target
from patterns_catalog import all_rules


class TorchConverter:
    """Convert PyTorch programs to Core AI.

        program = TorchConverter().add_exported_program(exported).to_coreai()

    Args:
        mode: `Mode.DEBUG` keeps the location of every op; `Mode.RELEASE` drops them, and numbers values and weights.
        catalog: Python modules, packages or `RuleSet`s of rules that are tried before patcomp's own; a rule of the
            same name as one of patcomp's replaces it.
        installed_catalogs: whether rules of installed packages, which declare them by an entry point of the group
            `patcomp.catalogs`, are tried too, after those of `catalog`. The catalogs of patcomp's own package always
            are.
        without: names of rules to leave out, as `patcomp catalog list` shows them.
        int64: how to lower 64-bit integers. `"narrow"`: to 32 bits, with a warning about results that may not fit;
            `"error"`: the same, but such results are errors; `"keep"`: to 64 bits (indices always have 32 bits).
        float64: the same for 64-bit floats. `docs/types.md` says which results cause a warning.
        random: what becomes of random numbers that a model draws. `"refuse"`: the program is refused; `"inputs"`: each
            draw is an input of the program, after the model's own. `docs/random-numbers.md` has the details.

    Raises:
        ValueError: an unknown choice for 64-bit or random numbers, or a name in `without` that no rule has.
        RuleError: two rules of catalogs have the same name, or an installed catalog cannot be loaded.
        TypeError: an item of `catalog` is not a catalog.
    """

    class Mode(Enum):
        """`RELEASE` removes what tells of the model's source from the program, its asset, its report and the answers
        about it: the names of modules, weights, FX nodes and source lines. `DEBUG` keeps them.

        Inputs, outputs and states keep their names, and so do the graphs of modules that the user externalizes.
        """

        DEBUG = "debug"
        RELEASE = "release"

    def __init__(
        self,
        *,
        mode: TorchConverter.Mode = Mode.DEBUG,
        catalog: Iterable[Catalog] = (),
        installed_catalogs: bool = True,
        without: Iterable[str] = (),
        int64: Choice = "narrow",
        float64: Choice = "narrow",
        random: Literal["refuse", "inputs"] = "refuse",
    ):
        if random not in ("refuse", "inputs"):
            raise ValueError(f"random must be 'refuse' or 'inputs', got {random!r}")

        self.mode = self.Mode(mode)
        self.widths = Widths(int64, float64)
        given = listed(catalog)
        catalogs = [*map(rules_of, given), *(found_catalogs() if installed_catalogs else [])]
        self._catalogs, self._installed_catalogs = given, installed_catalogs
        targets_of(given)  # two of one name are refused at once
        self._target = partial(target_named, catalogs=given, installed=installed_catalogs)
        self._without = frozenset(without)
        self.rules: RuleSet = in_front(all_rules(), catalogs, without)
        self.lowerings = Lowerings(self.rules)
        self._staging = Staging(Choices(self.rules, self.lowerings, random == "inputs"))
        self._kernels: list[TorchMetalKernel] = []

    def __copy__(self) -> TorchConverter:
        """A converter with the same staged programs; both share the weights but are otherwise independent."""
        made: TorchConverter = object.__new__(type(self))
        vars(made).update(vars(self), _staging=self._staging.copy(), _kernels=list(self._kernels))
        made.lowerings = made._staging.choices.lowerings
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchConverter:
        return copy(self)

    # ---- staging ----------------------------------------------------------------------------------

    def add_exported_program(
        self,
        exported_program: ExportedProgram,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        entrypoint_name: str = "main",
        *,
        mutated_inputs: Literal["state", "output"] = "state",
        _externalized_exported_programs: Sequence[Any] | None = None,
    ) -> TorchConverter:
        """Stage an exported program, decomposed or not; return the converter.

        Ops that no rule takes are decomposed here, so `run_decompositions` is not needed. After it, with
        `get_decomp_table()`, with PyTorch's default table or with another one, the program converts too.

        Args:
            exported_program: the program; neither it nor its weights are changed or copied.
            input_names: a name for each input that is not state, in order; by default the names of `forward`'s
                parameters.
            output_names: a name for each output; by default the keys and fields of the model's result, and for outputs
                without one the names of the nodes that compute them.
            state_names: a name for each state: mutated buffers in the order of their registration, then mutated
                inputs; by default `b_` and the buffer's path, and the names of the inputs.
            entrypoint_name: the graph's symbol; unique among the staged programs.
            mutated_inputs: `"state"`, or `"output"`: an input that the model writes to is a plain input, and its
                new value an output after the model's own, by default named `<input>_updated`.
            _externalized_exported_programs: ignored; accepted for scripts that pass the result of
                `_subexport_and_restore`. The program itself contains the externalized modules.

        Raises:
            ProgramTypeError: the argument is not an `ExportedProgram`.
            UnsupportedError: ops, inputs or outputs of the program cannot be converted; the message lists all of them
                with module path and source line. It is a `ValueError`.
            ValueError: there are too many or too few names, a name is repeated or empty, or the entry point is staged
                already.

        Warns:
            ConversionWarning: the program is in training mode, its weights have no values, or it has another property
                that its user may not expect.
        """
        self._staging.check(entrypoint_name)
        request = Request(exported_program, input_names, output_names, state_names, entrypoint_name, mutated_inputs)
        self._staging.prepared(request)
        return self

    def add_pytorch_module(
        self,
        model: nn.Module | None = None,
        export_fn: Callable[[nn.Module], ExportedProgram] | None = None,
        externalize_modules: Sequence[ModuleChoice] | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        entrypoint_name: str = "main",
        *,
        module: nn.Module | None = None,
        mutated_inputs: Literal["state", "output"] = "state",
    ) -> TorchConverter:
        """Export a module by `export_fn` and stage the program; return the converter.

        Args:
            model: the module (`module=` means the same).
            export_fn: returns the `ExportedProgram` of the module, decomposed or not; called once, now.
            externalize_modules: submodules to keep as graphs of their own: `ExternalizeSpec`s, or module classes and
                patterns of module paths for plain graphs. They are marked while `export_fn` runs.
            input_names: as in `add_exported_program`.
            output_names: the same.
            state_names: the same.
            entrypoint_name: the same.
            mutated_inputs: the same.

        Raises:
            RuntimeError: `export_fn` failed; its error is the cause.
            TypeError: `model` is missing, given twice or not a module, or `export_fn` is missing.
            Exception: the errors of `mark_for_externalization` for `externalize_modules`, and those of
                `add_exported_program`.
        """
        given = model if model is not None else module
        if given is None or export_fn is None or (model is not None and module is not None):
            raise TypeError("add_pytorch_module needs a model (model= or module=) and export_fn=")
        if not isinstance(given, nn.Module):
            raise TypeError(f"add_pytorch_module needs an nn.Module, got {type(given).__name__}")
        self._staging.check(entrypoint_name)
        marking = mark_for_externalization(given, externalize_modules or ())
        try:
            with marking:
                program = export_fn(given)
        except Exception as error:
            raise RuntimeError(
                f"Your model failed to export: {error}\nexport_fn must return "
                "torch.export.export(model, args); run_decompositions is not needed"
            ) from error
        request = Request(program, input_names, output_names, state_names, entrypoint_name, mutated_inputs, marking)
        self._staging.prepared(request)
        return self

    def open_problems(self) -> tuple[Problem, ...]:
        """The custom ops of the staged programs that have no lowering yet."""
        return tuple(problem for item in map(self._staging.prepared, self._staging) for problem in item.problems)

    # ---- the user's lowerings -----------------------------------------------------------------------

    def register_torch_lowering(
        self, qualified_name: str, allow_override: bool = False
    ) -> Callable[[Lowering], Lowering]:
        """Decorator that registers a lowering: a function of an FX node that builds `coreai` ops.

            @converter.register_torch_lowering("my_lib::scaled_add")
            def lower_scaled_add(values_map, node, loc):
                x, y = get_operands(values_map, node, [0, 1], loc)
                return coreai.broadcasting_add(x, coreai.broadcasting_mul(y, node.args[2], loc=loc), loc=loc)

        The lowering takes precedence over every rule and decomposition, in all parts of a program, and stays registered
        after `clear()`. It is called with the values of the node's inputs by name, the node, and the location for the
        ops that it builds with `patcomp.ir.coreai`. It returns the node's value or the list of its values, whose types
        must be those that export recorded. Its exceptions propagate, except for those of coreai-core's own ops, which
        cannot take its values.

        Args:
            qualified_name: `namespace::op` for all overloads of an op, or `namespace::op.overload`, which comes first.
            allow_override: replace the lowering of a built-in op, or one that is registered already.

        Raises:
            TypeError: the decorated object is not a function.
            ValueError: the name has another form, or the op has a lowering and `allow_override` is false.
        """
        self.lowerings.check(qualified_name, allow_override)

        def register(function: Lowering) -> Lowering:
            self.lowerings.register(qualified_name, function, allow_override)
            return function

        return register

    def register_custom_kernels(self, kernels: Sequence[TorchMetalKernel]) -> TorchConverter:
        """Register Metal kernels that programs call; return the converter.

        Raises:
            TypeError: an item is not a `TorchMetalKernel`.
            ValueError: a kernel is registered already, or given twice.
        """
        check_kernels(kernels, self._kernels)
        for kernel in kernels:
            self.register_torch_lowering(kernel.qualified_name)(partial(kernel.lower, self.widths))
        self._kernels += kernels
        return self

    # ---- conversion -------------------------------------------------------------------------------

    def to_coreai(
        self,
        *,
        entrypoints: Sequence[str] | None = None,
        recover: Literal["all", "none"] | Iterable[str] = "all",
        assume: Iterable[str] = (),
        target: Literal["cpu", "gpu", "neural_engine"] | Target | None = None,
        fixed: Mapping[str, int] = MappingProxyType({}),
        sizes: Mapping[str, Sequence[int]] = MappingProxyType({}),
        keep: Iterable[str] = (),
        dump_ir: str | Path | None = None,
        verbose: bool = False,
    ) -> AIProgram:
        """Convert the staged programs, in the order of staging.

        Args:
            entrypoints: convert only these entry points.
            recover: the composites to recover: `"all"`, `"none"` or their names, `["rms_norm"]`. The ops of others
                stay inline; `docs/generated/composites.md` lists all composites.
            assume: facts about the programs that rules may rely on but cannot prove, `["masked rows are not read"]`;
                `docs/guide.md` says what each means.
            target: the device that the program is rewritten for, by name or as a `patcomp.targets.Target`; by default
                the program is not rewritten. `docs/targets.md` lists the rewrites of each target.
            fixed: the sizes of dynamic dimensions by name, `{"length": 128}`: part of the program before it is made
                for the target, as with `AIProgram.specialize`. Each entry point takes those of its own dimensions.
            sizes: several sizes by name, `{"length": (128, 256)}`, for `main_128` and `main_256` as with `fixed`.
            keep: modules (`"layers.3"`, `"layers.*.norm"`) and FX nodes (`"mul_7"`) whose ops compute in float32 in a
                program of half precision: one of a model in float16 or bfloat16, or one that a target makes float16.
                Numbers that float16 cannot hold pass between such ops; `AIProgram.needs_float32` finds them.
            dump_ir: folder for the IR after each stage (`00-import.mlir` ...), in place of an earlier conversion's; by
                default the environment variable `PATCOMP_DUMP`, otherwise no dumps.
            verbose: show a progress bar.

        Raises:
            RuntimeError: nothing is staged.
            EntrypointError: a name in `entrypoints` is not staged; it is a `ValueError`.
            TypeError: `keep` is one text.
            UnknownNameError: no op comes from a module or FX node in `keep`.
            ValueError: a name in `recover` is not a composite, or one in `assume` not an assumption, or `target` not a
                target; the message lists the known names. `fixed` or `sizes` do not fit the dimensions, or each other.
            UnsupportedError: no rule takes some ops, or the target takes fixed sizes only and dimensions are dynamic;
                the message lists all of them.
            StageError: a rule has a defect; the message names stage, rule, op and the dump of the stage before.

        Warns:
            ConversionWarning: the program has a property that its user may not expect; `program.diagnostics` has the
                same facts, and those that were found when it was staged. It is a `UserWarning`.
        """
        started = time.perf_counter()
        requests = self._staging.selected(entrypoints)
        composites, assumed = chosen_composites(recover, self.rules), chosen_assumptions(assume, self.rules)
        _check_kept(keep)
        chosen = usable_target(self._target(target), self.rules, self._without)
        if not requests:
            raise RuntimeError("No programs to convert. Call add_exported_program() or add_pytorch_module() first.")
        staged, dims, fixed_sizes = _sized(list(map(self._staging.prepared, requests)), fixed, sizes)
        if chosen is not None and chosen.wants.static_shapes:
            check_static(chosen.name, dims)
        options = Options(composites, assumed, chosen, fixed_sizes, tuple(keep), self.widths)
        if problems := [problem for item in staged for problem in item.problems]:
            raise UnsupportedError(headline(problems), problems)
        with default_settings():
            initial = {item.name: initial_state(item.signature, item.names, self.widths) for item in staged}
        dumps = _new_dumps(dump_ir)
        history = TorchHistory(
            rules=self.rules,
            options=options,
            places=self.mode is not self.Mode.RELEASE,
            staged=staged,
            lowerings=self.lowerings.copy(),
            catalogs=self._catalogs,
            installed_catalogs=self._installed_catalogs,
        )
        with default_settings(), progress_bar(verbose) as advance:
            compilation = history.run(dumps, advance)
        self._finish(compilation.module, dumps)
        for each in compilation.diagnostics:
            warnings.warn(str(each), ConversionWarning, stacklevel=2)
        with default_settings():
            return history.program(compilation, initial, dims, time.perf_counter() - started)

    def _finish(self, module: IRModule, dumps: Dumps | None) -> None:
        """Take the names that `mode` does not keep from a converted module, and add its Metal kernels."""
        if self.mode is self.Mode.RELEASE:
            make_anonymous(module)
        if dumps is not None:
            dumps.write("emit", module)
        for kernel in self._kernels:
            module.kernels |= kernel.functions

    def calls(self) -> dict[str, ModelCall]:
        """How the model of each staged program is called, by entry point."""
        return {request.name: self._staging.prepared(request).call for request in self._staging}

    def dims(self) -> dict[str, Dims]:
        """The dynamic dimensions of each staged program, by entry point."""
        return {request.name: self._staging.prepared(request).dims for request in self._staging}

    def imported(self) -> IRModule:
        """The imported programs, before any stage: `aten` ops as export left them.

        Raises:
            UnsupportedError: ops cannot be imported; the message lists all of them.
        """
        staged = list(map(self._staging.prepared, self._staging))
        history = TorchHistory(rules=self.rules, options=Options(), staged=staged, lowerings=self.lowerings)
        with default_settings():
            return history.imported()

    def clear(self, *, entrypoints: Sequence[str] | None = None) -> None:
        """Remove all staged programs, or only the named entry points.

        Raises:
            EntrypointError: a name is not staged.
        """
        self._staging.remove(self._staging.selected(entrypoints))

    def __repr__(self) -> str:
        lines = [f"    {request}" for request in self._staging]
        custom = [f"  custom_lowerings: {list(self.lowerings)}"] if list(self.lowerings) else []
        return "\n".join(["TorchConverter(", "  programs:", *(lines or ["    (none)"]), *custom, ")"])


def _check_kept(keep: Iterable[str]) -> None:
    if isinstance(keep, str):
        raise TypeError(f"keep takes a list of modules and FX nodes, such as [{keep!r}]")


def _sized(
    staged: Sequence[Staged], fixed: Mapping[str, int], sizes: Mapping[str, Sequence[int]]
) -> tuple[list[Staged], dict[str, Dims], dict[str, Sizes]]:
    """The programs with some sizes fixed, once for each choice of several sizes; their dimensions, and these sizes."""
    made = size_variants({item.name: item.dims for item in staged}, fixed, sizes)
    variants = [(replace(item, name=name), own) for item in staged for name, own in made[item.name].items()]
    dims = {item.name: item.dims.given(own) for item, own in variants}
    return [item for item, _ in variants], dims, {item.name: item.dims.fixed(own) for item, own in variants if own}


def _new_dumps(folder: str | Path | None) -> Dumps | None:
    """The dumps of `dump_ir=`, without the files of an earlier conversion."""
    folder = folder if folder is not None else os.environ.get("PATCOMP_DUMP")
    if not folder:
        return None
    from patcomp.emit.files.replacement import check_writable

    dumps = Dumps(Path(folder))
    check_writable(dumps.path("import"))
    dumps.clear()
    return dumps
