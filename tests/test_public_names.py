"""One name, one place: a public name of a module is defined in one file, with listed exceptions."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from typer import Typer
from typer.models import CommandInfo

from patcomp.cli import whole_command
from tests.helpers.packages import PACKAGES

ROOT = Path(__file__).parents[1]

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "COMMANDS": ("patcomp_models/commands/", "patcomp_lab/commands/", "patcomp/onnx/commands"),
    "DEFECT": ("patcomp/defects/known/",),
    "FACTS": ("patcomp/devices/known/",),
    "main": ("",),  # what a file does that runs as a program
}
"""Names that each file of a family has, because what reads the family asks for them."""

REGISTERED = ("decomposes", "emits", "implements")
"""Decorators that register a function for an op, whose name it has."""

COUNTED = tuple(package for package in PACKAGES if not package.endswith("_catalog"))
"""Catalogs do not count: most of their names are rules, named after ops, and several stages rewrite one op."""

TWICE = {
    "build": "of the dialect aten, and of targets in the pattern language",
    "check_bundle": "a function of `patcomp.language` and of `patcomp.bundles`: both are public",
    "composite": "of the IR, and of PyTorch functions: both are public",
    "is_constant": "a condition of the pattern language has the name of the question",
}
"""Names that are defined in two files, with the reason."""

MOST = 10


def public_names(text: str) -> Iterator[str]:
    """The public names that a file's text defines at its top, also behind a condition, without registered functions."""
    waiting: list[ast.stmt] = [*ast.parse(text).body]
    while waiting:
        node = waiting.pop()
        found: list[str] = []
        if isinstance(node, ast.If | ast.Try):
            waiting += [*node.body, *node.orelse]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            decorators = {ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in node.decorator_list}
            found = [] if decorators & {*REGISTERED} else [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named = [part for each in targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
            found = [each.id for each in named if isinstance(each, ast.Name)]
        yield from (name for name in found if not name.startswith("_"))


def _all_commands(app: Typer) -> Iterator[CommandInfo]:
    """The subcommands of an app, with those of its groups."""
    yield from app.registered_commands
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _all_commands(group.typer_instance)


def names_in_two_files() -> dict[str, list[str]]:
    """The files of each public name that two files define, but for families and the functions of subcommands."""
    callbacks = [each.callback for each in _all_commands(whole_command()) if each.callback is not None]
    subcommands = {(each.__module__, each.__name__) for each in callbacks}
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(file for package in COUNTED for file in (ROOT / package).rglob("*.py")):
        place = str(file.relative_to(ROOT))
        module = place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in {*public_names(file.read_text())}:
            if not place.startswith(FAMILIES.get(name, "no family")) and (module, name) not in subcommands:
                places[name].append(place)
    return {name: files for name, files in places.items() if len(files) > 1}


def test_a_public_name_is_defined_in_one_file() -> None:
    found = names_in_two_files()
    assert found.keys() >= TWICE.keys()
    others = {name: files for name, files in found.items() if name not in TWICE}
    assert len(found) <= MOST, "rename, merge or make private:\n" + "\n".join(
        f"{name}: {', '.join(files)}" for name, files in sorted(others.items())
    )


def test_what_is_a_public_name() -> None:
    text = "A, _b = 1, 2\nc: int = 3\nif A:\n    def d(): e = 1\nclass F: g = 1\n@implements('h')\ndef h(): ...\n"
    assert {*public_names(text)} == {"A", "c", "d", "F"}
