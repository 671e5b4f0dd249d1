"""`patcomp run`: call a function of an asset, of the assets of a bundle, or of a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from patcomp.commands.assets import Entrypoint, RandomSizes, chosen_entry, runnable, runnable_parts
from patcomp.commands.common import AsJson, UsageError, given_options, import_torch, print_json, say, tell
from patcomp.commands.models import ModelOptions, converted_model, load_sources
from patcomp.commands.options import takes_options
from patcomp.commands.packages import reader_of
from patcomp.commands.progress import working
from patcomp.commands.subjects import MODELS, Subject, subject_of
from patcomp.commands.tables import print_table

if TYPE_CHECKING:
    from patcomp.interface.signature import EntrySignature


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """What the user gives of the inputs."""

    inputs: Annotated[
        Path | None, typer.Option(help="A file of numpy.savez with the inputs, and states, by name; otherwise random.")
    ] = None
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="An input from a file, image=photo.png or x=values.npy; may be given several times. An image file "
            "goes with an input of bytes.",
        ),
    ] = None
    size: RandomSizes = None
    seed: Annotated[int, typer.Option(min=0, help="The seed of random inputs.")] = 0

    def check(self) -> None:
        """Check that the options go together.

        Raises:
            UsageError: they do not, or there is no such file.
        """
        if self.inputs is not None and self.size:
            raise UsageError("--size is for random inputs; leave it out with --inputs")
        if self.inputs is not None and not self.inputs.is_file():
            raise UsageError(f"--inputs: there is no file {self.inputs}")

    def values(
        self,
        signature: EntrySignature,
        initial: Collection[str],
        examples: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """The inputs of a function, and the states that are given or have no initial content, by name.

        Args:
            signature: of the function.
            initial: the names of the states that have initial content.
            examples: the example inputs of a model, for what the user does not give.
        """
        from patcomp.commands.arrays import random_inputs, read_input_files, read_inputs

        from_files = read_input_files(self.given or (), signature)
        if self.inputs is not None:
            return read_inputs(self.inputs, signature) | from_files
        known = {**examples, **from_files}
        if known.keys() >= {spec.name for spec in signature.inputs}:
            return known
        values = random_inputs(signature, self.size or (), self.seed, initial) | known
        which = "the other inputs are random" if known else "random inputs"
        say(f"{which}, with seed {self.seed}; --inputs FILE.npz gives {'them' if known else 'others'}")
        return values


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions:
    """The values of the model's own run, for Core AI Debugger."""

    intermediates: Annotated[
        Path | None,
        typer.Option(
            help="Write the values of the model's nodes, as PyTorch computes them, to X.aimodelintermediates."
        ),
    ] = None
    asset: Annotated[
        Path | None,
        typer.Option(help="The asset to compare with --intermediates; by default what convert --debug-info writes."),
    ] = None

    def check(self, model: str, found: Subject) -> None:
        """Check before the long export that the values can be written.

        Raises:
            OSError, ValueError: they cannot be written to their path.
            UsageError: only a model has such values.
        """
        from patcomp.emit.files.intermediates import check_intermediates_path

        if self.intermediates is None:
            if self.asset is not None:
                raise UsageError("--asset goes with --intermediates")
            return
        if found not in MODELS:
            raise UsageError(f"--intermediates goes with a model, which PyTorch runs, and {model} is {found}")
        check_intermediates_path(self.intermediates)


@dataclass(frozen=True, kw_only=True)
class _Call:
    """How functions are run.

    Attributes:
        given: what the user gives of the inputs.
        entrypoint: the name of the function.
        backend: `runtime` or `evaluator`.
        output: the file of the outputs.
        examples: the example inputs of a model.
        reference: the values of a model's own run.
    """

    given: InputOptions
    reference: ReferenceOptions
    entrypoint: str | None
    backend: str
    output: Path | None
    examples: Mapping[str, Any] = field(default_factory=dict)


@takes_options
def run(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            help="The .aimodel folder of an asset; a bundle, all assets of which are run; or a model, as for convert, "
            "which is converted and run on its example inputs.",
            show_default=False,
        ),
    ],
    *,
    given: InputOptions,
    reference: ReferenceOptions,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write outputs and new states to this file, as numpy.savez.")
    ] = None,
    entrypoint: Entrypoint = None,
    component: Annotated[str | None, typer.Option(help="The role of an asset of a bundle, encoder.")] = None,
    backend: Annotated[
        Literal["runtime", "evaluator"],
        typer.Option(help="The Core AI runtime, or the reference evaluator, which needs no coreai-core."),
    ] = "runtime",
    prompt: Annotated[
        str | None,
        typer.Option(help="Continue this text by a bundle of a language model, as `patcomp generate` does."),
    ] = None,
    json: AsJson = False,
    options: ModelOptions,
) -> None:
    """Run an asset on the Core AI runtime or the reference evaluator, and show its outputs.

    Random floats are between 0 and 1, random integers 0 or 1; inputs for a model's random numbers have their own
    distributions.

    $ patcomp run net.aimodel --seed 1
    $ patcomp run net.aimodel --input image=photo.png -o outputs.npz
    $ patcomp run bundles/qwen3 --prompt 'The capital of France is'
    """
    from patcomp.emit.files.replacement import check_writable
    from patcomp.emit.toolchain.library import toolchain

    if output is not None and str(output) == "-":
        raise UsageError("--output - would be arrays on standard output; name a file, outputs.npz")
    found = subject_of(model, "run", (*MODELS, Subject.ASSET, Subject.BUNDLE))
    if prompt is not None:
        if found is not Subject.BUNDLE or given_options(context, ("model", "prompt")):
            raise UsageError("--prompt goes with a bundle of a language model, and with no other option of run")
        reader_of(Subject.BUNDLE).generate(Path(model), prompt)
        return
    if output is not None:
        check_writable(output)
    given.check()
    reference.check(model, found)
    if backend == "runtime":
        toolchain()
    call = _Call(given=given, reference=reference, entrypoint=entrypoint, backend=backend, output=output)
    if found in MODELS:
        if component is not None or given.size:
            raise UsageError(f"{'--size' if given.size else '--component'} does not go with {found}, which {model} is")
        shown = {"": _run_model(model, call, options)}
    else:
        options.check_unused(model, found)
        shown = _run_assets(runnable_parts(model, found, component), model, call)
    _show(shown, json)
    if output is not None:
        say(f"outputs: {output}")


_Described = dict[str, list[dict[str, Any]]]


def _run_model(model: str, call: _Call, options: ModelOptions) -> _Described:
    """Convert a model and run one of its functions."""
    from patcomp.evaluate.given import as_array
    from patcomp.evaluate.inputs import call_arguments, named_arguments

    with working(f"converting {model}"):
        sources = load_sources(model, "run", options)
        name = chosen_entry([each.entry for each in sources], call.entrypoint)
        source = next(each for each in sources if each.entry == name)
        compared = call.reference.intermediates is not None  # with an asset of all functions
        program = converted_model(sources if compared else [source], options)
    example = source.inputs_for(program)
    values = named_arguments(program.signature(name), *call_arguments(example))
    examples = {each: as_array(value) for each, value in values.items()}
    if (path := call.reference.intermediates) is not None:
        with working(f"running {model} by PyTorch"):
            own = values
            if call.given.inputs is not None or call.given.given:
                own = call.given.values(program.signature(name), program.initial_state.get(name, ()), examples)
            program.save_intermediates(path, own, entrypoint=name, asset=call.reference.asset)
        say(f"intermediates: {path}")
    with TemporaryDirectory() as folder, working(f"running {model}"):
        saved = program.save_asset(Path(folder, "model.aimodel")).path
        return _run(saved, replace(call, entrypoint=name, examples=examples))


def _run_assets(parts: Mapping[str, Path], model: str, call: _Call) -> dict[str, _Described]:
    """Run the assets of a bundle, by their roles, or a single one.

    Raises:
        UsageError: there are several, for the inputs or outputs of one.
    """
    given = call.given
    if len(parts) > 1 and (given.inputs is not None or given.given or given.size or call.output is not None):
        raise UsageError(
            f"{model} has {len(parts)} assets; choose the one for these inputs or outputs with --component: "
            f"{', '.join(parts)}"
        )
    shown = {}
    for role, path in parts.items():
        with working(f"running {path}"):
            shown[role] = _run(path, call)
    return shown


def _run(path: Path, call: _Call) -> _Described:
    """What a function of an asset computes; the arrays are written to the output."""
    from patcomp.commands.arrays import described_array, write_outputs
    from patcomp.emit.asset import Asset
    from patcomp.emit.evaluated import arrays_in_types
    from patcomp.emit.files.metadata import read_metadata
    from patcomp.emit.reading import opened, read_asset, signatures

    module, _ = read_asset(path)
    functions = signatures(module, read_metadata(path))
    name = chosen_entry(functions, call.entrypoint)
    asset = Asset(path)
    values = call.given.values(functions[name], asset.initial_state.get(name, ()), call.examples)
    state = {spec.name: values.pop(spec.name) for spec in functions[name].states if spec.name in values}
    arrays_in_types(module, values, state, name)  # wrong ones are told before a runtime, or PyTorch, is started
    if call.backend == "runtime":
        with opened(path) as native, runnable(path, module) as usable:
            outputs, state = native.call(usable, values, state, name)
    else:
        import_torch()
        outputs = asset.evaluate(values, state, name)
    if both := outputs.keys() & state.keys():
        state = {f"state {each}" if each in both else each: value for each, value in state.items()}
    if call.output is not None:
        write_outputs(call.output, outputs | state)
    return {
        kind: [described_array(each, value) for each, value in values.items()]
        for kind, values in (("outputs", outputs), ("states", state))
    }


def _show(parts: Mapping[str, _Described], as_json: bool) -> None:
    """Print what functions computed, by the roles of their assets."""
    if as_json:
        print_json(parts if len(parts) > 1 else next(iter(parts.values())))
        return
    for role, described in parts.items():
        if role:
            tell(role)
        rows = [[_cell(each) for each in row.values()] for rows in described.values() for row in rows]
        print_table(["output", "type", "min", "max", "mean", "NaN"], rows)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
