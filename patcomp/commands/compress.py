"""`patcomp compress`: convert a model and store its weights in fewer bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from patcomp.commands.common import (
    AsJson,
    Catalogs,
    Fix,
    Modules,
    Random,
    RandomNumbers,
    UsageError,
    Writer,
    load_catalogs,
    print_json,
    require_transformers,
    say,
    sizes_in,
)
from patcomp.commands.convert import target_of
from patcomp.commands.models import Trusted, load_source
from patcomp.commands.progress import working
from patcomp.emit.replacement import check_target

if TYPE_CHECKING:
    from patcomp.compression import CompressionRequest
    from patcomp.emit.asset import Writer as WriterName


def compress(
    model: Annotated[str, typer.Argument(help="The model, as for convert; or a bundle of a language model.")],
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
        bool, typer.Option("--check", help="Run the program on the model's example inputs, before and after.")
    ] = False,
    modules: Modules = None,
    catalog: Catalogs = None,
    trusted: Trusted = False,
    force: Annotated[bool, typer.Option("--force", help="Replace any file or folder at the asset's path.")] = False,
    writer: Writer = None,
    json: AsJson = False,
) -> None:
    """Convert a model with smaller weights, and show what became of each weight."""
    from patcomp import TorchConverter
    from patcomp.compression import CompressionRequest

    if budget is not None and bits is not None:
        raise UsageError("give --budget or --bits, not both")
    size = int(budget) if budget is not None and budget.isdigit() else budget
    request = CompressionRequest.of(config)
    if budget is not None or bits is not None:
        request = replace(request, budget=size, bits=bits, text=budget or f"{bits}bits")
    if _is_bundle(Path(model)):
        _compress_bundle(Path(model), output, request, writer)
        return
    if output is not None:
        check_target(output, force)
    sizes = sizes_in(fix)
    with working(f"exporting {model}", True):
        source = load_source(model, modules, trusted=trusted)
    with working(f"converting {model}", True):
        converter = TorchConverter(catalog=load_catalogs(catalog), random=random.value)
        converter.add_exported_program(source.exported)
        program = converter.to_coreai(target=target_of(target, None, catalog), fixed=sizes)
    with working(f"compressing {model}", True):
        seen = request.is_budget and source.exported.example_inputs is not None
        examples = source.inputs_for(program) if check or seen else None
        small = request.applied(program.compress, examples)
    assert small.compression is not None
    if output is not None:
        with working(f"writing {output}", True) as advance:
            small.save_asset(output, force=force, writer=writer, progress=advance)
        say(f"asset:       {output}")
    if json:
        print_json(small.compression.as_dict())
    else:
        print(small.compression)


def _is_bundle(path: Path) -> bool:
    return path.suffix != ".aimodel" and (path / "metadata.json").is_file()


def _compress_bundle(bundle: Path, output: Path | None, request: CompressionRequest, writer: WriterName | None) -> None:
    from patcomp.commands.torchvision import declare_operators

    if output is None:
        raise UsageError("name the folder of the new bundle with --output")
    declare_operators()  # transformers imports torchvision
    require_transformers("a language model")
    from patcomp.language import compress_bundle

    with working(f"compressing {bundle}", True):
        made = compress_bundle(bundle, request, out=output, writer=writer)
    say(f"bundle:      {made.path}")
