"""`patcomp bench`: how long the functions of an asset take, and how much memory."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from patcomp.commands.assets import AssetOrBundle, Entrypoint, runnable, runnable_parts
from patcomp.commands.common import AsJson, UsageError, print_json, say
from patcomp.commands.options import takes_options
from patcomp.commands.progress import working
from patcomp.commands.running import InputOptions
from patcomp.commands.subjects import Subject, subject_of
from patcomp.commands.tables import print_table
from patcomp.errors import near_names

if TYPE_CHECKING:
    from patcomp.emit.timing import Timing
    from patcomp.interface.signature import EntrySignature

_Results = dict[str, "Timing | str"]
"""The timing of each function, or why there is none."""


@takes_options
def bench(
    asset: AssetOrBundle,
    *,
    given: InputOptions,
    entrypoint: Entrypoint = None,
    component: Annotated[str | None, typer.Option(help="The role of an asset of a bundle, encoder.")] = None,
    calls: Annotated[int, typer.Option(min=1, help="How many calls to time after the first one.")] = 30,
    unit: Annotated[
        Literal["cpu", "gpu", "neural_engine"] | None,
        typer.Option(help="Compile for a compute unit, which coreai-core lets its caller choose on macOS alone."),
    ] = None,
    patience: Annotated[float, typer.Option(min=1, help="Seconds after which a function is given up.")] = 600,
    json: AsJson = False,
) -> None:
    """Time the functions of an asset on the Core AI runtime: loading, the first call, and calls after that.

    Each function runs in a process of its own, so that one that aborts or hangs does not end the command. All functions
    are timed unless one is named. The exit code is 1 if one could not be timed.

    $ patcomp bench net.aimodel --calls 100
    """
    from patcomp.emit.toolchain.compute_units import check_compute_unit
    from patcomp.emit.toolchain.library import toolchain

    found = subject_of(asset, "bench", (Subject.ASSET, Subject.BUNDLE))
    given.check()
    toolchain()
    check_compute_unit(unit)
    results: dict[str, _Results] = {}
    for role, path in runnable_parts(asset, found, component).items():
        results[role] = dict(_timings(path, given, entrypoint, calls, unit, patience))
    if json:
        plain = {role: {name: _plain(each) for name, each in parts.items()} for role, parts in results.items()}
        print_json({"machine": _machine(), "unit": unit, "functions": plain if found is Subject.BUNDLE else plain[""]})
    else:
        _print(results)
    flat = {f"{role}/{name}": each for role, parts in results.items() for name, each in parts.items()}
    failed = {name.lstrip("/"): reason for name, reason in flat.items() if isinstance(reason, str)}
    for name, reason in failed.items():
        say(f"error: {name}: {reason}")
    if failed:
        sys.exit(1)


def _timings(
    path: Path, given: InputOptions, entrypoint: str | None, calls: int, unit: Any, patience: float
) -> Iterator[tuple[str, Timing | str]]:
    """The timing of each function of an asset, or of one, or why there is none.

    Raises:
        UsageError: there is no such function, or inputs are given for several.
    """
    from patcomp.emit.asset import Asset
    from patcomp.emit.files.metadata import read_metadata
    from patcomp.emit.native import Native, NativeError, ProcessDied
    from patcomp.emit.reading import read_asset, signatures

    module, _ = read_asset(path)
    functions = _chosen(signatures(module, read_metadata(path)), entrypoint, given)
    initial = Asset(path).initial_state
    for name, signature in functions.items():
        values = given.values(signature, initial.get(name, ()))
        state = {spec.name: values.pop(spec.name) for spec in signature.states if spec.name in values}
        with working(f"timing {name} of {path}"), closing(Native()) as native, runnable(path, module) as usable:
            try:
                yield name, native.time(usable, values, state, name, calls=calls, unit=unit, patience=patience)
            except (NativeError, ProcessDied, TimeoutError) as error:
                yield name, str(error).splitlines()[0]


def _chosen(
    functions: Mapping[str, EntrySignature], entrypoint: str | None, given: InputOptions
) -> dict[str, EntrySignature]:
    if entrypoint is None:
        if len(functions) > 1 and (given.inputs is not None or given.given or given.size):
            raise UsageError(f"choose the function for these inputs with --entrypoint: {', '.join(functions)}")
        return dict(functions)
    if entrypoint not in functions:
        known = near_names(entrypoint, functions)
        raise UsageError(f"--entrypoint {entrypoint}: there is no such function; there are {known}")
    return {entrypoint: functions[entrypoint]}


def _plain(result: Timing | str) -> dict[str, Any]:
    return {"error": result} if isinstance(result, str) else result.to_dict()


def _machine() -> dict[str, Any]:
    """What the times depend on."""
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "coreai-core": version("coreai-core"),
        "patcomp": version("patcomp"),
    }


def _print(results: Mapping[str, _Results]) -> None:
    """A row for each function that was timed; milliseconds, and the peak memory beyond that of the process itself."""
    from patcomp.emit.timing import PERCENTILES
    from patcomp.program.units import size_text

    rows = [
        [
            f"{role}/{name}" if role else name,
            *(
                f"{seconds * 1000:.3g}"
                for seconds in (
                    each.load_seconds, each.first_seconds, min(each.call_seconds), *map(each.percentile, PERCENTILES)
                )
            ),
            size_text(each.memory_loaded - each.memory_before),
            size_text(each.memory_called - each.memory_before),
        ]
        for role, parts in results.items()
        for name, each in parts.items()
        if not isinstance(each, str)
    ]  # fmt: skip
    if not rows:
        return
    heads = ["load", "first call", "least", *(f"{percent} %" for percent in PERCENTILES)]
    print_table(["function", *(f"{head} [ms]" for head in heads), "memory loaded", "called"], rows)
