"""`patcomp inspect`: look into an asset. What the other commands for assets have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from patcomp.commands.common import AsJson, UsageError, print_json, tell
from patcomp.commands.packages import assets_of, reader_of
from patcomp.commands.subjects import Subject, subject_of
from patcomp.commands.tables import print_table
from patcomp.errors import near_names

if TYPE_CHECKING:
    from patcomp.emit.inspection import Inspection
    from patcomp.ir import IRModule

AssetOrBundle = Annotated[
    str, typer.Argument(help="The .aimodel folder of an asset, or the folder of a bundle.", show_default=False)
]
Entrypoint = Annotated[
    str | None, typer.Option(help="The name of the function; by default main, or the only one.", show_default=False)
]
RandomSizes = Annotated[
    list[str] | None,
    typer.Option(
        help="The size of a dynamic dimension of random inputs and empty states, x:0=4; otherwise 2, or the smallest."
    ),
]


def inspect(
    asset: AssetOrBundle,
    json: AsJson = False,
    weights: Annotated[int, typer.Option(min=0, help="How many of the largest weights to list.")] = 10,
) -> None:
    """Show what an asset holds: functions, composites, ops, weights and metadata; of a bundle, its components.

    $ patcomp inspect net.aimodel --weights 20
    $ patcomp inspect bundles/qwen3 --json
    """
    from patcomp.emit.inspection import inspect_asset

    if subject_of(asset, "inspect", (Subject.ASSET, Subject.BUNDLE)) is Subject.BUNDLE:
        reader_of(Subject.BUNDLE).inspect_bundle(Path(asset), as_json=json)
        return
    found = inspect_asset(Path(asset))
    if json:
        print_json(found.to_dict())
    else:
        _print(found, weights)


def _print(found: Inspection, shown: int) -> None:
    from patcomp.program.units import size_text

    tell(f"{found.path}: {size_text(found.bytes)}")
    for name, value in sorted(found.metadata.items()):
        for key, each in sorted(value.items()) if isinstance(value, Mapping) else [(name, value)]:
            tell(f"  {key}: {each}")
    for name, signature in found.functions.items():
        tell(f"function {name}")
        tell("\n".join(f"  {line}" for line in str(signature).splitlines()))
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


def chosen_entry(functions: Collection[str], name: str | None) -> str:
    """The name of a function of an asset or a model: the given one, or else main, or the only one.

    Raises:
        UsageError: there is none of this name, or there are several without main.
    """
    if name is None and ("main" in functions or len(functions) == 1):
        return "main" if "main" in functions else next(iter(functions))
    if name is None:
        raise UsageError(f"there are several functions; choose one with --entrypoint: {', '.join(functions)}")
    if name not in functions:
        raise UsageError(f"--entrypoint {name}: there is no such function; there are {near_names(name, functions)}")
    return name


@contextmanager
def runnable(path: Path, module: IRModule) -> Iterator[Path]:
    """An asset, or a copy of it without the hardware constraints of tensors, which only Apple's systems lay out.

    Args:
        path: of the asset.
        module: its program.
    """
    from patcomp.emit.asset import Asset
    from patcomp.emit.unconstrained import unconstrained
    from patcomp.interface.constraints import has_constraints

    if not has_constraints(module):
        yield path
        return
    with closing(Asset(path)) as asset, unconstrained(asset) as copy:
        yield copy.path


def runnable_parts(name: str, found: Subject, component: str | None) -> dict[str, Path]:
    """The folders of a bundle's assets by role, or of one component only; an asset alone has the role "".

    Args:
        name: as the user wrote it.
        found: what it is, an asset or a bundle.
        component: the role of the one that is wanted.

    Raises:
        UsageError: there is none of this role.
    """
    if found is not Subject.BUNDLE:
        if component is not None:
            raise UsageError(f"--component goes with a bundle, and {name} is {found}")
        return {"": Path(name)}
    assets = assets_of(Path(name))
    if component is None:
        return assets
    if component not in assets:
        raise UsageError(f"--component {component}: there is no such component; there are {', '.join(assets)}")
    return {component: assets[component]}
