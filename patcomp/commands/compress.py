"""`patcomp compress`: convert a model and store its weights in fewer bits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from patcomp.commands.common import (
    AsJson,
    Fix,
    Random,
    RandomNumbers,
    UsageError,
    Writer,
    load_catalogs,
    print_json,
    say,
    sizes_in,
)
from patcomp.commands.convert import check_outputs, target_of
from patcomp.commands.models import ModelOptions, add_sources, converted_already, load_sources, takes_models
from patcomp.commands.packages import reader_of
from patcomp.commands.progress import working
from patcomp.commands.subjects import MODELS, Subject, subject_of
from patcomp.commands.tables import show


@takes_models
def compress(
    model: Annotated[str, typer.Argument(help="The model, as for convert; or a bundle of a language model.")],
    schemes: Annotated[
        list[str] | None, typer.Argument(help="With --compare: what to compare, as for --config.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The asset or bundle; without it, only the table.")
    ] = None,
    config: Annotated[
        str,
        typer.Option(
            help="4bit, 8bit, a scheme (w8, w4_block32, pal4_group16, ...), or a TOML file (docs/compression.md)."
        ),
    ] = "w8",
    budget: Annotated[
        str | None,
        typer.Option(help="Choose the schemes: bytes of all weights, or a share of them, 60%."),
    ] = None,
    bits: Annotated[float | None, typer.Option(help="The same, in bits for each element: 4.5.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Rewrite the program for a device: cpu, gpu, neural_engine, or one of a catalog.")
    ] = None,
    fix: Fix = None,
    random: Random = RandomNumbers.refuse,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="inputs|TEXT",
            help="Compare before and after: outputs for the model's example inputs, or a bundle's loss on a text.",
        ),
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="inputs|TEXT",
            help="Round by the model's example inputs, or a bundle by a text, so that outputs of products stay.",
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="A table of several schemes: size, and loss on the text of --check.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write the HTML report of the result; with --compare it has a plot of all.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace any file or folder at the asset's path.")] = False,
    writer: Writer = None,
    json: AsJson = False,
    *,
    options: ModelOptions,
) -> None:
    """Convert a model with smaller weights, and show what became of each weight."""
    from patcomp import TorchConverter
    from patcomp.compression import CompressionRequest

    found = subject_of(model, "compress", (*MODELS, Subject.BUNDLE))
    if budget is not None and bits is not None:
        raise UsageError("give --budget or --bits, not both")
    size = int(budget) if budget is not None and budget.isdigit() else budget
    chosen = target_of(target, None, options.catalog)
    request = CompressionRequest.of(config, chosen)
    if budget is not None or bits is not None:
        request = replace(request, budget=size, bits=bits, text=budget or f"{bits}bits")
    if schemes and not compare:
        raise UsageError(f"{schemes[0]}: a scheme is the value of --config; several are a table with --compare")
    if compare and not schemes:
        raise UsageError("name what to compare behind --compare: w8 w4_block32 4.5bits")
    if found is Subject.BUNDLE:
        options.check_unused(model, found)
        _check_is_no_model(model, target, fix, random, force)
        reader_of(found).compress_bundle(
            Path(model),
            output,
            schemes or [config if budget is None and bits is None else request],
            check=check,
            calibrate=calibrate,
            html=html,
            writer=writer,
            as_json=json,
        )
        return
    _check_is_no_text(check, calibrate, compare)
    check_outputs(output, None, html, None, force, writer)
    sizes = sizes_in(fix)
    with working(f"exporting {model}", True):
        sources = load_sources(model, "compress", options)
        source = sources[0]
    with working(f"converting {model}", True):
        converter = TorchConverter(catalog=load_catalogs(options.catalog), random=random.value)
        program = add_sources(converter, sources).to_coreai(target=chosen, fixed=sizes)
    with working(f"compressing {model}", True):
        seen = request.is_budget and source.exported.example_inputs is not None
        examples = source.inputs_for(program) if check or calibrate or seen else None
        shrink = partial(program.compress, entrypoint=source.entry)
        small = request.applied(shrink, examples, calibrate=calibrate is not None)
    assert small.compression is not None
    if html is not None:
        small.html(html)
    if output is not None:
        with working(f"writing {output}", True) as advance:
            small.save_asset(output, force=force, writer=writer, progress=advance)
        say(f"asset:       {output}")
    if json:
        print_json(small.compression.as_dict())
    else:
        show(small.compression)


def _check_is_no_model(
    bundle: str, target: str | None, fix: list[str] | None, random: RandomNumbers, force: bool
) -> None:
    """Refuse the options for models."""
    given = {"--target": target, "--fix": fix, "--random": random is not RandomNumbers.refuse, "--force": force}
    if unused := [option for option, value in given.items() if value]:
        raise converted_already(unused, bundle, Subject.BUNDLE)


def _check_is_no_text(check: str | None, calibrate: str | None, compare: bool) -> None:
    """Refuse `--compare`, and a text for `--check` or `--calibrate`: they go with the bundle of a language model."""
    for option, given in (("--check", check), ("--calibrate", calibrate)):
        if given not in (None, "inputs"):
            raise UsageError(f"{option} with a text goes with the bundle of a language model; here: {option} inputs")
    if compare:
        raise UsageError("--compare goes with the bundle of a language model, and with --check TEXT")
