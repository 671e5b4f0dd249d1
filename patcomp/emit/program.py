"""`AIProgram`: a converted program, to read, run, check and save."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from patcomp.emit.asset import Asset, Writer, as_array, has_toolchain, save_asset, temporary_asset
from patcomp.emit.checks import ValueChecks
from patcomp.emit.composite_calls import CompositeReport, composite_calls
from patcomp.emit.constraints import constrain
from patcomp.emit.dims import Dims
from patcomp.emit.hand_over import HandOver
from patcomp.emit.metadata import entries_of
from patcomp.emit.notebook import html_summary
from patcomp.emit.replacement import check_writable
from patcomp.emit.signature import EntrySignature, ModelCall, entry_signature
from patcomp.emit.summary import Summary, weight_sizes
from patcomp.emit.variants import static_sizes
from patcomp.errors import ConversionWarning, EvaluationError, Problem, UnknownNameError, near_names
from patcomp.ir.module import IRModule, graph_name, names_of
from patcomp.ir.types import HandleType, TensorType, shape_of
from patcomp.ir.verify import verify
from patcomp.targets import Target, chosen_target

if TYPE_CHECKING:
    from patcomp.compression import CompressionConfig, CompressionReport
    from patcomp.evaluate import Expectation, Machine, OutputError, Overflow, Verification
    from patcomp.ir.coreai_op import CoreaiOp
    from patcomp.questions.audit import Audit


def _unexplained(what: Any, *others: Any, **options: Any) -> Any:
    shown = f"{what!r}: " if isinstance(what, str) else ""
    raise LookupError(
        f"{shown}this program was not made by a converter, so it has no rules and no places in a model to report"
    )


@dataclass(eq=False)
class AIProgram:
    """A Core AI program: its IR, its weights, and how it came about; `str(program)` is the MLIR text.

    Attributes:
        module (IRModule): the IR and the weights that it names.
        reports (Sequence[StageReport]): what each stage of the conversion did, in order.
        stages (Mapping[str, str]): the text after each stage, by name: `program.stages["recover"]`.
        calls (Mapping[str, ModelCall]): how the PyTorch model of each entry point is called, by entry point.
        initial_state (Mapping[str, Mapping[str, Tensor]]): the contents of the buffers at conversion, by entry point
            and name of the state; read-only.
        dims (Mapping[str, Dims]): names, ranges and relations of the dynamic dimensions, by entry point.
        checks (Mapping[str, ValueChecks]): what the model checks of the values of its inputs, by entry point; `run` and
            `verify_against` check it, an asset cannot.
        draws (Mapping[str, Mapping[str, str]]): the distributions of the inputs that are random numbers, by entry point
            and name; `run` and `verify_against` draw them with a seed, the caller of an asset fills them.
        diagnostics (tuple[Problem, ...]): the warnings of the conversion.
        left_to_pytorch (tuple[Problem, ...]): for each entry point that PyTorch's `run_decompositions` had to
            decompose during the conversion, the first reason; empty if it was not needed.
        seconds (float): how long the conversion took.
        limits (Mapping[str, Mapping[str, int]]): how large, in magnitude, the numbers of int64 inputs may be, by entry
            point and name. Only inputs are listed for which some 32-bit numbers have results that may not fit; `run`
            warns of larger numbers, an asset cannot.
    """

    module: IRModule
    reports: Sequence[Any] = ()
    stages: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, ModelCall] = field(default_factory=dict)
    initial_state: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    dims: Mapping[str, Dims] = field(default_factory=dict)
    checks: Mapping[str, ValueChecks] = field(default_factory=dict)
    draws: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    diagnostics: tuple[Problem, ...] = ()
    left_to_pytorch: tuple[Problem, ...] = ()
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: float = 0.0

    _compression: CompressionReport | None = None
    _explain: Callable[[IRModule, str], str] = _unexplained
    _why_not: Callable[[str], str] = _unexplained
    _audit: Callable[[IRModule, Target, Sequence[Overflow]], Any] = _unexplained
    _specialize: Callable[..., IRModule] = _unexplained
    """A function that makes the module in which variants replace an entry point."""
    _ops_that_need_elements: Callable[[IRModule], Sequence[str]] = lambda module: ()
    """A function that names the ops in which the runtime aborts if an input is empty."""
    _departure_search: Callable[..., Any] = _unexplained
    """Makes the search of `verify_against(by="module")`, of a module, an entry point, an `Expectation`, ...."""
    _versions: Callable[[], Mapping[str, str]] = dict
    """A function that returns `versions`."""
    _html: Callable[..., str] = _unexplained
    """A function of a program that makes the HTML report."""

    def __str__(self) -> str:
        return self.module.text()

    def __repr__(self) -> str:
        return f"<AIProgram {', '.join('@' + name for name in self.entrypoints)}: {self.module.op_count()} ops>"

    def __deepcopy__(self, memo: dict[int, Any]) -> AIProgram:
        initial = {entrypoint: MappingProxyType(self.new_state(entrypoint)) for entrypoint in self.initial_state}
        return replace(self, module=self.module.clone(), initial_state=initial)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return html_summary(self)

    def html(self, path: str | Path, *, verification: Verification | None = None, times: bool = False) -> Path:
        """Write a report of the conversion as one HTML file, which needs no network and no other file.

            program.html("report.html", verification=program.verify_against(model, inputs, by="module"))

        It shows the graphs of all stages, the rules that made each op, weights, composites, warnings and near misses.
        The conversion is repeated for the report. The file has the text of the IR and the paths of modules and source
        lines, but no weights.

        Args:
            path: the file, which is replaced.
            verification: the result of `verify_against`, to show it in the report.
            times: whether to show the seconds of stages and rules. Without them, the same model gives the same file.

        Returns:
            The path.

        Raises:
            LookupError: the program was not made by a converter.
            OSError: the file cannot be written.
        """
        path = Path(path)
        check_writable(path)
        text = self._html(self, verification=verification, times=times)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def text(self, *, generic: bool = False, locations: bool = False) -> str:
        """The MLIR text: pretty or generic, with or without locations; weights appear by name only."""
        return self.module.text(generic=generic, locations=locations)

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of patcomp, PyTorch and the catalogs that made the program; assets have them in their metadata.

        It is empty if the program was not made by a converter.
        """
        return self._versions()

    @property
    def entrypoints(self) -> tuple[str, ...]:
        """The names of the graphs that can be called."""
        return tuple(graph_name(graph) for graph in self.module.entry_graphs)

    def explain(self, what: str) -> str:
        """Which rules made some ops of the program, and which nodes and lines of the model these come from.

        Args:
            what: the name of a value (`"%linear"`), an FX node (`"linear"`) or a source line (`"model.py:12"`).

        Raises:
            TypeError: `what` is not a text.
            UnknownNameError: no op is known by that; it is a `KeyError`.
            LookupError: the program was not made by a converter.
        """
        if not isinstance(what, str):
            raise TypeError(f"explain takes a value ('%linear'), an FX node or a line ('model.py:12'), got {what!r}")
        return self._explain(self.module, what)

    def audit(self, target: str | Target, inputs: Any = None, *, entrypoint: str = "main") -> Audit:
        """The constructs of the program that do not suit a device: types, ranks, sizes and ops, with their places and
        the rules that rewrite them. The program need not be converted for that device.

            print(program.audit("neural_engine"))
            print(program.audit("neural_engine", (x,)))     # also the values that overflow

        Args:
            target: the name of a target, or a `patcomp.targets.Target`.
            inputs: the model's arguments, as a sequence or by keyword, or the only one as a tensor. The evaluator runs
                the program with them, and each op is named that computes a value that float16 cannot hold from values
                that it can; of programs that a device computes in float32, those of float16 alone.
            entrypoint: the graph to run.

        Raises:
            EvaluationError: the inputs are not those of the program.
            KeyError: there is no such entry point.
            LookupError: a converter did not make the program.
            ValueError: there is no such target.
        """
        chosen = chosen_target(target)
        assert chosen is not None
        overflows: Sequence[Overflow] = ()
        if inputs is not None:
            from patcomp.evaluate import OverflowMachine, call_arguments, named_arguments

            values = named_arguments(self.signature(entrypoint), *call_arguments(inputs))
            machine = OverflowMachine(self.module, half=chosen.wants.only_half)
            self._run(values, entrypoint, None, "evaluator", machine)
            overflows = machine.overflows
        found: Audit = self._audit(self.module, chosen, overflows)
        return found

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
        return self._why_not(rule)

    def _graph(self, entrypoint: str) -> CoreaiOp:
        """The graph of an entry point.

        Raises:
            UnknownNameError: there is none; the message lists the entry points.
        """
        try:
            return self.module.graph(entrypoint)
        except KeyError:
            there = near_names(entrypoint, self.entrypoints)
            raise UnknownNameError(f"there is no entry point {entrypoint!r}; there are {there}") from None

    def input_names(self, entrypoint: str = "main") -> tuple[str, ...]:
        """The names of an entry point's inputs, in order, without the states."""
        return tuple(value.name for value in self.signature(entrypoint).inputs)

    def output_names(self, entrypoint: str = "main") -> tuple[str, ...]:
        """The names of an entry point's outputs, in order, without the states."""
        return tuple(value.name for value in self.signature(entrypoint).outputs)

    def signature(self, entrypoint: str = "main") -> EntrySignature:
        """The inputs, outputs and states of an entry point, with names, shapes and element types.

        Raises:
            KeyError: there is no such entry point.
        """
        checks = self.checks.get(entrypoint)
        texts, draws = checks.texts if checks else (), self.draws.get(entrypoint, {})
        graph, call, dims = self._graph(entrypoint), self.calls.get(entrypoint), self.dims.get(entrypoint)
        return entry_signature(graph, call, dims, texts, draws)

    def new_state(self, entrypoint: str = "main") -> dict[str, Any]:
        """Fresh copies of the initial contents of an entry point's buffers, for the calls of one sequence.

        Raises:
            KeyError: there is no such entry point.
        """
        self._graph(entrypoint)
        return copy.deepcopy(dict(self.initial_state.get(entrypoint, {})))

    @property
    def compression(self) -> CompressionReport | None:
        """The weights that are stored in fewer bits: what `compress` did to each, and those that a library compressed
        before the conversion. None for a program without any."""
        if self._compression is not None:
            return self._compression
        from patcomp.compression import CompressionReport, compressed_weights

        found = tuple(compressed_weights(self.module))
        return CompressionReport(found, {}) if found else None

    @property
    def composites(self) -> dict[str, int]:
        """How many calls of each composite the program makes, by composite name."""
        return self.report().counts

    def report(self) -> CompositeReport:
        """The calls of composites (the rule that recovered each, and its place in the model), overlaps of rules, and
        the warnings of the conversion, and why PyTorch's `run_decompositions` was needed, if it was.

        `print(program.report())` shows a line for each. A program of `Mode.RELEASE` has no places.
        """
        overlaps = (str(overlap) for report in self.reports for overlap in report.statistics.overlaps)
        return CompositeReport(
            composite_calls(self.module),
            tuple(dict.fromkeys(overlaps)),
            self.diagnostics,
            self.limits,
            self.left_to_pytorch,
        )

    def summary(self, verification: Verification | None = None) -> Summary:
        """The signature, the number of ops, the composites, the sizes of the weights, and the time of the conversion.

            print(program.summary(program.verify_against(model, inputs)))

        Args:
            verification: a comparison with the model, whose result is shown too.
        """
        return Summary(
            signatures={name: self.signature(name) for name in self.entrypoints},
            ops=self.module.op_count(),
            composites=self.composites,
            weights=weight_sizes(self.module),
            seconds=self.seconds,
            warnings=len(self.diagnostics),
            verification=verification,
        )

    def optimize(self) -> AIProgram:
        """Return the program unchanged, because `to_coreai` has optimized it already."""
        return self

    def save_asset(
        self, path: str | Path, metadata: Any = None, *, force: bool = False, writer: Writer | None = None
    ) -> Asset:
        """Write the program as an `.aimodel` folder, replacing an existing asset.

        If the save is interrupted, either the old or the new asset is complete. The asset's `initial_state` has the
        initial contents of buffers. The caller of the runtime owns the state and passes it to each call. The asset's
        metadata has `program.versions`, and the distributions of inputs that are random numbers. Its date is that of
        the environment variable `SOURCE_DATE_EPOCH`, if there is one, so that equal programs become equal files.

        Args:
            path: the folder; an asset or an empty folder is replaced, other files or folders only with `force`.
            metadata: an `AIModelAssetMetadata`, or a mapping of its fields (`author`, `license`, `model_description`).
            force: replace whatever is at the path.
            writer: what writes the asset, `"python"` or `"coreai"`; by default coreai-core where it is installed
                (`docs/assets.md`).

        Raises:
            MissingToolchainError: coreai-core is asked for and not installed.
            ValueError: the path does not end in `.aimodel`, there is no such metadata field or writer, or
                `SOURCE_DATE_EPOCH` is not a number.
            FileExistsError: something that is not an asset is at the path.
            OSError: the folder cannot be written (`PermissionError`), or the disk has no room.
            AssetError: coreai-core refused the program.
            UnsupportedError: the program has something that only coreai-core writes.
        """
        initial = self.initial_state.items()
        state = {entry: {name: as_array(value) for name, value in states.items()} for entry, states in initial}
        facts = {**self.versions, **entries_of(self.draws)}
        return save_asset(self.module, path, metadata=metadata, facts=facts, state=state, force=force, writer=writer)

    def run(
        self,
        *arguments: Any,
        entrypoint: str = "main",
        state: dict[str, Any] | None = None,
        backend: Literal["evaluator", "runtime"] = "evaluator",
        seed: int | None = None,
        **keywords: Any,
    ) -> Any:
        """Run an entry point.

            logits = program.run(tokens)                            # as the model is called
            outputs = program.run({"tokens": tokens})["logits"]     # by name

        Args:
            arguments: the model's arguments, with the structure that they had at export; or one mapping of input names
                to tensors. Torch tensors or numpy arrays; 64-bit values are narrowed if they fit. An input that the
                model writes to is not changed.
            keywords: the model's arguments by keyword; or all inputs by their names.
            entrypoint: the graph to call.
            state: the contents of states by name, from `program.new_state()` or the last call; updated in place. A
                state that is not given starts from its initial value.
            backend: `"evaluator"` runs anywhere and returns torch tensors. `"runtime"` needs coreai-core and returns
                numpy arrays; it compiles the program in each call, so use it only for checks. `save_asset(path).run`
                compiles the program once.
            seed: of the inputs that are random numbers (`draws`) and are not given by name; 0 by default. If the model
                itself has a keyword argument of this name, it is that argument.

        Returns:
            The model's result; or the outputs by name, if the inputs were given by name.

        Raises:
            EvaluationError: an input or state is missing, unknown or of another type; a size is out of its range,
                contradicts another or breaks a guard; a check of the model does not hold; a Python value differs from
                its value at export.
            EvaluationError: the program has Metal kernels, and `"runtime"` is not on an Apple device.
            MissingToolchainError: `"runtime"` needs coreai-core, which is not installed.
            TypeError: a state cannot be written to.
        """
        from patcomp.evaluate.calling import arguments_by_name, is_model_call, result_of

        draws = self.draws.get(entrypoint, {})
        noise = {name: keywords.pop(name) for name in draws if name in keywords}
        call = self.signature(entrypoint).call
        known = {*self.input_names(entrypoint), *(spec.name for spec in self.signature(entrypoint).states)}
        if seed is not None and call is not None and is_model_call(call, arguments, {**keywords, "seed": seed}):
            keywords["seed"], seed = seed, None
        named = not keywords and len(arguments) == 1 and isinstance(arguments[0], Mapping)
        if named and call is not None and not known.issuperset(arguments[0]):
            named = not is_model_call(call, arguments, keywords)  # the model itself may take a dict
        if named:
            return self._run({**arguments[0], **noise}, entrypoint, state, backend, seed=seed or 0)
        if call is None:
            raise EvaluationError(
                "this program was not made from a model, so it takes one mapping of input names to tensors: "
                f"program.run({{{', '.join(f'{name!r}: ...' for name in self.input_names(entrypoint))}}})"
            )
        values = arguments_by_name(call, arguments, keywords)
        return result_of(call, self._run({**values, **noise}, entrypoint, state, backend, seed=seed or 0))

    def _run_on(
        self, backend: str, entrypoint: str, values: Mapping[str, Any], state: dict[str, Any]
    ) -> dict[str, Any]:
        return self._run(values, entrypoint, state, backend)

    def _run_module(self, module: IRModule, backend: str, expectation: Expectation, entrypoint: str) -> dict[str, Any]:
        """The outputs of a changed module of the program."""
        return replace(self, module=module)._run(expectation.given, entrypoint, dict(expectation.states), backend)

    def _run(
        self,
        values: Mapping[str, Any],
        entrypoint: str,
        state: dict[str, Any] | None,
        backend: str,
        machine: Machine | None = None,
        seed: int = 0,
    ) -> dict[str, Any]:
        from patcomp.evaluate import evaluate, prepare_input
        from patcomp.evaluate.calling import check_names

        if backend not in ("evaluator", "runtime"):
            raise ValueError(f"backend must be 'evaluator' or 'runtime', got {backend!r}")
        if backend == "runtime" and not self._has_device:
            raise EvaluationError(
                "the runtime can run Metal kernels on Apple devices alone; backend='evaluator' runs their torch_defn"
            )
        if state is not None and not isinstance(state, MutableMapping):
            raise TypeError(f"state must be a dict that can be written to, program.new_state(), got {state!r:.200}")
        types = self._types(entrypoint)
        states = {name for name, type_ in types.items() if isinstance(type_, HandleType)}
        check_names(entrypoint, "input", {*values, *self.draws.get(entrypoint, ())} - states, set(types) - states)
        values = {**values, **self._drawn({**(state or {}), **values}, entrypoint, seed)}
        check_names(entrypoint, "state", state or {}, states, partial=True)
        given = {**self.new_state(entrypoint), **(state or {}), **values}
        inputs: dict[str, Any] = {}
        contents: dict[str, Any] = {}
        outputs: dict[str, Any]
        for name, value in given.items():
            type_ = types.get(name)
            if isinstance(type_, HandleType):
                # the copy is written to
                content = prepare_input(value, type_.tensor_type, name, "state")  # type: ignore[arg-type]
                contents[name] = copy.deepcopy(content.contiguous())
            else:
                inputs[name] = prepare_input(value, type_, name) if isinstance(type_, TensorType) else value
        self._check_sizes({**inputs, **contents}, entrypoint)
        self._check_limits({**inputs, **contents}, entrypoint)
        self._check_values({**inputs, **contents}, entrypoint)
        if backend == "evaluator":
            outputs = evaluate(self.module, inputs, entry=entrypoint, state=contents, machine=machine)
        else:
            self._check_elements({**inputs, **contents}, types)
            with temporary_asset(HandOver.of(self.module)) as asset:
                outputs = asset.run(inputs, contents, entrypoint)
        if state is not None:
            state.update(contents)
        return outputs

    def _drawn(self, values: Mapping[str, Any], entrypoint: str, seed: int) -> dict[str, Any]:
        """The inputs that are random numbers and are not given.

        Args:
            values: the inputs and states that are given.
        """
        draws = self.draws.get(entrypoint)
        if not draws:
            return {}
        from patcomp.evaluate import drawn

        dims, signature = self.dims.get(entrypoint, Dims()), self.signature(entrypoint)
        return drawn(signature, {**self.new_state(entrypoint), **values}, dims, seed)

    def _check_sizes(self, values: Mapping[str, Any], entrypoint: str) -> None:
        """Check that the sizes of inputs and states are in their ranges and agree with each other."""
        self.dims.get(entrypoint, Dims()).sizes_of(values)

    def _check_values(self, values: Mapping[str, Any], entrypoint: str) -> None:
        """Run the model's own checks on the values of inputs and states."""
        checks = self.checks.get(entrypoint)
        if checks is not None and (broken := checks.broken(values)) is not None:
            raise EvaluationError(f"the model checks that {broken}, which does not hold for these inputs")

    def _check_elements(self, values: Mapping[str, Any], types: Mapping[str, Any]) -> None:
        """Check that no dynamic dimension is 0 if the runtime would end the process."""
        for name, value in values.items():
            type_ = types[name].tensor_type if isinstance(types[name], HandleType) else types[name]
            sizes = zip(value.shape, shape_of(type_), strict=True) if isinstance(type_, TensorType) else ()
            axis = next((axis for axis, (size, declared) in enumerate(sizes) if size == 0 and declared is None), None)
            if axis is not None and (ops := self._ops_that_need_elements(self.module)):
                raise EvaluationError(
                    f"{name!r} has size 0 in dimension {axis}, for which the Core AI runtime would end the process in "
                    f"{', '.join(ops)}; use backend='evaluator', or run program.specialize for this size"
                )

    def _check_limits(self, values: Mapping[str, Any], entrypoint: str) -> None:
        """Warn of inputs and states so large that results computed from them may not fit 32 bits."""
        for name, limit in self.limits.get(entrypoint, {}).items():
            if name in values and bool(((values[name] > limit) | (values[name] < -limit)).any()):
                warnings.warn(
                    f"{name!r} has numbers beyond {limit}, for which int64 results of this program may not fit 32 "
                    "bits; convert with int64='keep' to compute in 64 bits",
                    ConversionWarning,
                    stacklevel=4,
                )

    @property
    def _has_device(self) -> bool:
        """Whether this machine can run the program: Metal kernels need an Apple device."""
        return sys.platform == "darwin" or all(op.name != "coreai.metal4_kernel" for op in self.module.op.walk())

    def compress(
        self,
        config: str | Mapping[str, Any] | Path | CompressionConfig = "w8",
        *,
        budget: str | int | None = None,
        bits_per_weight: float | None = None,
        inputs: Any = None,
        entrypoint: str = "main",
    ) -> AIProgram:
        """A program with smaller weights; this program does not change.

            small = program.compress("w4_block32", inputs=(x,))
            print(small.compression)

        The weights of products, convolutions and lookups are rounded, without data, one at a time. The compressed
        program's `compression` describes each weight, and its last stage is `compress`.

        Args:
            config: the name of a scheme (`"w8"`, `"w4_block32"`, `"pal4_group16"`, `"pal6"`, ...: docs/compression.md),
                a mapping (`{"scheme": "w8", "kinds": {"gather": None}, "names": {"*.lm_head.*": "pal6"}}`), or the path
                of a TOML file with such a mapping. Names win over kinds, and kinds over the scheme of all.
            budget: bytes of all these weights together, or a share of what they take now (`"60%"`). The schemes are
                then chosen, except those that the config gives to kinds or names.
            bits_per_weight: bits for each element of these weights, instead of a budget in bytes.
            inputs: example inputs, as in `run`; the report then has the PSNR of each output, and a budget goes by what
                the outputs lose, which runs the program once for each weight.
            entrypoint: the graph that runs with the inputs.

        Raises:
            ValueError: a scheme, kind or name does not exist, a weight has NaN or infinities, the budget cannot be met,
                or no weight is left to compress.
        """
        from patcomp.emit.compressed import compress_program

        return compress_program(self, config, budget, bits_per_weight, inputs, entrypoint)

    def specialize(self, sizes: Mapping[str, int], *, entrypoint: str = "main") -> AIProgram:
        """A program for fixed sizes; it shares the weights with this program, which does not change.

            program.specialize({"batch": 4})

        Args:
            sizes: the size of each dimension to fix, by its name in `program.signature().dims`. Derived dimensions and
                inner shapes follow; if all dimensions are fixed, every shape is static.
            entrypoint: the graph to specialise; others stay dynamic.

        Raises:
            KeyError: there is no such entry point.
            ValueError: there is no such dimension, or the size is out of its range; the message lists the dimensions.
            LookupError: the program was not made by a converter.
        """
        self._graph(entrypoint)
        dims = self.dims.get(entrypoint, Dims())
        dims.check(sizes)
        module = self._specialize(self.module, entrypoint, {entrypoint: dims.fixed(sizes)})
        return replace(self, module=module, dims={**self.dims, entrypoint: dims.given(sizes)})

    def set_static_shape_config(
        self, entrypoint: str, shapes_config: Mapping[str, Mapping[str, Sequence[int]]]
    ) -> None:
        """Replace a dynamic entry point by a static one for each configuration, in place.

            program.set_static_shape_config("main", {"short": {"tokens": (1, 32)}, "long": {"tokens": (1, 512)}})

        makes `main_short` and `main_long`, which share the weights; there is no `main` any more.

        Args:
            entrypoint: the graph to replace.
            shapes_config: by the suffix of each new entry point, the shapes of inputs. Inputs that are not named keep
                their types.

        Raises:
            KeyError: there is no such entry point.
            ValueError: there is no configuration, a name is taken, an input does not exist, or a shape does not fit.
            LookupError: the program was not made by a converter.
        """
        types, dims = self._types(entrypoint), self.dims.get(entrypoint, Dims())
        if not shapes_config:
            raise ValueError("shapes_config must have one configuration or more")
        variants: dict[str, Any] = {}
        new_dims = {name: value for name, value in self.dims.items() if name != entrypoint}
        for suffix, shapes in shapes_config.items():
            name = f"{entrypoint}_{suffix}"
            if name in (graph_name(graph) for graph in self.module.graphs):
                raise ValueError(f"there is a graph @{name} already")
            sizes = static_sizes(types, dims, shapes)
            variants[name] = sizes
            new_dims[name] = dims.given(dims.sizes(sizes))
        self.module = self._specialize(self.module, entrypoint, variants)
        self.dims = new_dims
        new_names = [(new, old) for old in self.calls for new in (variants if old == entrypoint else (old,))]
        self.calls = {new: self.calls[old] for new, old in new_names}
        self.initial_state = {new: self.initial_state[old] for new, old in new_names if old in self.initial_state}
        self.limits = {new: self.limits[old] for new, old in new_names if old in self.limits}
        self.checks = {new: self.checks[old] for new, old in new_names if old in self.checks}
        self.draws = {new: self.draws[old] for new, old in new_names if old in self.draws}

    def set_hardware_constraints(self, entrypoint: str, hw_constraint_config: Mapping[str, Any]) -> None:
        """Set the memory layout of inputs, outputs and states of an entry point for the hardware, in place.

        Args:
            entrypoint: the graph.
            hw_constraint_config: `coreai.authoring.HardwareConstraints` by the name of the tensor; a name that an input
                and an output share means both. Others keep their types.

        Raises:
            KeyError: there is no such entry point.
            ValueError: there is no such tensor, it has constraints already, or they do not fit its rank.
        """
        self._graph(entrypoint)
        module = self.module.clone()
        constrain(module.graph(entrypoint), hw_constraint_config)
        verify(module, runtime=True)
        self.module = module

    def _types(self, entrypoint: str) -> dict[str, Any]:
        """The types of an entry point's arguments by name."""
        graph = self._graph(entrypoint)
        names = (name or str(index) for index, name in enumerate(names_of(graph, "arg_attrs")))
        return dict(zip(names, (argument.type for argument in graph.regions[0].block.args), strict=True))

    def verify_against(
        self,
        model: Callable[..., Any],
        inputs: Any,
        *,
        entrypoint: str = "main",
        tolerance: float | None = None,
        backends: Sequence[Literal["evaluator", "runtime"]] | None = None,
        by: Literal["output", "module"] = "output",
        seed: int = 0,
    ) -> Verification:
        """Compare the program with eager PyTorch on given inputs.

        Args:
            model: the PyTorch model, which is not changed; states start from the contents of its buffers.
            inputs: the model's arguments, as a sequence or by keyword, or the only one as a tensor. With those by
                keyword, inputs that are random numbers can be given, too.
            entrypoint: the graph to call.
            tolerance: largest absolute difference that passes. By default it depends on an output's type and largest
                magnitude: 1e-8 of it for f64, 1e-4 of it for f32, 0 for integers. An f16 or bf16 output, and an f32
                output that is small after cancellation or comes from half precision, may be little farther from the
                output of the model in a wider type than eager PyTorch's own.
            backends: `"evaluator"`, `"runtime"`; by default both where coreai-core is installed and can
                run the program.
            by: `"module"` also compares the values that leave each module of the model (`Verification.modules`). If
                the program is wrong, the conversion is repeated to find the first stage, rule and module with other
                numbers (`Verification.departure`).
            seed: of the inputs that are random numbers; where the model draws random numbers, it gets the same ones.

        Returns:
            A `Verification`, which is true if all outputs and states are within their tolerances. It prints as a table
            of the largest absolute and relative error and the PSNR of each, counts NaN and infinities, and its
            `check()` raises if it did not pass.

        Raises:
            EvaluationError: the model's arguments or results do not correspond to the program's, or it draws other
                random numbers than those that are inputs of the program.
            KeyError: there is no such entry point.
            LookupError: `by="module"`, and a converter made neither the program nor the entry point.
            ValueError: no backend is given, or an unknown one; or an unknown `by`.
        """
        from patcomp.evaluate import Expectation, Verification

        if by not in ("output", "module"):
            raise ValueError(f"by must be 'output' or 'module', got {by!r}")
        if backends is None:
            backends = ("evaluator", "runtime") if has_toolchain() and self._has_device else ("evaluator",)
        if isinstance(backends, str) or not backends:
            raise ValueError(f"backends must be a list, such as ['evaluator', 'runtime'], got {backends!r}")
        expectation = Expectation.of(
            model, inputs, self.signature(entrypoint), lambda values: self._drawn(values, entrypoint, seed)
        )
        errors: list[OutputError] = []
        for backend in backends:
            errors += expectation.errors(backend, partial(self._run_on, backend, entrypoint), tolerance)
        result = Verification(tuple(errors), tolerance)
        if by == "output":
            return result
        search = self._departure_search(self.module, entrypoint, expectation, self.new_state(entrypoint), tolerance)
        modules, departure = search.module_errors(), None
        if not result.passed:
            departure = search.departure() or search.runtime_departure(
                lambda module, on: self._run_module(module, on, expectation, entrypoint)
            )
        return replace(result, modules=modules, departure=departure)
