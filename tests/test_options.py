"""Options once: the fields of a dataclass are keywords of a function, flags of a command, and options of a bundle."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from patcomp.cli import whole_command
from patcomp.commands.options import takes_options
from patcomp.options import Option, declared, takes
from patcomp_lab.commands.options_page import options_pages
from patcomp_models.bundles.kinds.language import LanguageModel, VisionLanguageModel
from patcomp_models.language import convert_language_model, convert_vision_language_model
from patcomp_models.options import LanguageOptions, VisionOptions

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Wanted:
    """What is wanted."""

    kind: Annotated["nothing.Here | str", Option("What is made.", flag=str, names=("thing",))]  # type: ignore[name-defined]  # noqa: F821
    _: KW_ONLY
    size: Annotated[int, Option("How large it is.", "At least 1.")] = 3
    names: Annotated[Sequence[str], Option("A name; may be given several times.", flag=list[str])] = ()
    hidden: Annotated[Any, Option("What only Python takes.", flag=NoneType)] = None
    whole: Annotated[Any, Option("Whether all of it is made.", flag=bool)] = None
    quick: Annotated[bool, Option("Make it quickly.")] = False


@takes(Wanted)
def make(options: Wanted) -> str:
    """Make it.

    Raises:
        ValueError: never.
    """
    return f"{options.kind} {options.size} {options.names} {options.hidden} {options.whole} {options.quick}"


def test_a_function_takes_the_fields() -> None:
    assert make("a") == "a 3 () None None False"
    assert make(kind="a", size=4, hidden=1) == "a 4 () 1 None False"
    assert [*inspect.signature(make).parameters] == ["kind", "size", "names", "hidden", "whole", "quick"]
    assert str(inspect.signature(make)).startswith("(kind: 'nothing.Here | str', *, size: int = 3, names:")
    assert inspect.signature(make).return_annotation is str
    doc = (make.__doc__ or "").splitlines()
    assert doc[:4] == ["Make it.", "", "    Args:", "        kind: What is made."]
    assert "        size: How large it is. At least 1." in doc
    assert doc[-3:] == ["    Raises:", "        ValueError: never.", "    "]


def test_a_wrong_keyword_is_named_with_a_near_one() -> None:
    """mypy names it, too: without an error of its own, the comments here would be unused."""
    with pytest.raises(TypeError, match=r"^make has no argument 'siez'; did you mean size\?$"):
        make("a", siez=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^make has no argument 'q'$"):
        make("a", q=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^make: missing a required argument: 'kind'$"):
        make()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^make: too many positional arguments$"):
        make("a", 3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^convert_language_model has no argument 'max_contxt'; did you mean max_con"):
        convert_language_model("nothing", out="b", max_contxt=3)  # type: ignore[call-arg]


def run(*arguments: str) -> str:
    """The output of a command that takes the options."""
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    @takes_options
    def command(*, wanted: Wanted, further: bool = False) -> None:
        print(make(**vars(wanted)), further)

    result = CliRunner().invoke(app, arguments)
    return result.output.strip()


def test_a_command_has_a_flag_for_each_field() -> None:
    assert run("a") == "a 3 () None True False False"
    assert run("a", "--size", "4", "--names", "b", "--names", "c", "--no-whole", "--quick", "--further") == (
        "a 4 ['b', 'c'] None False True True"
    )
    assert "No such option" in run("a", "--hidden", "1")
    assert "No such option" in run("a", "--no-quick")
    told = run("--help")
    for part in ("thing", "What is made.", "How large it is.", "[default: 3]", "--whole / --no-whole"):
        assert part in told, part
    assert "At least 1." not in told


@pytest.mark.parametrize(
    ("command", "options", "function", "own"),
    [
        ("convert-lm", LanguageOptions, convert_language_model, {"no_check"}),
        ("convert-vlm", VisionOptions, convert_vision_language_model, {"no_check"}),
    ],
)
def test_language_models(command: str, options: Any, function: Callable[..., object], own: set[str]) -> None:
    """The command has all options of Python but those that it has no word for, with the same sentences."""
    found: Any = typer.main.get_command(whole_command())
    parameters = {each.name: each for each in found.commands[command].params}
    fields = declared(options)
    assert [*fields] == [*inspect.signature(function).parameters]
    of_python = {name for name, each in fields.items() if each.option.flag is NoneType}
    assert of_python == {"name", "progress"} | ({"image_processor", "check"} if options is VisionOptions else set())
    for name, each in fields.items():
        if name in of_python:
            assert name not in parameters
        else:
            own_name = "folder" if name == "folder_or_model" else name
            assert parameters[own_name].help == each.option.help
    assert parameters.keys() - fields.keys() == {"folder", *own}


@pytest.mark.parametrize(("kind", "options"), [(LanguageModel, LanguageOptions), (VisionLanguageModel, VisionOptions)])
def test_bundles_pass_on_what_they_do_not_have_themselves(kind: Any, options: Any) -> None:
    own = {"folder_or_model", "target", "out", "dtype", "name", "compress", "progress", "writer"}
    expected = declared(options).keys() - own - {"check"}
    if options is LanguageOptions:
        expected = expected - {"verify"} | {"drafted", "check"}
    assert kind.options().keys() == expected
    assert kind.options()["max_context"] == int | None


def test_the_generated_pages_are_current() -> None:
    kept = {page.name: page.read_text() for page in (ROOT / "docs/generated").glob("options*.md")}
    assert kept == options_pages(), "python -m patcomp_lab.commands.options_page docs/generated"
