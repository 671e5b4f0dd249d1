"""Helpers of the subcommands: loading catalogs, messages, usage errors."""

from __future__ import annotations

import gc
import importlib.util
import json
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from patcomp.collector import collector_paused
from patcomp.errors import PatcompError, printable
from patcomp.options import ALLOW_MISSING, ALLOW_UNEXPECTED, CATALOG, COMPRESS, WRITER

if TYPE_CHECKING:
    from patcomp.patterns import Rule, RuleSet


def counted(count: int, thing: str) -> str:
    """A number of things in words: `1 rule`, `2 rules`, `no rules`."""
    return f"{count or 'no'} {thing}{'s' * (count != 1)}"


def rule_count(entries: Collection[Rule]) -> str:
    """How many rules and decompositions there are, in words."""
    from patcomp.patterns import Stage

    decompositions = sum(entry.stage is Stage.DECOMPOSE for entry in entries)
    counts = [(len(entries) - decompositions, "rule"), (decompositions, "decomposition")]
    return " and ".join(counted(count, thing) for count, thing in counts if count) or "no rules"


def require_transformers(what: str) -> None:
    """Check that transformers is installed, for what is converted.

    Raises:
        PatcompError: it is not.
    """
    if importlib.util.find_spec("transformers") is None:
        raise PatcompError(f'{what} needs transformers: pip install "patcomp[models]"')


class UsageError(PatcompError, ValueError):
    """The command line is wrong; the command ends with exit code 2."""


def given_options(context: typer.Context, known: Sequence[str]) -> list[str]:
    """The options given on the command line, such as `--text`, without the options of some parameters."""
    sources = {each.name: context.get_parameter_source(each.name or "") for each in context.command.params}
    return [
        each.opts[0] for each in context.command.params
        if each.name not in known and getattr(sources[each.name], "name", "") == "COMMANDLINE"
    ]  # fmt: skip


ANSWER_IS_NO = 3
"""The exit code of a command whose answer is no: numbers or programs differ, or a rule is wrong."""

NOT_PROVED = 4
"""The exit code of a command that found no mistake in a rule, and no proof of it."""


def command_line() -> str:
    """The command that runs, as its user may enter it again."""
    return shlex.join(["patcomp", *sys.argv[1:]])


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, for other programs.")]


def print_json(data: object) -> None:
    """Print plain data on standard output."""
    print(json.dumps(data, indent=2))


def print_text(text: object) -> None:
    """Print the text of a program on standard output: for other programs as it is, for a terminal `printable`."""
    print(printable(str(text)) if sys.stdout.isatty() else text)


Modules = Annotated[
    list[str] | None,
    typer.Option("--import", help="A module to import first, which registers the program's operators or classes."),
]
Catalogs = Annotated[list[str] | None, typer.Option("--catalog", help=CATALOG.help)]

AllowMissing = Annotated[list[str] | None, typer.Option(help=ALLOW_MISSING.help)]
AllowUnexpected = Annotated[list[str] | None, typer.Option(help=ALLOW_UNEXPECTED.help)]

WriterOption = Annotated[Literal["python", "coreai"] | None, typer.Option("--writer", help=WRITER.help)]

Compress = Annotated[str | None, typer.Option("--compress", help=COMPRESS.help)]

Fix = Annotated[
    list[str] | None,
    typer.Option(help="Fix the size of a dynamic dimension, length=128; may be given several times."),
]


SizesOption = Annotated[
    list[str] | None,
    typer.Option(
        help="An entry point for each size of a dynamic dimension, length=128,256; may be given for several dimensions."
    ),
]


KeepFloat32 = Annotated[
    list[str] | None,
    typer.Option(
        help="Leave the ops of a module (layers.3, layers.*.norm) or of an FX node (mul_7) in float32 in a program of "
        "half precision; may be given several times. auto: the fewest ops whose values float16 cannot hold."
    ),
]


class RandomNumbers(StrEnum):
    """What becomes of the random numbers that a model draws."""

    refuse = "refuse"
    inputs = "inputs"


Random = Annotated[
    RandomNumbers, typer.Option(help="Refuse a model that draws random numbers, or make each draw an input.")
]


def fixed_sizes(texts: Sequence[str] | None) -> dict[str, int]:
    """The sizes that `--fix` gives to dimensions, by name.

    Raises:
        UsageError: a text is not NAME=SIZE, or a dimension has two sizes.
    """
    sizes: dict[str, int] = {}
    for text in texts or ():
        name, _, size = text.partition("=")
        if not (name.isidentifier() and size.isdecimal() and size.isascii()):
            raise UsageError(f"--fix {text} must have the form NAME=SIZE, such as length=128")
        if sizes.setdefault(name, int(size)) != int(size):
            raise UsageError(f"--fix gives two sizes to {name}, {sizes[name]} and {int(size)}")
    return sizes


def several_sizes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """The sizes that `--sizes` gives to dimensions, by name.

    Raises:
        UsageError: a text is not NAME=SIZE,SIZE, or a dimension is given twice.
    """
    sizes: dict[str, tuple[int, ...]] = {}
    for text in texts or ():
        name, _, listed = text.partition("=")
        numbers = listed.split(",")
        if not (name.isidentifier() and all(each.isdecimal() and each.isascii() for each in numbers)):
            raise UsageError(f"--sizes {text} must have the form NAME=SIZE,SIZE, such as length=128,256")
        if name in sizes:
            raise UsageError(f"--sizes is given twice for {name}; write all its sizes in one list")
        sizes[name] = tuple(map(int, numbers))
    return sizes


_spinners: list[Console] = []
"""The console on which a spinner turns now; only this console can write above it."""


@contextmanager
def spinning(console: Console) -> Iterator[None]:
    """While a spinner turns on a console, messages are written above it."""
    _spinners.append(console)
    try:
        yield
    finally:
        _spinners.remove(console)


def is_spinning() -> bool:
    """Whether a spinner turns now."""
    return bool(_spinners)


def error_console() -> Console:
    """The console of standard error, for messages, because standard output is for the command's data."""
    return _spinners[-1] if _spinners else Console(stderr=True)


_COLOURS = {
    r"\bpassed\b": "green",
    r"\b(FAILED|LOST|WRONG NUMBERS)\b": "bold red",
    r"^error:": "bold red",
    r"^warning:": "yellow",
    r"^note:": "cyan",
}
"""What has a colour on a terminal. rich leaves colours out of pipes and files, and with the variable `NO_COLOR`."""


def coloured(text: str) -> Text:
    """A text for a terminal, with `_COLOURS`."""
    made = Text(printable(text))
    for words, colour in _COLOURS.items():
        made.highlight_regex(words, colour)
    return made


def print_lines(text: str, console: Console) -> None:
    """Print lines; on a terminal they fold at words, elsewhere they stay whole."""
    console.print(coloured(text), soft_wrap=not console.is_terminal)


def say(message: str) -> None:
    """Print a message on standard error."""
    print_lines(message, error_console())


def tell(text: object, *, flush: bool = False) -> None:
    """Print a text on standard output. Control characters are escaped: names of files or models may contain some, and a
    terminal would obey them."""
    print(printable(str(text)), flush=flush)


def import_torch() -> None:
    """Import PyTorch, and leave its objects, which stay, out of what the collector looks through: half a second of
    CPU of a command. Commands do this, because the process is theirs."""
    if "torch" not in sys.modules:
        with collector_paused():
            import torch  # noqa: F401

            gc.freeze()


def hide_export_warnings() -> None:
    """Hide warnings that PyTorch's export raises about itself."""
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
    if path.is_file():
        raise UsageError(f"{name} is a file, and a catalog is a file FILE.py or the name of a module")
    return _imported(name, f"there is no catalog {name}")


def _imported(name: str, absent: str) -> ModuleType:
    """Import a module by its dotted name, also from the folder where the command runs.

    Raises:
        UsageError: there is no such module; the message starts with `absent`.
        PatcompError: the module's code fails.
    """
    if not all(map(str.isidentifier, name.split("."))):
        raise UsageError(f"{absent}: {name!r} is neither a file FILE.py nor the name of a module")
    with _importing_from(""), running(name):
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                raise UsageError(f"{absent}: {error}") from error
            raise


@contextmanager
def running(what: str) -> Iterator[None]:
    """Turn any exception of the user's code, or of its export, into one message with its place.

    Redirect the output of that code to standard error.

    Raises:
        PatcompError: the code raised an exception.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except PatcompError:
        raise
    except (Exception, SystemExit) as error:
        reason = str(error).strip().partition("\n\n")[0]  # export goes on with what else could be tried
        raise PatcompError(
            f"{what} fails when it is run: {type(error).__name__}: {reason}{_place(error)}{_cause(error)}"
        ) from error


def _place(error: BaseException) -> str:
    """The line of user code that raised an error: the last frame outside of libraries and patcomp."""
    libraries = (str(Path(__file__).parents[1]), *map(str, _library_folders()), "<")
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(libraries)]
    return f" (at {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _cause(error: BaseException) -> str:
    """The first error in the chain of causes, with advice if torchvision raised it."""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    because = f"\nbecause of {type(first).__name__}: {first}" if first is not error else ""
    if "torchvision::" not in str(first):
        return because
    from patcomp.torchvision import ADVICE

    return f"{because}\n{ADVICE}"


def _library_folders() -> list[str]:
    import sysconfig

    return [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]


def load_catalogs(names: Sequence[str] | None) -> list[ModuleType]:
    """The Python modules of several catalogs."""
    return [load_catalog(name) for name in names or ()]


def rules_with(names: Sequence[str] | None, *, decompositions: bool = True) -> RuleSet:
    """The rules and decompositions of the named catalogs, then of installed catalogs, then patcomp's own.

    Args:
        decompositions: whether the caller needs decompositions. If not, patcomp's own are left out unless another
            catalog may have rules of their names, because they import PyTorch.
    """
    from patcomp.patterns import Decompositions
    from patcomp.patterns.installed_catalogs import installed_catalogs
    from patcomp.patterns.user_catalogs import in_front, rules_of
    from patterns_catalog import all_rules, default_rules

    users = [*map(rules_of, load_catalogs(names)), *installed_catalogs()]
    if not decompositions:
        users = [each for each in users if not isinstance(each, Decompositions)]
    return in_front(all_rules() if decompositions or any(users) else default_rules(), users)


class _Uncached(SourceFileLoader):
    """Writes no `__pycache__` beside a user's file, whose stale code would be run after a quick change."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0) -> None:
        return


def run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=_Uncached(path.stem, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    with _importing_from(str(path.parent.absolute())), running(str(shown)):
        spec.loader.exec_module(module)
    return module


_catalog_file = cache(run_file)
"""The loaded catalogs. Each is imported only once, because its composites can be defined only once."""


@contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    """Make the modules of a folder importable; the empty string is the current folder."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def import_modules(names: Sequence[str] | None) -> None:
    """Import the modules that register operators or classes.

    Raises:
        UsageError: there is no such module.
        PatcompError: it cannot be imported.
    """
    for name in names or ():
        _imported(name, f"--import {name}")


def write_page(html: Path, text: str) -> None:
    """Write the file of `--html`, and its folder if there is none."""
    html.parent.mkdir(parents=True, exist_ok=True)
    html.write_text(text, encoding="utf-8")


def check_page(html: Path) -> None:
    """Check before long work that the file of `--html` can be written.

    Raises:
        UsageError: it is a folder.
        OSError: it cannot be written.
    """
    from patcomp.emit.files.replacement import check_writable

    if html.is_dir():
        raise UsageError(f"--html {html} is a folder; name a file")
    if str(html) == "-":
        raise UsageError("--html - would be a page on standard output; name a file, net.html")
    check_writable(html)
