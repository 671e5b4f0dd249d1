"""`patcomp verify` and `diff`: compare an asset with its model, and programs with each other."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from patcomp.commands.assets import AssetPath, Entrypoint, entry
from patcomp.commands.common import ANSWER_IS_NO, AsJson, Catalogs, Modules, UsageError, load_catalogs, print_json, say
from patcomp.commands.exporting import ExportOptions, Source
from patcomp.commands.models import Model, Train, Trusted, check_no_folder, convert_model, load_source
from patcomp.commands.tables import wide_console
from patcomp.emit.replacement import check_writable
from patcomp.errors import PatcompError

if TYPE_CHECKING:
    from patcomp.emit.dims import Dims
    from patcomp.emit.signature import EntrySignature, ModelCall
    from patcomp.ir.module import IRModule
    from patcomp.targets import Target


def verify(
    model: Model,
    asset: AssetPath,
    entrypoint: Entrypoint = "main",
    tolerance: Annotated[
        float | None, typer.Option(help="The largest absolute difference that passes; by default that of each type.")
    ] = None,
    modules: Modules = None,
    catalog: Catalogs = None,
    train: Train = False,
    half: Annotated[bool, typer.Option("--half", help="The asset was converted with --half.")] = False,
    bfloat16: Annotated[bool, typer.Option("--bfloat16", help="The asset was converted with --bfloat16.")] = False,
    trusted: Trusted = False,
    json: AsJson = False,
) -> None:
    """Compare an asset on the Core AI runtime with its model in eager PyTorch, on the model's example inputs.

    The exit code is 3 if the numbers differ.
    """
    from patcomp.emit.metadata import read_metadata
    from patcomp.emit.reading import opened, read_asset, signatures
    from patcomp.evaluate import drawn, verify_outputs

    with opened(asset) as native:
        signature = entry(signatures(read_asset(asset)[0], read_metadata(asset)), entrypoint)
        source = load_source(model, modules, ExportOptions(train, half_type(half, bfloat16)), trusted=trusted)
        call, dims = _call(source, asset, signature, catalog)
        signature = replace(signature, call=call)

        def run(values: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
            outputs, new = native.call(asset, values, states, entrypoint)
            states.update(new)
            return outputs

        def draw(values: Mapping[str, Any]) -> dict[str, Any]:
            return drawn(signature, values, dims, seed=0)

        verification = verify_outputs(source.model, source.inputs, {"runtime": run}, signature, tolerance, draw)
        note = "" if verification else _note_of_weights(source, read_asset(asset, values=True), catalog)
    if json:
        print_json(verification.to_dict())
    else:
        wide_console().print(verification, markup=False)
    if note:
        say(note)
    if not verification:
        sys.exit(ANSWER_IS_NO)


def _note_of_weights(source: Source, saved: Hashed, catalogs: list[str] | None) -> str:
    """What to tell the user if an asset holds other weights than its model; empty if it does not."""
    from patcomp import TorchConverter
    from patcomp.ir.difference import difference

    try:
        converter = TorchConverter(catalog=load_catalogs(catalogs), random="inputs")
        program = converter.add_exported_program(source.exported).to_coreai()
    except PatcompError as error:
        return f"note: the weights of the asset are not compared, because {source.name} is not converted: {error}"
    module, hashes = _hashed(program.module)
    count = difference(saved[0], module, (saved[1], hashes)).other_values
    if not count:
        return ""
    return (
        f"note: the asset holds other weights than {source.name}: {count} of its constants differ{'s' * (count == 1)}."
        " A model whose weights are random has new ones each time it is loaded: seed it with torch.manual_seed, or"
        " load saved weights, and convert it again"
    )


def half_type(half: bool, bfloat16: bool) -> str:
    """The element type that the options ask for, or no text.

    Raises:
        UsageError: both are given.
    """
    if half and bfloat16:
        raise UsageError("--half and --bfloat16 exclude each other")
    return "float16" if half else "bfloat16" if bfloat16 else ""


def _call(source: Source, path: Path, signature: EntrySignature, catalogs: list[str] | None) -> tuple[ModelCall, Dims]:
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
    converter = TorchConverter(catalog=load_catalogs(catalogs), random="inputs").add_exported_program(source.exported)
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


def diff(
    first: Annotated[
        str,
        typer.Argument(
            help="An asset, a text (MLIR, such as a stage dump), a report (.html), or a model, which is converted.",
            show_default=False,
        ),
    ],
    second: Annotated[str, typer.Argument(help="The same.", show_default=False)],
    modules: Modules = None,
    catalog: Catalogs = None,
    trusted: Trusted = False,
    html: Annotated[
        Path | None, typer.Option(help="Write both programs side by side to this file, to look at in a browser.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show the ops and weights in which two programs differ; names of values do not count.

    The exit code is 3 if they differ.
    """
    from patcomp.ir.difference import difference
    from patcomp.ir.weights import stored_weights

    if html is not None:
        check_page(html)
    (one, its_values), (other, other_values) = (program_of(name, modules, catalog, trusted) for name in (first, second))
    for name, module, values in ((first, one, its_values), (second, other, other_values)):
        if not values and any(stored_weights(module)):
            say(f"note: the values of weights are not compared, because {name} has none")
    found = difference(one, other, (its_values, other_values))
    if html is not None:
        from patcomp.report import difference_page

        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(difference_page((first, second), (one, other), (its_values, other_values)), encoding="utf-8")
        say(f"report: {html}")
    if json:
        print_json({"same": not found, **asdict(found)})
    else:
        print(found)
    if found:
        sys.exit(ANSWER_IS_NO)


def check_page(html: Path) -> None:
    """Check, before work that may take long, that the file of `--html` can be written.

    Raises:
        UsageError: it is a folder.
        OSError: it cannot be written.
    """
    if html.is_dir():
        raise UsageError(f"--html {html} is a folder; name a file")
    check_writable(html)


Hashed = tuple["IRModule", dict[str, str]]
"""A program, and hashes of the values of its weights by name, if it has them."""


def _hashed(module: IRModule) -> Hashed:
    from patcomp.emit.written import hashes_of

    return module, hashes_of(module)


def program_of(
    name: str,
    modules: list[str] | None,
    catalogs: list[str] | None,
    trusted: bool,
    *,
    target: Target | None = None,
    fixed: Mapping[str, int] = MappingProxyType({}),
) -> Hashed:
    """The program of an asset, a text, a report, or a model, which is converted for a target with some sizes fixed.

    Raises:
        UsageError: sizes are given for a program that is converted already.
        PatcompError: it is none of these, cannot be read or cannot be converted.
    """
    from patcomp.emit.reading import read_asset

    path = Path(name)
    check_no_folder(path)
    if fixed and (path.is_dir() or path.suffix in (".mlir", ".html")):
        raise UsageError(f"--fix goes with a model, whose sizes are fixed when it is converted; {name} is converted")
    if path.is_dir():
        return read_asset(path, values=True)
    if path.suffix == ".mlir":
        from patcomp.commands.opt import parse_file

        return parse_file(name), {}
    if path.suffix == ".html":
        from patcomp.report import program_in

        return program_in(path), {}
    return _hashed(convert_model(name, modules, catalogs, trusted=trusted, target=target, fixed=fixed).module)
