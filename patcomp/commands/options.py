"""Commands whose options are the fields of dataclasses."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from types import NoneType
from typing import Annotated, Any, get_args

import typer

from patcomp.options import Option


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with options of the command line in place of each parameter whose type is a dataclass of options."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, dict[str, str]]] = {}
    for parameter in signature.parameters.values():
        kind: Any = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            flags = _flags(kind)
            groups[parameter.name] = kind, {flag.name: field for field, flag in flags.items()}
            parameters += flags.values()
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def called(**values: Any) -> None:
        for name, (kind, fields) in groups.items():
            given = {field: values.pop(flag) for flag, field in fields.items()}
            values[name] = kind(**{field: value for field, value in given.items() if value is not None})
        command(**values)

    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return called


def _flags(options: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a command for a dataclass of options, by field."""
    found = {}
    for name, parameter in inspect.signature(options, eval_str=True).parameters.items():
        kind, option, *_ = get_args(parameter.annotation)
        if not isinstance(option, Option):
            found[name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        elif option.flag is not NoneType:
            found[name] = _flag(parameter, option.flag or kind, option)
    return found


def _flag(parameter: inspect.Parameter, kind: Any, option: Option) -> inspect.Parameter:
    """The parameter of a command for a field that Python takes, too."""
    name, default = parameter.name, parameter.default
    if option.names and not option.names[0].startswith("-"):
        name, shown = option.names[0], typer.Argument(help=option.help)
    else:
        is_switch = kind is bool and default is False and not option.names
        shown = typer.Option(*([f"--{name.replace('_', '-')}"] if is_switch else option.names), help=option.help)
    if default is not inspect.Parameter.empty and option.flag is not None:
        # the default of Python may be of no type of the command line; None stands for it
        kind, default = (bool, True) if kind is bool else (kind | None, None)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])
