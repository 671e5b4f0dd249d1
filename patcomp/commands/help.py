"""What `--help` shows: commands and options in groups, types in words, and examples.

The lines of a command's docstring that begin with `$ ` are examples.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from patcomp.commands.common import UsageError
from patcomp.errors import did_you_mean

CONVERT, LOOK, CHECK = "Convert", "Look", "Check"
"""The groups of patcomp's own commands; packages have others."""

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "What is written": (
        "output", "text", "html", "dump-stages", "verify", "force", "writer", "debug-info", "intermediates", "asset",
    ),
    "Device and sizes": ("target", "without", "fix", "sizes"),
    "Numbers and weights": ("compress", "half", "bfloat16", "keep-float32", "int64", "float64", "random"),
    "Names and rules": ("input-names", "output-names", "recover", "assume", "catalog"),
    "How a model is loaded and exported": ("dynamic", "strict", "train", "assume-branch", "import", "trusted"),
    "Models of folders and files": ("task", "onnx-size", "weights", "preprocess", "image", "allow-missing",
                                    "allow-unexpected"),
    "Bundles": ("kind", "set", "dtype", "no-check"),
    "What is shown": ("report", "json", "quiet", "verbose", "log-level", "help"),
})  # fmt: skip
"""The groups of options, in order; every other option of a command stands before them."""

MANY = 12
"""More options of one command are shown in groups."""

WORDS: Mapping[str, str] = MappingProxyType({
    "target": "DEVICE", "fix": "NAME=SIZE", "sizes": "NAME=SIZE,SIZE", "size": "NAME=SIZE", "onnx-size": "NAME=SIZE",
    "set": "NAME=VALUE",
    "dynamic": "INPUT:AXIS=NAME:MIN..MAX", "input-names": "NAME,NAME", "output-names": "NAME,NAME",
    "input": "NAME=FILE", "recover": "NAME,NAME", "image": "HEIGHTxWIDTH", "preprocess": "image or NAME=VALUE",
    "dump-stages": "FOLDER", "import": "MODULE",
    "catalog": "FILE.py or MODULE", "allow-missing": "NAME", "allow-unexpected": "NAME", "without": "RULE",
    "compress": "SCHEME", "kind": "KIND", "assume": "FACT", "keep-float32": "MODULE or NODE", "log-level": "LEVEL",
})  # fmt: skip
"""What the values of options are called whose type alone says little."""

_TYPES: Mapping[str, str] = MappingProxyType({
    "str": "TEXT", "text": "TEXT", "int": "NUMBER", "integer": "NUMBER", "float": "NUMBER", "path": "FILE",
})  # fmt: skip

_EXAMPLE = "$ "
_NEGATIVE = re.compile(r"\s+\[default: no-[\w-]+\]$")
"""The default of a flag, which says nothing."""

SHARED = ("log_level",)
"""The options of `patcomp` itself that every subcommand takes, too."""


def set_log_level(context: typer.Context, level: str | None) -> None:
    """Set what patcomp logs; by default warnings.

    Raises:
        UsageError: there is no such level.
    """
    if level is None and context.parent is not None:
        return  # as `patcomp` itself was told
    level = level or "warning"
    known = ("debug", "info", "warning", "error")
    if level.lower() not in known:
        raise UsageError(f"--log-level must be debug, info, warning or error, got {level}")
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("patcomp").setLevel(level.upper())


class Command(TyperCommand):
    """A command whose help has groups, and which takes the options that `patcomp` itself has."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _check_once(self.get_params(ctx), args)
        with _in_one_sentence(ctx):
            return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_shared(super().get_params(ctx), ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [each for each in self.params if each.param_type_name == "argument"]
        names = [f"{_usage_name(each)}{'...' * (each.nargs == -1)}" for each in arguments]
        return ["[OPTIONS]", *(n if a.required else f"[{n}]" for n, a in zip(names, arguments, strict=True))]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        _write_text(self, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self.get_params(ctx), ctx, formatter)


class Group(TyperGroup):
    """A command of commands, in groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _in_one_sentence(ctx):
            return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_shared(super().get_params(ctx), ctx)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        _write_text(self, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)
        _write_options(self.get_params(ctx), ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if not command.hidden:
                panel = command.rich_help_panel if isinstance(command.rich_help_panel, str) else "Commands"
                groups.setdefault(panel, []).append((name, _first_clause(command.help or "")))
        width = max((len(name) for rows in groups.values() for name, _ in rows), default=0)
        for panel, rows in groups.items():
            with formatter.section(panel):
                formatter.write_dl([(name.ljust(width), told) for name, told in rows])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            path = ctx.command_path
            near = did_you_mean(args[0], self.list_commands(ctx)) or f"; `{path} --help` lists the commands"
            raise UsageError(f"there is no command {args[0]!r} of {path}{near}")
        return super().resolve_command(ctx, args)


class App(typer.Typer):
    """An app whose commands are `Command`s."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=Group, no_args_is_help=True, rich_markup_mode=None, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:  # type: ignore[override]
        return super().command(name, **{"cls": Command, **options})


@contextmanager
def _in_one_sentence(context: Any) -> Iterator[None]:
    """Turn what typer says of wrong arguments into one message.

    Raises:
        UsageError: an argument is missing, unknown or of another type.
    """
    try:
        yield
    except Exception as error:
        if not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
            raise
        said = error.format_message().removesuffix(".")
        for words, own in _TYPER_SAYS.items():
            said = re.sub(words, own, said)
        advice = f"; `{context.command_path} --help` shows what it takes"
        raise UsageError(f"{said[:1].lower()}{said[1:]}{advice}") from None


_TYPER_SAYS: Mapping[str, str | Callable[[re.Match[str]], str]] = MappingProxyType({
    r"^Invalid value for '(.*?)'(?: / '.*?')?: ": r"\1: ",
    r"Value error, ": "",
    r"Input should be a valid integer.*": "a whole number is wanted",
    r"Input should be a valid number.*": "a number is wanted",
    r"Input should be ": "it must be ",
    r"^Missing argument '(\w+)'": lambda found: f"the argument {found[1].upper()} is missing",
    r"^Missing option '(.*?)'(?: / '.*?')?": r"the option \1 is missing",
    r"^No such option: (\S+)": r"there is no option \1",
    r"\((?:Possible options: |Did you mean )(.*?)\??\)": r"(did you mean \1?)",
    r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)$": r"there is no argument for \1",
})  # fmt: skip
"""What typer says, and our words for it."""


def _check_once(parameters: Iterable[Any], arguments: list[str]) -> None:
    """Check that options with one value are given once; typer would take the last one, without a word.

    Raises:
        UsageError: one is given twice.
    """
    given = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for parameter in parameters:
        names = [each for each in parameter.opts if each.startswith("-")]
        if names and not parameter.multiple and not parameter.is_flag:
            times = sum(each in names or each.partition("=")[0] in names for each in given)
            if times > 1:
                raise UsageError(f"{max(names, key=len)} is given {times} times, and takes one value")


def _with_shared(own: list[Any], context: Any) -> list[Any]:
    """The parameters of a command with those that `patcomp` itself has; help is the last one."""
    root = context.find_root()
    if root is context:
        return own
    return [*own[:-1], *(each for each in root.command.params if each.name in SHARED), *own[-1:]]


def _write_text(command: Any, formatter: Any) -> None:
    """A docstring, then its examples."""
    text, examples = text_and_examples(command)
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(text)
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def text_and_examples(command: Any) -> tuple[str, list[str]]:
    """What the docstring of a command says, and its examples."""
    lines = inspect.cleandoc(command.help or "").splitlines()
    examples = [line.removeprefix(_EXAMPLE) for line in lines if line.startswith(_EXAMPLE)]
    text = "\n".join(line for line in lines if not line.startswith(_EXAMPLE))
    return text.partition("\nRaises:\n")[0].strip(), examples


def _write_options(parameters: Iterable[Any], context: Any, formatter: Any) -> None:
    """The arguments and options of a command, many of them in groups."""
    rows: dict[str, tuple[str, str]] = {}
    arguments = []
    for parameter in parameters:
        if (record := parameter.get_help_record(context)) is None:
            continue
        if parameter.param_type_name == "argument":
            arguments.append((_usage_name(parameter), record[1]))
        else:
            rows[option_name(parameter)] = (_written(parameter, record[0]), _NEGATIVE.sub("", record[1]))
    if arguments:
        with formatter.section("Arguments"):
            formatter.write_dl(arguments)
    groups = GROUPS if len(rows) > MANY else {}
    grouped = {name for names in groups.values() for name in names}
    parts = {"Options": [name for name in rows if name not in grouped]}
    parts |= {heading: [name for name in names if name in rows] for heading, names in groups.items()}
    for heading, names in parts.items():
        if names:
            with formatter.section(heading):
                formatter.write_dl([rows[name] for name in names])


def option_name(option: Any) -> str:
    """The long name of an option without dashes: `dump-stages`."""
    return str(max(option.opts, key=len)).lstrip("-")


def _usage_name(argument: Any) -> str:
    return str(argument.name).upper()


def _written(option: Any, record: str) -> str:
    """An option as it is written, with what its value is called: `--fix NAME=SIZE`."""
    names = ", ".join(sorted(option.opts, key=len))
    if option.is_flag:
        return names if option.default is False else " / ".join([names, *option.secondary_opts])
    if (word := WORDS.get(option_name(option))) is not None:
        return f"{names} {word}"
    kind = re.sub(r"^(?:list)?\[(.*)\]$", r"\1", record.rpartition(" ")[2].strip("<>").removesuffix("..."))
    return f"{names} {_TYPES.get(kind.lower(), kind)}"


def _first_clause(text: str) -> str:
    """What a docstring says first, up to a full stop or a semicolon."""
    return re.split(r"[.;](?:\s|$)", " ".join(inspect.cleandoc(text).partition("\n\n")[0].split()))[0]
