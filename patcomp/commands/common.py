"""What the subcommands share: models and catalogs as the command line names them, tables, errors of usage."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from patcomp.errors import PatcompError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from patcomp import AIProgram
    from patcomp.patterns import RuleSet


def counted(count: int, thing: str) -> str:
    """A number of things in words: `1 rule`, `2 rules`, `no rules`."""
    return f"{count or 'no'} {thing}{'s' * (count != 1)}"


class UsageError(PatcompError, ValueError):
    """What was asked for makes no sense; the command ends with exit code 2."""


Modules = Annotated[
    list[str] | None,
    typer.Option("--import", help="A module to import first, which registers the program's operators or classes."),
]
Catalogs = Annotated[
    list[str] | None,
    typer.Option("--catalog", help="A catalog of rules, tried before patcomp's own: a file FILE.py or a module."),
]
Model = Annotated[
    str,
    typer.Argument(
        help="A program saved by torch.export.save, or FILE.py:FUNCTION, which gives an exported program, or a module "
        "and its example inputs.",
        show_default=False,
    ),
]


def wide_console() -> Console:
    """A console for tables that are not to be folded where their reader is a program."""
    console = Console()
    if not console.is_terminal:
        console.width = 240  # a pipe has no width to fit
    return console


def quiet() -> None:
    """Hides warnings that PyTorch's export raises about itself."""
    import warnings

    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)


# ---- catalogs -------------------------------------------------------------------------------------


def load_catalog(name: str) -> ModuleType:
    """The Python module of a file or of a dotted name.

    Raises:
        UsageError: there is none.
        PatcompError: it fails when it is imported; a wrongly declared rule does.
    """
    path = Path(name)
    if path.suffix == ".py":
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        return _catalog_file(path.absolute())
    return _imported(name, f"there is no catalog {name}")


def _imported(name: str, absent: str) -> ModuleType:
    """The module of a dotted name, looked for where the command runs, too.

    Raises:
        UsageError: there is none; `absent` says so.
        PatcompError: its code fails.
    """
    if not all(map(str.isidentifier, name.split("."))):
        raise UsageError(f"{absent}: {name!r} is neither a file FILE.py nor the name of a module")
    with _importing_from(""), _running(name):
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                raise UsageError(f"{absent}: {error}") from error
            raise


@contextmanager
def _running(what: str) -> Iterator[None]:
    """Makes whatever the user's code raises, or PyTorch where it exports that, one message with its place.

    Raises:
        PatcompError: it raised something.
    """
    try:
        yield
    except PatcompError:
        raise
    except (Exception, SystemExit) as error:
        reason = str(error).strip().partition("\n\n")[0]  # export goes on with what else could be tried
        raise PatcompError(f"{what} fails when it is run: {type(error).__name__}: {reason}{_place(error)}") from error


def _place(error: BaseException) -> str:
    """The line of the user's in which an error was raised: the last one outside of libraries and of patcomp."""
    libraries = (str(Path(__file__).parents[1]), *map(str, _library_folders()), "<")
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(libraries)]
    return f" (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _library_folders() -> list[str]:
    import sysconfig

    return [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]


def load_catalogs(names: Sequence[str] | None) -> list[ModuleType]:
    """The Python modules of several catalogs."""
    return [load_catalog(name) for name in names or ()]


def rules_with(names: Sequence[str] | None) -> RuleSet:
    """patcomp's rules and decompositions, behind those of the named catalogs and of the installed ones."""
    from patcomp.patterns.user_catalogs import in_front, installed_rules, rules_of
    from patterns_catalog import default_decompositions, default_rules

    own = default_decompositions() + default_rules()
    return in_front(own, [*map(rules_of, load_catalogs(names)), installed_rules()])


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _importing_from(str(path.parent.absolute())), _running(str(path)):
        spec.loader.exec_module(module)
    return module


_catalog_file = cache(_run_file)
"""A catalog is one module, however often a command asks for it: its composites can be defined only once."""


@contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    """Lets modules of a folder be imported; the empty one is where the command runs."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


# ---- models ---------------------------------------------------------------------------------------


def load_model(model: str, modules: Sequence[str] | None = None) -> ExportedProgram:
    """The exported program that the command line names.

    Args:
        model: a file that `torch.export.save` wrote, or `FILE.py:FUNCTION`.
        modules: modules to import first.

    Raises:
        PatcompError: the file is not one that `torch.export.save` wrote, or one of the modules that it needs
            cannot be imported; the function gives something else.
        FileNotFoundError: there is no such file.
    """
    quiet()
    import_modules(modules)
    file, separator, function = model.rpartition(".py:")
    return _call(Path(f"{file}.py"), function) if separator else _load(Path(model))


def import_modules(names: Sequence[str] | None) -> None:
    """Imports what registers operators or classes.

    Raises:
        UsageError: there is no such module.
        PatcompError: it cannot be imported.
    """
    for name in names or ():
        _imported(name, f"--import {name}")


def convert_model(model: str, modules: Sequence[str] | None, catalogs: Sequence[str] | None) -> AIProgram:
    """The converted program of what the command line names, stages and all."""
    from patcomp import TorchConverter

    converter = TorchConverter(catalog=load_catalogs(catalogs))
    return converter.add_exported_program(load_model(model, modules)).to_coreai()


def _call(path: Path, function: str) -> ExportedProgram:
    """What a function of a Python file gives, exported where it is not yet."""
    import torch

    made = getattr(_run_file(path), function, None)
    if not callable(made):
        raise UsageError(f"{path} has no function {function}")
    with _running(f"{function} of {path}"):
        model = made()
    if isinstance(model, torch.export.ExportedProgram):
        return model
    if isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], torch.nn.Module):
        if not isinstance(model[1], tuple | list):
            raise PatcompError(f"{function} of {path}: the inputs must be a tuple, got {type(model[1]).__name__}")
        with _running(f"the export of {function} of {path}"):
            return torch.export.export(model[0].eval(), tuple(model[1]))
    raise PatcompError(
        f"{function} of {path} gives {type(model).__name__}, not an ExportedProgram, nor a module and its inputs"
    )


def _load(path: Path) -> ExportedProgram:
    import torch

    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    reasons = _Reasons()
    loggers = [logging.getLogger(name) for name in _Reasons.LOGGERS]
    for logger in loggers:
        logger.addFilter(reasons)
    try:
        return torch.export.load(path)
    except Exception as error:
        reason = str(reasons.last or error)
        advice = "\n--import MODULE imports a module that registers a class or an operator first"
        advice = advice if "regist" in reason else ""
        raise PatcompError(f"{path} is not a program that torch.export.save wrote: {reason}{advice}") from error
    finally:
        for logger in loggers:
            logger.removeFilter(reasons)


class _Reasons(logging.Filter):
    """Keeps what PyTorch logs when it cannot load a program, and its exceptions say only that it could not."""

    LOGGERS = ("torch.export", "torch.export.pt2_archive._package")

    def __init__(self) -> None:
        super().__init__()
        self.last: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Drops the record and keeps its exception."""
        if record.exc_info and record.exc_info[1] is not None:
            self.last = record.exc_info[1]
        return False
