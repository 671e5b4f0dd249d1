"""Options once: a field of a dataclass is a keyword in Python, a flag of a command, and a row of the documentation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from textwrap import fill
from types import MappingProxyType
from typing import Any, ForwardRef, Literal, ParamSpec, TypeVar, get_args

from patcomp.errors import did_you_mean

_Keywords = ParamSpec("_Keywords")
_Options = TypeVar("_Options")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Option:
    """What a field of options says of itself, in its annotation: `Annotated[int | None, Option("The most tokens.")]`.

    Attributes:
        help: one sentence, which `--help` shows.
        more: further sentences.
        flag: the type of the command's flag, if it is another one than the field's; `NoneType` for no flag.
        names: of the flag, if they are not the field's.
    """

    help: str
    more: str = ""
    flag: Any = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Declared:
    """A field of options.

    Attributes:
        parameter: its name, type, default, and whether it is given by keyword only.
        option: what it says of itself.
    """

    parameter: inspect.Parameter
    option: Option


def declared(options: Callable[..., Any]) -> Mapping[str, Declared]:
    """The fields of a dataclass of options, by name, in the order of its arguments.

    A type that needs a library which a command does not need is a text: `Annotated["nn.Module", Option(...)]`.
    """
    found = {}
    for name, parameter in inspect.signature(options).parameters.items():
        kind, option = get_args(parameter.annotation)
        shown = kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
        found[name] = Declared(parameter.replace(annotation=shown), option)
    return MappingProxyType(found)


def takes(
    options: Callable[_Keywords, _Options],
) -> Callable[[Callable[[_Options], _Result]], Callable[_Keywords, _Result]]:
    """Decorator: a function of a dataclass of options takes its fields as arguments.

    An editor and mypy see the fields in the function's signature, and `help` shows what they say of themselves.
    """

    def decorated(function: Callable[[_Options], _Result]) -> Callable[_Keywords, _Result]:
        fields = declared(options)
        returned = inspect.signature(function).return_annotation
        signature = inspect.Signature([each.parameter for each in fields.values()], return_annotation=returned)

        @wraps(function)
        def called(*args: _Keywords.args, **keywords: _Keywords.kwargs) -> _Result:
            for name in keywords:
                if name not in fields:
                    raise TypeError(f"{function.__name__} has no argument {name!r}{did_you_mean(name, fields)}")
            try:
                signature.bind(*args, **keywords)
            except TypeError as error:
                raise TypeError(f"{function.__name__}: {error}") from None
            return function(options(*args, **keywords))

        called.__signature__ = signature  # type: ignore[attr-defined]
        called.__doc__ = _with_arguments(function.__doc__ or "", fields)
        return called

    return decorated


def _with_arguments(text: str, fields: Mapping[str, Declared]) -> str:
    """A docstring with what the fields say behind its first paragraph."""
    first, gap, rest = text.partition("\n\n")
    told = [
        fill(f"{name}: {each.option.help} {each.option.more}", 120, initial_indent=" " * 8, subsequent_indent=" " * 12)
        for name, each in fields.items()
    ]
    return "\n".join([f"{first}\n\n    Args:", *told]) + gap + rest


ALLOW_MISSING = Option(
    "A weight that the folder may lack and that is drawn at random, by its name or a pattern (classifier.*); may be "
    "given several times.",
    "In Python one or a list. The folder may also have it in another shape; a warning names these weights.",
    flag=list[str],
)
ALLOW_UNEXPECTED = Option(
    "Ignore this weight of the folder, by name or pattern; may be given several times.",
    "In Python one or a list.",
    flag=list[str],
)
CATALOG = Option(
    "A catalog of rules, tried before patcomp's own: a file FILE.py or a module.",
    "In Python a list of catalogs of rules, lowerings and Metal kernels, as `TorchConverter` takes them.",
    flag=list[str],
)
COMPRESS = Option(
    "How small the weights become: 4bit, 8bit, another scheme, a budget (4.5bits, 30%), or a TOML file.",
    "`4bit` is for the GPU integers in blocks of 32, with the head in 8 bits, and for the Neural Engine palettes of 32 "
    "channels, with the table of embeddings as it is; in Python also a config (docs/compression.md). None leaves the "
    "weights as they are. Programs are compared with the model before their weights are compressed.",
    flag=str,
)
WRITER = Option(
    "What writes the asset, python or coreai; by default coreai-core where it is installed, and python for 256 MiB of "
    "weights and more.",
    flag=Literal["python", "coreai"],
)
