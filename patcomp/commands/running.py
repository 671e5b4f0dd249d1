"""`patcomp run`: call a function of an asset, of the assets of a bundle, or of a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from patcomp.commands.assets import Entrypoint, Sizes, chosen_entry, parts_of, runnable
from patcomp.commands.common import AsJson, UsageError, given_options, print_json, say, tell
from patcomp.commands.models import ModelOptions, converted, load_sources, takes_models
from patcomp.commands.packages import reader_of
from patcomp.commands.progress import working
from patcomp.commands.subjects import MODELS, Subject, subject_of
from patcomp.commands.tables import print_table

if TYPE_CHECKING:
    from patcomp.interface.signature import EntrySignature


@dataclass(frozen=True)
class _Given:
    """What the user gives of the inputs."""

    file: Path | None
    """A file of inputs and states by name."""
    files: Sequence[str]
    """Inputs from files of their own."""
    sizes: Sequence[str]
    """Sizes of random inputs."""
    seed: int
    examples: Mapping[str, Any] = field(default_factory=dict)
    """The example inputs of a model, for what the user does not give."""

    def values(self, signature: EntrySignature, initial: Collection[str]) -> dict[str, Any]:
        """The inputs of a function, and the states that are given or have no initial content, by name."""
        from patcomp.commands.arrays import random_inputs, read_input_files, read_inputs

        from_files = read_input_files(self.files, signature)
        if self.file is not None:
            return read_inputs(self.file, signature) | from_files
        known = {**self.examples, **from_files}
        if known.keys() >= {spec.name for spec in signature.inputs}:
            return known
        values = random_inputs(signature, self.sizes, self.seed, initial) | known
        which = "the other inputs are random" if known else "random inputs"
        say(f"{which}, with seed {self.seed}; --inputs FILE.npz gives {'them' if known else 'others'}")
        return values


@takes_models
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
    inputs: Annotated[
        Path | None, typer.Option(help="A file of numpy.savez with the inputs, and states, by name; otherwise random.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="An input from a file, image=photo.png or x=values.npy; may be given several times. An image file "
            "goes with an input of bytes.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write outputs and new states to this file, as numpy.savez.")
    ] = None,
    entrypoint: Entrypoint = None,
    component: Annotated[str | None, typer.Option(help="The role of an asset of a bundle, encoder.")] = None,
    size: Sizes = None,
    seed: Annotated[int, typer.Option(help="The seed of random inputs.")] = 0,
    backend: Annotated[
        Literal["runtime", "evaluator"],
        typer.Option(help="The Core AI runtime, or the reference evaluator, which needs no coreai-core."),
    ] = "runtime",
    prompt: Annotated[
        str | None,
        typer.Option(help="Continue this text by a bundle of a language model, as `patcomp generate` does."),
    ] = None,
    json: AsJson = False,
    *,
    options: ModelOptions,
) -> None:
    """Run an asset on the Core AI runtime or the reference evaluator, and show its outputs.

    Random floats are between 0 and 1, random integers 0 or 1; inputs for a model's random numbers have their own
    distributions.
    """
    from patcomp.emit.files.replacement import check_writable
    from patcomp.emit.toolchain.library import toolchain

    found = subject_of(model, "run", (*MODELS, Subject.ASSET, Subject.BUNDLE))
    if prompt is not None:
        if found is not Subject.BUNDLE or given_options(context, ("model", "prompt")):
            raise UsageError("--prompt goes with a bundle of a language model, and with no other option of run")
        reader_of(Subject.BUNDLE).generate(Path(model), prompt)
        return
    if output is not None:
        check_writable(output)
    if inputs is not None and size:
        raise UsageError("--size is for random inputs; leave it out with --inputs")
    if inputs is not None and not inputs.is_file():
        raise UsageError(f"--inputs: there is no file {inputs}")
    if backend == "runtime":
        toolchain()
    wanted = _Given(inputs, given or (), size or (), seed)
    if found in MODELS:
        if component is not None or size:
            raise UsageError(f"{'--size' if size else '--component'} does not go with {found}, which {model} is")
        _run_model(model, wanted, entrypoint, backend, output, json, options)
        return
    options.check_unused(model, found)
    parts = parts_of(model, found, component)
    if len(parts) > 1 and (inputs is not None or given or size or output is not None):
        raise UsageError(
            f"{model} has {len(parts)} assets; choose the one for these inputs or outputs with --component: "
            f"{', '.join(parts)}"
        )
    shown = {}
    for role, path in parts.items():
        with working(f"running {path}"):
            shown[role] = _run(path, wanted, entrypoint, backend, output)
    _show(shown, json)
    if output is not None:
        say(f"outputs: {output}")


def _run_model(
    model: str,
    given: _Given,
    entrypoint: str | None,
    backend: str,
    output: Path | None,
    json: bool,
    options: ModelOptions,
) -> None:
    """Convert a model and run one of its functions."""
    from patcomp.emit.asset import as_array
    from patcomp.evaluate.inputs import call_arguments, named_arguments

    with working(f"converting {model}"):
        sources = load_sources(model, "run", options)
        name = chosen_entry([each.entry for each in sources], entrypoint)
        source = next(each for each in sources if each.entry == name)
        program = converted([source], options)
    example = source.inputs_for(program)
    values = named_arguments(program.signature(name), *call_arguments(example))
    given = replace(given, examples={each: as_array(value) for each, value in values.items()})
    with TemporaryDirectory() as folder, working(f"running {model}"):
        path = program.save_asset(Path(folder, "model.aimodel")).path
        shown = _run(path, given, name, backend, output)
    _show({"": shown}, json)
    if output is not None:
        say(f"outputs: {output}")


_Described = dict[str, list[dict[str, Any]]]


def _run(path: Path, given: _Given, entrypoint: str | None, backend: str, output: Path | None) -> _Described:
    """What a function of an asset computes; the arrays are written to the output."""
    from patcomp.commands.arrays import described_array, write_outputs
    from patcomp.emit.asset import Asset
    from patcomp.emit.files.metadata import read_metadata
    from patcomp.emit.reading import opened, read_asset, signatures

    module, _ = read_asset(path)
    functions = signatures(module, read_metadata(path))
    name = chosen_entry(functions, entrypoint)
    asset = Asset(path)
    values = given.values(functions[name], asset.initial_state.get(name, ()))
    state = {spec.name: values.pop(spec.name) for spec in functions[name].states if spec.name in values}
    if backend == "runtime":
        with opened(path) as native, runnable(path, module) as usable:
            outputs, state = native.call(usable, values, state, name)
    else:
        outputs = asset.evaluate(values, state, name)
    if both := outputs.keys() & state.keys():
        state = {f"state {each}" if each in both else each: value for each, value in state.items()}
    if output is not None:
        write_outputs(output, outputs | state)
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
