"""What a command records of itself in the assets that it writes, so that `patcomp reproduce` can run it again."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import typer

from patcomp.emit.files.manifest import in_manifests, installed_versions

_OUTPUTS = ("--output", "--text", "--html", "--dump-stages")
NOT_RECORDED = frozenset((*_OUTPUTS, "--report", "--json", "--quiet", "--verbose", "--force", "--verify"))
"""Options that say what else is written or shown, and not what the asset is."""

PACKAGES = ("transformers", "diffusers", "timm", "torchvision")
"""The packages, beside the tools of every asset, whose code models of folders are made of."""


_CONTEXT = "context_of_recipe"


def with_recipe(command: Callable[..., None]) -> Callable[..., None]:
    """A command that writes a recipe of itself into its assets and bundles: its name, its arguments, the hashes of the
    files that these name, and the versions of packages that models come from."""

    signature = inspect.signature(command, eval_str=True)
    given = next((name for name, each in signature.parameters.items() if each.annotation is typer.Context), None)

    @functools.wraps(command)
    def called(**values: Any) -> None:
        context = values[given] if given is not None else values.pop(_CONTEXT)
        arguments = typed_arguments(context)
        model = _renamed.get() or (_shown(arguments[0]) if arguments else "")
        files = named_files(arguments, model=model)
        before = {name: _state(path) for name, path in files.items()}

        @functools.cache
        def recipe() -> Mapping[str, Any]:
            return {
                "command": context.info_name,
                "arguments": [model, *map(_shown, arguments[1:])],
                "files": {
                    name: digest if _state(files[name]) == before[name] else "changed while the command ran"
                    for name, digest in hashes_of_files(files).items()
                },
                "packages": installed_versions(*PACKAGES),
            }

        with in_manifests(recipe):
            command(**values)

    if given is None:
        own = inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [*signature.parameters.values(), own]
        called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return called


@contextmanager
def named_as(model: str) -> Iterator[None]:
    """Around a command whose recipe calls the model by another name."""
    token = _renamed.set(model)
    try:
        yield
    finally:
        _renamed.reset(token)


_renamed: ContextVar[str | None] = ContextVar("renamed", default=None)


def typed_arguments(context: typer.Context) -> list[str]:
    """What the user gave to a command, in the order of its help: first arguments, and then options, by their long
    names. Options about outputs are left out."""
    given = [
        each for each in context.command.params
        if getattr(context.get_parameter_source(each.name or ""), "name", "") == "COMMANDLINE"
    ]  # fmt: skip
    found: list[str] = []
    for each in sorted(given, key=lambda each: each.param_type_name):  # "argument", "option"
        value = context.params[each.name or ""]
        values = value if isinstance(value, list | tuple) else [value]
        texts = [str(getattr(one, "value", one)) for one in values]  # of an enumeration
        if each.param_type_name == "argument":
            found += texts
            continue
        long = next(name for name in each.opts if name.startswith("--"))
        if long in NOT_RECORDED:
            continue
        if getattr(each, "is_flag", False):
            found.append(long if value else each.secondary_opts[0])
        else:
            found += [part for text in texts for part in (long, text)]
    return found


def named_files(arguments: Sequence[str], folder: Path = Path(), model: str = "") -> dict[str, Path]:
    """The files that the arguments of a command name to be read, by what a recipe calls them; of a model's folder all
    that are not hidden.

    Args:
        arguments: of the command; the first one is the model.
        folder: where the command runs.
        model: what the recipe calls the model; by default as the command does.
    """
    found: dict[str, Path] = {}
    for number, text in enumerate(arguments):
        path, name = Path(folder, path_in(text)), path_in(model if model and not number else _shown(text, folder))
        if not number and path.is_dir():
            inside = ((each, each.relative_to(path)) for each in sorted(path.rglob("*")) if each.is_file())
            found |= {f"{name}/{part.as_posix()}": each for each, part in inside if not _hidden(part)}
        elif path.is_file() and arguments[max(0, number - 1)] not in _OUTPUTS:
            found[name] = path
    return found


def hashes_of_files(files: Mapping[str, Path]) -> dict[str, str]:
    """The SHA-256 of files, by name.

    Raises:
        OSError: a file cannot be read.
    """
    return {name: _hash(path.absolute(), _state(path)) for name, path in files.items()}


@functools.cache  # of the process: a batch converts a model of gigabytes in several ways
def _hash(path: Path, state: tuple[int, int]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def path_in(argument: str) -> str:
    """The path in an argument: of `FILE.py:FUNCTION` the file."""
    file, separator, _ = argument.rpartition(".py:")
    return f"{file}.py" if separator else argument


def _shown(argument: str, folder: Path = Path()) -> str:
    """An argument without an absolute path: a path in the folder of the command is relative to it, and of another path
    the name is left."""
    if not os.path.isabs(argument):
        return argument.rstrip("/")
    path, here = Path(argument), Path(folder).absolute()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _state(path: Path) -> tuple[int, int]:
    """What changes if a file is written."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns
