"""`AIProgram`: a converted program, to read, run, check and save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from patcomp.interface.constraints import constrain
from patcomp.interface.dims import Dims
from patcomp.ir.cleanup import keep_reached
from patcomp.ir.module import graph_name
from patcomp.ir.verify import verify
from patcomp.program import running, verifying
from patcomp.program.data import ProgramData
from patcomp.program.history import known_history
from patcomp.program.notebook import html_summary
from patcomp.program.variants import static_variants
from patcomp.settings import plain_settings
from patcomp.targets import Target, chosen_target

if TYPE_CHECKING:
    from patcomp.compression import Measure
    from patcomp.compression.request import Given
    from patcomp.emit.asset import Asset, Writer
    from patcomp.emit.stored.streaming import Advance
    from patcomp.evaluate.verification import Verification
    from patcomp.questions.findings import Audit

OLDEST_SYSTEM = "v27"
"""The system that introduced Core AI, as coreai-core's `OSVersion` names it; its assets run there and later."""


@dataclass(eq=False, repr=False)
class AIProgram(ProgramData):
    """A Core AI program, to read, run, check and save: its IR, its weights, and how it came about. `str(program)` is
    the MLIR text.

    Attributes:
        module (IRModule): the IR and the weights that it names.
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
        history (History | None): how a converter made the program; None if no converter did.
    """

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return html_summary(self)

    def audit(self, target: str | Target, inputs: Any = None, *, entrypoint: str = "main") -> Audit:
        """The constructs of the program that do not suit a device: types, ranks, sizes and ops, with their places and
        the rules that rewrite them. The program need not be converted for that device.

            print(program.audit("neural_engine"))
            print(program.audit("neural_engine", (x,)))     # also the values that overflow

        Args:
            target: the name of a target, or a `patcomp.targets.Target`.
            inputs: the model's arguments, as a sequence or by keyword, or the only one as a tensor. The evaluator runs
                the program with them, and the audit names each op that computes a value that float16 cannot hold from
                values that it can hold. For a device that computes float32, only ops of float16 are named.
            entrypoint: the graph to run.

        Raises:
            EvaluationError: the inputs are not those of the program.
            KeyError: there is no such entry point.
            LookupError: a converter did not make the program.
            ValueError: there is no such target.
        """
        chosen = chosen_target(target)
        assert chosen is not None
        half = chosen.wants.only_half
        with plain_settings():
            overflows = () if inputs is None else running.overflows(self, inputs, entrypoint, half=half)
            return known_history(self.history).audit(self.module, chosen, overflows)

    def audit_each(self, target: str | Target) -> dict[str, Audit]:
        """The audit of each entry point with the graphs that it calls, by name: for entry points of several sizes, say.

            for name, audit in program.audit_each("neural_engine").items():
                print(name, audit)

        Raises:
            LookupError: a converter did not make the program.
            ValueError: there is no such target.
        """
        chosen = chosen_target(target)
        assert chosen is not None
        history, found = known_history(self.history), {}
        for graph in self.module.entry_graphs:
            module = self.module.clone()
            keep_reached(module, [name := graph_name(graph)])
            found[name] = history.audit(module, chosen, ())
        return found

    def optimize(self) -> AIProgram:
        """Return the program unchanged, because `to_coreai` has optimized it already."""
        return self

    def save_asset(
        self,
        path: str | Path,
        metadata: Any = None,
        minimum_os: Any = OLDEST_SYSTEM,
        *,
        force: bool = False,
        writer: Writer | None = None,
        debug_info: bool = False,
        progress: Advance | None = None,
        check: Callable[[Asset], object] | None = None,
    ) -> Asset:
        """Write the program as an `.aimodel` folder, replacing an existing asset.

        If the save is interrupted, either the old or the new asset is complete. The asset's `initial_state` has the
        initial contents of buffers. The caller of the runtime owns the state and passes it to each call. The asset's
        metadata has `program.manifest`, and the distributions of inputs that are random numbers. Its date is that of
        the environment variable `SOURCE_DATE_EPOCH`, if there is one, so that equal programs become equal files.

        Args:
            path: the folder; an asset or an empty folder is replaced, other files or folders only with `force`.
            metadata: an `AIModelAssetMetadata`, or a mapping of its fields (`author`, `license`, `model_description`).
            minimum_os: the oldest system that shall load the asset, `"v27"` or coreai-core's `OSVersion.v27`: there is
                no other yet.
            force: replace whatever is at the path.
            writer: what writes the asset, `"python"` or `"coreai"`; by default coreai-core where it is installed
                and the weights are smaller than 256 MiB (`docs/assets.md`).
            debug_info: whether the asset has the source lines and modules of each op, for Core AI Debugger
                (`docs/core-ai-debugger.md`); they hold paths of this machine. patcomp itself then writes it.
            progress: is called with the bytes of the program that are written so far, and with all of them; only
                while patcomp writes, because coreai-core does not tell how far it is.
            check: is called with the asset before it takes its place; if it raises, the asset is deleted, and nothing
                is replaced.

        Raises:
            MissingToolchainError: coreai-core is asked for and not installed.
            LookupError: debug information of a program that a converter did not make, or of `Mode.RELEASE`.
            ValueError: the path does not end in `.aimodel`, there is no such metadata field, writer or system,
                coreai-core is asked for debug information, or `SOURCE_DATE_EPOCH` is not a number.
            FileExistsError: something that is not an asset is at the path.
            OSError: the folder cannot be written (`PermissionError`), or the disk has no room.
            AssetError: coreai-core refused the program.
            UnsupportedError: the program has something that only coreai-core writes.
        """
        from patcomp.emit.asset import save_asset
        from patcomp.emit.files.metadata import saved_entries
        from patcomp.evaluate.given import as_array

        if (system := getattr(minimum_os, "value", minimum_os)) != OLDEST_SYSTEM:
            raise ValueError(f"minimum_os must be {OLDEST_SYSTEM!r}, got {system!r}: assets have no other system yet")
        with plain_settings():
            initial = self.initial_state.items()
            state = {entry: {name: as_array(value) for name, value in states.items()} for entry, states in initial}
            facts = {**self.manifest, **saved_entries(self.draws, self.dims)}
            return save_asset(
                self.module,
                path,
                metadata=metadata,
                facts=facts,
                state=state,
                force=force,
                writer=writer,
                debug_facts=known_history(self.history).debug_facts() if debug_info else None,
                progress=progress,
                check=check,
            )

    def save_intermediates(
        self, path: str | Path, inputs: Any, *, entrypoint: str = "main", asset: str | Path | None = None
    ) -> Path:
        """Run the exported model by PyTorch, and write the values of its nodes for Core AI Debugger, which compares
        them with those of an asset.

            asset = program.save_asset("net.aimodel", debug_info=True)
            program.save_intermediates("net.aimodelintermediates", (x,))

        Args:
            path: the folder, ending in `.aimodelintermediates`; one that is there is replaced.
            inputs: the model's arguments, as a sequence or by keyword, or the only one as a tensor.
            entrypoint: the function to run.
            asset: the asset whose ops the values belong to, such as one with compressed weights or for a target; it
                must have debug information. By default the one that `save_asset(debug_info=True)` writes.

        Raises:
            AssetError: the asset has no debug information, or that of another model.
            EvaluationError: the inputs are not those of the program.
            FileExistsError: something else is at the path.
            LookupError: a converter did not make the program, or made it in `Mode.RELEASE`; the entry point was made
                later; or the weights of the model are gone, as in a compressed program.
            OSError: a file cannot be written.
            ValueError: the path does not end in `.aimodelintermediates`.
        """
        from patcomp.program.intermediates import save_intermediates

        with plain_settings():
            return save_intermediates(self, Path(path), inputs, entrypoint, asset)

    def run(
        self,
        *arguments: Any,
        entrypoint: str = "main",
        state: dict[str, Any] | None = None,
        backend: str = "evaluator",
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
                compiles the program once. `"onnxruntime"` runs the program as an ONNX model (`docs/onnx-models.md`).
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
        with plain_settings():
            return running.run_program(self, arguments, keywords, entrypoint, state, backend, seed)

    def compress(
        self,
        config: Given = "w8",
        *,
        budget: str | int | None = None,
        bits_per_weight: float | None = None,
        inputs: Any = None,
        calibrate: bool = True,
        measure: Measure | None = None,
        entrypoint: str = "main",
    ) -> AIProgram:
        """A program with smaller weights; this program does not change.

            small = program.compress("w4_block32", inputs=(x,))
            print(small.compression)

        The weights of products, convolutions and lookups are rounded one at a time: to the nearest number that the
        scheme has, or, with inputs, so that the outputs of products stay (GPTQ). The compressed program's `compression`
        describes each weight, and its last stage is `compress`.

        Args:
            config: the name of a scheme (`"w8"`, `"w4_block32"`, `"pal4_group16"`, `"pal6"`, ...: docs/compression.md);
                `"4bit"`, which means what suits the target of the conversion; a budget (`"4.5bits"`, `"60%"`);
                a mapping (`{"scheme": "w8", "kinds": {"gather": None}, "names": {"*.lm_head.*": "pal6"}}`), or the path
                of a TOML file with such a mapping. Names take precedence over kinds, and kinds over the scheme of all.
            budget: bytes of all these weights together, or a share of their present bytes (`"60%"`). The schemes are
                then chosen, except those that the config gives to kinds or names.
            bits_per_weight: bits for each element of these weights, instead of a budget in bytes.
            inputs: example inputs, as in `run`, or a list of several, each a tuple or a mapping, which should be like
                those that the program will see. The report then has the lowest PSNR of each output.
            calibrate: whether the inputs also determine how weights of products are rounded. If an output then becomes
                worse than without them, beyond chance, all weights are rounded to the nearest; a warning and
                `compression.notes` say so.
            measure: what the report and a budget go by: `"outputs"`, what the outputs lose if a weight alone is
                compressed, which runs the part of the program behind each weight; or `"weights"`, what the channels of
                the weight lose. By default outputs, if there are inputs and the program is not very large.
            entrypoint: the graph that runs with the inputs.

        Raises:
            ValueError: a scheme, kind or name does not exist, a weight has NaN or infinities, the budget cannot be met,
                the target does not take a scheme, no weight is left to compress, or `measure` does not fit.
        """
        from patcomp.program.compressed import compress_program

        with plain_settings():
            return compress_program(self, config, budget, bits_per_weight, inputs, entrypoint, calibrate, measure)

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
        self.graph(entrypoint)
        dims = self.dims.get(entrypoint, Dims())
        dims.check(sizes)
        module = known_history(self.history).specialize(self.module, entrypoint, {entrypoint: dims.fixed(sizes)})
        return replace(self, module=module, dims={**self.dims, entrypoint: dims.given(sizes)})

    def set_static_shape_config(
        self, entrypoint: str, shapes_config: Mapping[str, Mapping[str, Sequence[int]]]
    ) -> None:
        """Replace a dynamic entry point by a static one for each configuration, in place.

            program.set_static_shape_config("main", {"short": {"tokens": (1, 32)}, "long": {"tokens": (1, 512)}})

        makes `main_short` and `main_long`, which share the weights; `main` is gone.

        Args:
            entrypoint: the graph to replace.
            shapes_config: by the suffix of each new entry point, the shapes of inputs. Inputs that are not named keep
                their types.

        Raises:
            KeyError: there is no such entry point.
            ValueError: there is no configuration, a name is taken, an input does not exist, or a shape does not fit.
            LookupError: the program was not made by a converter.
        """
        self.graph(entrypoint)
        variants, dims = static_variants(self, entrypoint, shapes_config)
        names = [(new, old) for old in self.entrypoints for new in (variants if old == entrypoint else (old,))]
        self.module, self.dims = known_history(self.history).specialize(self.module, entrypoint, variants), dims
        for each in ("calls", "initial_state", "limits", "checks", "draws"):
            held = getattr(self, each)
            setattr(self, each, {new: held[old] for new, old in names if old in held})

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
        self.graph(entrypoint)
        module = self.module.clone()
        constrain(module.graph(entrypoint), hw_constraint_config)
        verify(module, runtime=True)
        self.module = module

    def verify_against(
        self,
        model: Callable[..., Any],
        inputs: Any,
        *,
        entrypoint: str = "main",
        tolerance: float | None = None,
        backends: Sequence[str] | None = None,
        by: Literal["output", "module"] = "output",
        seed: int = 0,
        float32_model: Callable[..., Any] | None = None,
        asset: Asset | None = None,
        device: Literal["gpu", "neural_engine"] | None = None,
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
            backends: `"evaluator"`, `"runtime"`, `"kernels"`; by default all, without the runtime where coreai-core is
                not installed or cannot run the program. With `"kernels"`, the bodies of Metal kernels also run on the
                CPU, once at each call in the program, and are compared with `torch_defn`
                (`Verification.kernels`); without a C++ compiler they are not run. With `"onnxruntime"`, an engine that
                patcomp did not write runs the program, too; if it alone is wrong, `Verification.departure` is the first
                op in which it differs from the evaluator.
            by: `"module"` also compares the values that leave each module of the model (`Verification.modules`). If
                the program is wrong, the conversion is repeated to find the first stage, rule and module with other
                numbers (`Verification.departure`).
            seed: of the inputs that are random numbers; where the model draws random numbers, it gets the same ones.
            float32_model: the model before it was converted to half precision, which judges the outputs, too. By
                default the given model is run in float32, with its weights as half precision has rounded them.
            asset: the program as it was saved, which both backends then run.
            device: a simulated device to run on instead: the evaluator with what public reports say that the GPU or
                the Neural Engine computes otherwise. `Verification.effects` names each such place.

        A program of half precision does not pass if an output is NaN or infinite where the model in float32 is finite,
        also if the model in half precision has NaN there; `Verification.overflow` names the first op that overflows.

        Returns:
            A `Verification`, which is true if all outputs and states are within their tolerances. It prints as a table
            of the largest absolute and relative error and the PSNR of each, counts NaN and infinities, and its
            `check()` raises if it did not pass.

        Raises:
            EvaluationError: the model's arguments or results do not correspond to the program's, or it draws other
                random numbers than those that are inputs of the program.
            KeyError: there is no such entry point.
            LookupError: `by="module"`, and a converter made neither the program nor the entry point.
            ValueError: no backend is given, or an unknown one; an unknown `by`; a negative tolerance; a device that is
                not simulated, or a device with `backends` or `by="module"`.
        """
        if device is not None and (by != "output" or backends is not None):
            raise ValueError("a simulated device takes the place of backends=, and its effects name their modules")
        with plain_settings():
            if device is not None:
                return verifying.verify_on_device(
                    self, model, inputs, entrypoint, tolerance, seed, float32_model, asset, device
                )
            return verifying.verify_program(
                self, model, inputs, entrypoint, tolerance, backends, by, seed, float32_model, asset
            )

    def verify_compressed(
        self, model: Callable[..., Any], inputs: Any, *, entrypoint: str = "main", asset: Asset | None = None
    ) -> Verification:
        """Compare this program with the weights that it stores, and these weights with the model.

        No tolerance tells the loss of compression from a wrong program. So the program on the runtime (or on the
        evaluator, where coreai-core is not installed) must agree with the program on the evaluator, with the very
        weights that are stored, at the usual tolerances; and `Verification.loss` has what these weights cost each
        output, against the model. An output of which less than half is left (root mean square) does not pass. Verify
        the program before its compression, too.

        Args:
            model: the PyTorch model, which is not changed.
            inputs: the model's arguments, as for `verify_against`.
            entrypoint: the graph to call.
            asset: the program as it was saved, which is then run in its place.

        Raises:
            EvaluationError: the model's arguments or results do not correspond to the program's.
            KeyError: there is no such entry point.
        """
        with plain_settings():
            return verifying.verify_compressed_program(self, model, inputs, entrypoint, asset)

    def needs_float32(self, inputs: Any, *, entrypoint: str = "main") -> tuple[str, ...]:
        """The FX nodes whose ops must stay in float32 for finite outputs, in a program of half precision.

            nodes = program.needs_float32((x,))
            program = converter.to_coreai(target="neural_engine", keep=nodes)

        For a target of float16, these are first the ops that read a number which float16 cannot hold, because they
        leave the whole program in float32; convert again, and ask again.

        Outputs need be finite only where the program in float32 has finite ones. None of the nodes can be left out;
        there may be other sets that are as small. The program runs some ten times on the evaluator.

        Args:
            inputs: the model's arguments, as a sequence or by keyword, or the only one as a tensor.
            entrypoint: the graph to call.

        Returns:
            The names of the nodes; empty if nothing overflows.

        Raises:
            EvaluationError: the inputs are not those of the program, or an output of half precision cannot hold its own
                numbers.
            KeyError: there is no such entry point.
            LookupError: a converter did not make the program.
        """
        with plain_settings():
            return running.float32_nodes(self, inputs, entrypoint)
