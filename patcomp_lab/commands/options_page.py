"""The pages of options: `python -m patcomp_lab.commands.options_page docs/generated`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from patcomp.commands.tables import escaped, markdown_table
from patcomp.options import declared
from patcomp_lab.commands.pages import Section, page_rows, pages, write_pages


def options_pages() -> dict[str, str]:
    """The texts of the pages, by the names of their files."""
    from patcomp.cli import whole_command
    from patcomp_models.options import LanguageOptions, VisionOptions

    commands: Any = typer.main.get_command(whole_command())
    opening = [
        "Made by `python -m patcomp_lab.commands.options_page docs/generated`. A row is a field of a dataclass: its",
        "name in Python, its flag on the command line, its type and default, and what it says of itself.",
    ]
    return pages("options", "Options", opening, [
        _of_command("convert", commands.commands["convert"]),
        _of_function("convert-lm", "convert_language_model", LanguageOptions, commands.commands["convert-lm"]),
        _of_function("convert-vlm", "convert_vision_language_model", VisionOptions, commands.commands["convert-vlm"]),
    ])  # fmt: skip


def _of_command(name: str, command: Any) -> Section:
    """The options of a command."""
    found = {", ".join(f"`{each}`" for each in _flags(option)): option for option in command.params}
    rows = [(flags, _default(option.default), _prose(option.help or "")) for flags, option in found.items()]
    head, entries = page_rows(markdown_table(["option", "default", "what it does"], rows), [*found])
    return Section(name, f"The options of `patcomp {name}`", "option", head, entries)


def _of_function(name: str, function: str, options: Callable[..., Any], command: Any) -> Section:
    """The options of a function in Python that a command calls."""
    flags = {flag for option in command.params for flag in _flags(option)}
    rows = []
    for field, each in declared(options).items():
        own = each.option.names or (f"--{field.replace('_', '-')}",)
        flag = next((shown for shown in own[0].split("/") if shown in flags), "")
        told = _prose(f"{each.option.help} {each.option.more}".strip())
        rows.append((f"`{field}`", f"`{flag}`" if flag else "", _type(each.parameter), told))
    table = markdown_table(["in Python", "flag", "type and default", "what it is"], rows)
    head, entries = page_rows(table, [*declared(options)])
    return Section(name, f"The options of `{function}`, `patcomp {name}`", "option", head, entries)


def _flags(option: Any) -> Iterator[str]:
    """How an option is written; an argument is its name."""
    for flag in option.opts:
        yield flag if flag.startswith("-") else flag.lower()


def _type(parameter: inspect.Parameter) -> str:
    """The type of a keyword and its default."""
    kind = parameter.annotation
    shown = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    shown = re.sub(r"\b(?:pathlib|typing|collections\.abc)\.", "", shown)
    default = parameter.default
    return f"`{shown}`".replace("|", "\\|") + ("" if default is inspect.Parameter.empty else f", `{default!r}`")


def _prose(text: str) -> str:
    """A text as the cell of a table; what is in backticks stays."""
    return "`".join(part if index % 2 else escaped(part) for index, part in enumerate(text.split("`")))


def _default(value: Any) -> str:
    """A default of the command line; nothing for None and for a flag."""
    shown = getattr(value, "value", value)
    return "" if callable(shown) or shown in (None, False, "", ()) else f"`{shown}`"


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]), options_pages())
