"""`patcomp inspect` and `run`: look into an asset, and call it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from patcomp.commands.bundles import inspect_bundle
from patcomp.commands.common import AsJson, UsageError, print_json, say
from patcomp.commands.tables import print_table
from patcomp.errors import UnknownNameError, near_names

if TYPE_CHECKING:
    from patcomp.emit.inspection import Inspection
    from patcomp.emit.signature import EntrySignature

AssetOrBundle = Annotated[
    Path, typer.Argument(help="The .aimodel folder of an asset, or the folder of a bundle.", show_default=False)
]
AssetPath = Annotated[Path, typer.Argument(help="The .aimodel folder of an asset.", show_default=False)]
Entrypoint = Annotated[str, typer.Option(help="The name of the function.")]


def inspect(
    asset: AssetOrBundle,
    json: AsJson = False,
    weights: Annotated[int, typer.Option(help="How many of the largest weights to list.")] = 10,
) -> None:
    """Show what an asset holds: functions, composites, ops, weights and metadata; of a bundle, its components."""
    from patcomp.emit.inspection import inspect_asset

    if asset.suffix != ".aimodel" and (asset / "metadata.json").is_file():
        inspect_bundle(asset, json)
        return
    found = inspect_asset(asset)
    if json:
        print_json(found.to_dict())
    else:
        _print(found, weights)


def _print(found: Inspection, shown: int) -> None:
    from patcomp.emit.units import size_text

    print(f"{found.path}: {size_text(found.bytes)}")
    for name, value in sorted(found.metadata.items()):
        for key, each in sorted(value.items()) if isinstance(value, Mapping) else [(name, value)]:
            print(f"  {key}: {each}")
    for name, signature in found.functions.items():
        print(f"function {name}")
        print("\n".join(f"  {line}" for line in str(signature).splitlines()))
    if found.composites:
        print_table(["composite", "calls"], [(name, str(count)) for name, count in found.composites.items()])
    print_table(["op", "count"], [(name, str(count)) for name, count in found.ops.items()])
    if not found.weights:
        return
    by_type: dict[str, list[int]] = {}
    for weight in found.weights:
        by_type.setdefault(weight.element_type, []).append(weight.bytes)
    rows = [(kind, str(len(sizes)), size_text(sum(sizes))) for kind, sizes in by_type.items()]
    print_table(["weights of type", "count", "size"], rows)
    largest = found.weights[:shown]
    print_table(
        ["the largest weights", "type", "size"],
        [(each.name, "x".join(map(str, (*each.shape, each.element_type))), size_text(each.bytes)) for each in largest],
    )


def run(
    asset: AssetPath,
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
    entrypoint: Entrypoint = "main",
    size: Annotated[
        list[str] | None,
        typer.Option(help="The size of a dynamic dimension for random inputs, x:0=4; otherwise 2."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of random inputs.")] = 0,
    backend: Annotated[
        Literal["runtime", "evaluator"],
        typer.Option(help="The Core AI runtime, or the reference evaluator, which needs no coreai-core."),
    ] = "runtime",
    json: AsJson = False,
) -> None:
    """Run an asset on the Core AI runtime or the reference evaluator, and show its outputs.

    Random floats are between 0 and 1, random integers 0 or 1; inputs for a model's random numbers have their own
    distributions.
    """
    from patcomp.commands.arrays import described_array, random_inputs, read_input_files, read_inputs, write_outputs
    from patcomp.emit.asset import Asset, toolchain
    from patcomp.emit.metadata import read_metadata
    from patcomp.emit.reading import opened, read_asset, signatures
    from patcomp.emit.replacement import check_writable

    if output is not None:
        check_writable(output)
    if inputs is not None and size:
        raise UsageError("--size is for random inputs; leave it out with --inputs")
    if backend == "runtime":
        toolchain()
    signature = entry(signatures(read_asset(asset)[0], read_metadata(asset)), entrypoint)
    from_files = read_input_files(given or (), signature)
    if inputs is not None:
        values = read_inputs(inputs, signature) | from_files
    elif from_files.keys() >= {spec.name for spec in signature.inputs}:
        values = from_files
    else:
        values = random_inputs(signature, size or (), seed) | from_files
        which = "the other inputs are random" if from_files else "random inputs"
        say(f"{which}, with seed {seed}; --inputs FILE.npz gives {'them' if from_files else 'others'}")
    state = {spec.name: values.pop(spec.name) for spec in signature.states if spec.name in values}
    if backend == "runtime":
        with opened(asset) as native:
            outputs, state = native.call(asset, values, state, entrypoint)
    else:
        outputs = Asset(asset).evaluate(values, state, entrypoint)
    if both := outputs.keys() & state.keys():
        state = {f"state {name}" if name in both else name: value for name, value in state.items()}
    described = {
        kind: [described_array(name, value) for name, value in values.items()]
        for kind, values in (("outputs", outputs), ("states", state))
    }
    if json:
        print_json(described)
    else:
        rows = [[_cell(each) for each in row.values()] for rows in described.values() for row in rows]
        print_table(["output", "type", "min", "max", "mean", "NaN"], rows)
    if output is not None:
        write_outputs(output, outputs | state)
        say(f"outputs: {output}")


def entry(functions: Mapping[str, EntrySignature], name: str) -> EntrySignature:
    """The signature of a function.

    Raises:
        UnknownNameError: there is none of this name.
    """
    if name not in functions:
        raise UnknownNameError(f"there is no entry point {name!r}; there are {near_names(name, functions)}")
    return functions[name]


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
