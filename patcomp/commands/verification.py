"""`patcomp verify`: compare numbers, of an asset with its model, or of the runtime with the reference evaluator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from patcomp.commands.assets import Entrypoint, RandomSizes, chosen_entry, runnable, runnable_parts
from patcomp.commands.common import (
    ANSWER_IS_NO,
    AsJson,
    Fix,
    UsageError,
    fixed_sizes,
    import_torch,
    load_catalogs,
    print_json,
    say,
    tell,
)
from patcomp.commands.models import ModelOptions, converted_model, load_sources
from patcomp.commands.options import takes_options
from patcomp.commands.packages import asset_in, reader_of
from patcomp.commands.programs import Hashed, hashed
from patcomp.commands.progress import working
from patcomp.commands.subjects import MODELS, Subject, subject_of
from patcomp.commands.tables import show
from patcomp.conversion.source import ModelSource
from patcomp.errors import EvaluationError, PatcompError

if TYPE_CHECKING:
    from patcomp.emit.asset import Asset
    from patcomp.emit.native import Native
    from patcomp.evaluate.expectation import Expectation, Run
    from patcomp.evaluate.machine import Machine
    from patcomp.evaluate.verification import Verification
    from patcomp.interface.dims import Dims
    from patcomp.interface.signature import EntrySignature, ModelCall

_ASSETS = (Subject.ASSET, Subject.BUNDLE)


@takes_options
def verify(
    model: Annotated[
        str,
        typer.Argument(
            help="A model, as for convert; or an asset or a bundle, of which the Core AI runtime is compared with the "
            "reference evaluator on random inputs.",
            show_default=False,
        ),
    ],
    asset: Annotated[
        str | None,
        typer.Argument(help="The asset of the model, or a bundle that has one; without it, the model is converted."),
    ] = None,
    entrypoint: Entrypoint = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="The largest absolute difference that passes; by default that of each type."),
    ] = None,
    size: RandomSizes = None,
    fix: Fix = None,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="DEVICE",
            help="Run on a simulated device instead, gpu or neural_engine: the evaluator with what public reports say "
            "that it computes otherwise.",
        ),
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="ENGINE",
            help="Run on a further engine, onnxruntime, too: a third opinion. May be given several times.",
        ),
    ] = None,
    json: AsJson = False,
    *,
    options: ModelOptions,
) -> None:
    """Compare an asset on the Core AI runtime with its model, on the model's example inputs.

    A model runs in eager PyTorch, and a file of ONNX in ONNX Runtime if it is installed.

    The exit code is 3 if the numbers differ. An asset of a model that was converted with --half needs --half here.

    $ patcomp verify nets.py:net
    $ patcomp verify nets.py:net net.aimodel
    $ patcomp verify nets.py:net --as neural_engine
    """
    found, note = subject_of(model, "verify", (*MODELS, *_ASSETS)), ""
    sizes = fixed_sizes(fix)
    if size and found in MODELS:
        raise UsageError(f"--size is for random inputs, and {model} has example inputs")
    option = "--as" if as_ is not None else "--with" if with_ else ""
    if option and (found not in MODELS or asset is not None or (as_ is not None and with_)):
        raise UsageError(f"{option} goes with a model alone, which it converts, and --as goes without --with")
    if found not in MODELS:
        options.check_unused(model, found)
        if sizes:
            raise UsageError(f"--fix goes with a model, and {model} is {found}; --size gives sizes to random inputs")
        if asset is not None:
            raise UsageError(f"{model} is {found}; name the model first: patcomp verify MODEL {model}")
        results = _of_runtime(model, found, entrypoint, tolerance, size or ())
    elif asset is None:
        results = _of_conversion(model, entrypoint, tolerance, sizes, options, as_, with_ or ())
    else:
        results, note = _of_asset(model, asset, entrypoint, tolerance, sizes, options)
    if json:
        plain = {where: each.to_dict() for where, each in results.items()}
        print_json(plain if len(plain) > 1 else next(iter(plain.values())))
    for where, each in results.items() if not json else ():
        if len(results) > 1:
            tell(where)
        show(each)
    if note:
        say(note)
    if not all(results.values()):
        sys.exit(ANSWER_IS_NO)


def _of_conversion(
    model: str,
    entrypoint: str | None,
    tolerance: float | None,
    sizes: Mapping[str, int],
    options: ModelOptions,
    device: str | None,
    engines: Sequence[str],
) -> dict[str, Verification]:
    """A model that is converted now, on the evaluator, on the runtime where it is installed, and on further engines; or
    on a simulated device."""
    from patcomp.program.engines import engine_names, engine_of
    from patcomp.program.verifying import default_backends

    for engine in engines:
        if engine_of(engine) is None:
            raise UsageError(f"--with {engine}: there is no such engine; there are {', '.join(engine_names())}")
    with working(f"converting {model}"):
        sources = chosen_sources(load_sources(model, "verify", options), entrypoint)
        program = converted_model(sources, options, fixed=sizes)
    with working(f"verifying {model}"):
        return {
            each.entry: replace(
                program.verify_against(
                    each.model,
                    each.inputs_for(program),
                    entrypoint=each.entry,
                    tolerance=tolerance,
                    float32_model=each.float32_model,
                    backends=[*default_backends(program), *engines] if engines else None,
                    device=device,  # type: ignore[arg-type]  # it is checked there
                ),
                reference=each.reference,
            )
            for each in sources
        }


def chosen_sources(sources: list[ModelSource], entrypoint: str | None) -> list[ModelSource]:
    """The functions of a model that are compared."""
    if entrypoint is None:
        return sources
    name = chosen_entry([each.entry for each in sources], entrypoint)
    return [each for each in sources if each.entry == name]


# ---- the runtime and the evaluator ----------------------------------------------------------------


def _of_runtime(
    name: str, found: Subject, entrypoint: str | None, tolerance: float | None, sizes: Sequence[str]
) -> dict[str, Verification]:
    """The runtime against the evaluator, for the functions of an asset, or of the assets of a bundle."""
    from patcomp.emit.files.metadata import read_metadata
    from patcomp.emit.reading import opened, read_asset, signatures

    results, parts = {}, runnable_parts(name, found, None)
    if found is Subject.BUNDLE:
        _say_problems(name)
    for role, path in parts.items():
        module, _ = read_asset(path)
        functions = signatures(module, read_metadata(path))
        with working(f"verifying {path}"), opened(path) as native, runnable(path, module) as usable:
            for function in functions if entrypoint is None else [chosen_entry(functions, entrypoint)]:
                where = f"{role}, function {function}" if role else f"function {function}"
                results[where] = _on_both(native, usable, function, functions[function], tolerance, sizes)
    return results


def _on_both(
    native: Native,
    path: Path,
    function: str,
    signature: EntrySignature,
    tolerance: float | None,
    sizes: Sequence[str],
) -> Verification:
    from patcomp.commands.arrays import random_inputs
    from patcomp.emit.asset import Asset

    asset = Asset(path)
    values = random_inputs(signature, sizes, 0, asset.initial_state.get(function, ()))  # a wrong size is told at once
    import_torch()
    from patcomp.evaluate.expectation import Expectation

    empty = {each.name: values.pop(each.name) for each in signature.states if each.name in values}
    expectation = Expectation.of_program(asset.module, values, asset.new_state(function) | empty, function)
    run, evaluate = _on_runtime(native, path, function), _on_evaluator(asset, function)
    verification = expectation.verification({"runtime": run}, tolerance, evaluate)
    verification = _with_overflow(verification, expectation, asset, function)
    return replace(verification, reference="the reference evaluator")


def _with_overflow(result: Verification, expectation: Expectation, asset: Asset, function: str) -> Verification:
    """The result with the op of an asset that half precision makes NaN or infinite, if there is one."""
    from patcomp.emit.evaluated import inputs_in_types
    from patcomp.evaluate.overflow import first_overflow

    if not any(error.overflows for error in result.errors):
        return result
    given = inputs_in_types(asset.module, expectation.given, expectation.states, function)
    return replace(result, overflow=first_overflow(asset.module, *given, function))


def _on_runtime(native: Native, path: Path, function: str) -> Run:
    """Runs a function of an asset on the runtime."""

    def run(values: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
        outputs, new = native.call(path, values, states, function)
        states.update(new)
        return outputs

    return run


def _on_evaluator(asset: Asset, function: str) -> Callable[[type[Machine]], Run]:
    """Runs a function of an asset on the evaluator, on a machine; the program is read when it runs."""
    from patcomp.emit.evaluated import evaluated_outputs

    def on(machine: type[Machine]) -> Run:
        module = asset.module
        return lambda values, states: evaluated_outputs(module, values, states, states, function, machine(module))

    return on


def _say_problems(bundle: str) -> None:
    """Say what Apple's Swift package would refuse of a bundle."""
    for problem in reader_of(Subject.BUNDLE).problems_of(Path(bundle)):
        say(f"warning: Apple's Swift package refuses it: {problem}")


# ---- an asset and its model -----------------------------------------------------------------------


def _of_asset(
    model: str,
    asset: str,
    entrypoint: str | None,
    tolerance: float | None,
    sizes: Mapping[str, int],
    options: ModelOptions,
) -> tuple[dict[str, Verification], str]:
    """Compare the functions of an asset with the functions of the model. Returns the results, and a note on different
    weights."""
    from patcomp.emit.files.metadata import read_metadata
    from patcomp.emit.reading import opened, read_asset, signatures

    path = asset_in(asset, subject_of(asset, "verify", _ASSETS), "verify")
    results, note = {}, ""
    with opened(path) as native:
        functions = signatures(read_asset(path)[0], read_metadata(path))
        if entrypoint is not None:
            chosen_entry(functions, entrypoint)
        sources = load_sources(model, "verify", options)
        several = len(sources) > 1
        for source in chosen_sources(sources, entrypoint) if several else sources:
            name = chosen_entry(functions, source.entry if several else entrypoint)
            results[name] = _compared(native, path, name, functions[name], source, tolerance, sizes, options)
        if not all(results.values()):
            note = _note_of_weights(model, sources, read_asset(path, values=True), options)
    return results, note


def _compared(
    native: Native,
    path: Path,
    function: str,
    signature: EntrySignature,
    source: ModelSource,
    tolerance: float | None,
    sizes: Mapping[str, int],
    options: ModelOptions,
) -> Verification:
    """A function of an asset on the runtime against its model.

    Weights in fewer bits than the model's differ from them. If the numbers differ, such an asset is compared with its
    own weights, and these with the model, unless a tolerance is given.
    """
    from patcomp.compression import compressed_weights
    from patcomp.emit.asset import Asset
    from patcomp.emit.evaluated import inputs_in_types
    from patcomp.evaluate.draws import drawn
    from patcomp.evaluate.expectation import Expectation
    from patcomp.evaluate.loss import verify_compressed

    call, dims = _call(source, path, signature, options)
    dims = dims.given(_fixed(signature, dims, sizes, path, source))
    signature, saved = replace(signature, call=call), Asset(path)

    def draw(values: Mapping[str, Any]) -> dict[str, Any]:
        return drawn(signature, values, dims, seed=0)

    run, evaluate = _on_runtime(native, path, function), _on_evaluator(saved, function)
    inputs = source.inputs_of(signature, dims)
    expectation = Expectation.of(source.model, inputs, signature, draw, source.float32_model)
    result = expectation.verification({"runtime": run}, tolerance, evaluate)
    result = replace(_with_overflow(result, expectation, saved, function), reference=source.reference)
    if result or tolerance is not None or not any(compressed_weights(saved.module)):
        return result
    given = inputs_in_types(saved.module, expectation.given, expectation.states, function)
    return verify_compressed(saved.module, expectation, given, function, {"runtime": run}, evaluate)


def _fixed(
    signature: EntrySignature, dims: Dims, sizes: Mapping[str, int], path: Path, source: ModelSource
) -> dict[str, int]:
    """The fixed sizes: an asset's own, from the shapes of its inputs and states, and the user's (`sizes`).

    Raises:
        PatcompError: the asset has other sizes than the user says, or sizes that the model does not take.
    """
    shapes = {spec.name: spec.shape for spec in (*signature.inputs, *signature.states)}
    known = {place: shapes[place[0]][place[1]] for place in dims.extents if place[1] is not None and place[0] in shapes}
    try:
        fixed = dims.sizes({place: size for place, size in known.items() if isinstance(size, int)})
    except EvaluationError as error:
        raise PatcompError(f"{path} is not an asset of {source.name}: {error}") from error
    dims.check(sizes)
    for name, size in sizes.items():
        if fixed.setdefault(name, size) != size:
            raise PatcompError(f"--fix {name}={size}: {path} has {name} {fixed[name]}")
    return fixed


def _note_of_weights(model: str, sources: list[ModelSource], saved: Hashed, options: ModelOptions) -> str:
    """What to tell the user if an asset holds other weights than its model; empty if it does not."""
    from patcomp.ir.difference import difference

    try:
        program = converted_model(sources, options)
    except PatcompError as error:
        return f"note: the weights of the asset are not compared, because {model} is not converted: {error}"
    module, hashes = hashed(program.module)
    count = difference(saved[0], module, (saved[1], hashes)).other_values
    if not count:
        return ""
    return (
        f"note: the asset holds other weights than {model}: {count} of its constants differ{'s' * (count == 1)}."
        " A model whose weights are random has new ones each time it is loaded: seed it with torch.manual_seed, or"
        " load saved weights, and convert it again"
    )


def _call(source: ModelSource, path: Path, signature: EntrySignature, options: ModelOptions) -> tuple[ModelCall, Dims]:
    """How the model of an asset is called, and its dynamic dimensions, by the names that the asset has.

    Raises:
        PatcompError: the asset and the model have different numbers of inputs, outputs or states.
    """
    from patcomp import TorchConverter

    names = {
        what: [spec.name for spec in getattr(signature, f"{what}s") if not spec.distribution]
        for what in ("input", "output", "state")
    }
    all_names = {name for each in names.values() for name in each}
    converter = TorchConverter(catalog=load_catalogs(options.catalog), random="inputs")
    converter.add_exported_program(source.exported)
    if _names(call := converter.calls()["main"]) != all_names:  # the user may have chosen others at conversion
        converter.clear()
        try:
            converter.add_exported_program(source.exported, names["input"], names["output"], names["state"])
        except ValueError as error:
            raise PatcompError(f"{path} is not an asset of {source.name}: {error}") from error
        if _names(call := converter.calls()["main"]) != all_names:
            raise PatcompError(f"{path} is not an asset of {source.name}: the states of the two differ")
    return call, converter.dims()["main"]


def _names(call: ModelCall) -> set[str]:
    """The names of the inputs, outputs and states of a call."""
    return {*(leaf for leaf in (*call.arguments, *call.results) if isinstance(leaf, str)), *call.buffers}
