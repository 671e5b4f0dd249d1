"""What `--help` shows: groups, words for types, examples that parse, lines of 80 columns; `--log-level` anywhere."""

from __future__ import annotations

import io
import logging
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.console import Console

from patcomp.cli import whole_command
from patcomp.commands import common, help
from patcomp.commands.common import UsageError
from tests.helpers.command import Command


def commands(command: Any = None, path: str = "patcomp") -> Iterator[tuple[str, Any]]:
    """All commands with their paths, groups too."""
    command = command or typer.main.get_command(whole_command())
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{path} {name}")


ALL = dict(commands())


@pytest.mark.parametrize("path", ALL)
def test_help_fits_a_terminal(path: str, patcomp: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = patcomp(*path.split()[1:], "--help").out
    assert "...\n" not in shown.partition("\n")[2]  # no text is cut
    assert not [line for line in shown.splitlines() if len(line) > 80 and not line.strip().startswith("patcomp ")]
    assert "<str>" not in shown
    assert "list[" not in shown
    assert "no-report" not in shown
    if path != "patcomp":
        assert "  --log-level LEVEL" in shown


def test_options_of_convert_have_groups(patcomp: Command) -> None:
    shown = patcomp("convert", "--help").out
    assert "\nOptions:" not in shown
    assert all(f"\n{group}:\n" in shown for group in help.GROUPS)
    assert "\n  --fix NAME=SIZE " in shown
    assert "\n  --int64 narrow|error|keep " in shown
    assert "\n  --report  " in shown
    assert "--runtime / --no-runtime" in patcomp("rule", "test", "--help").out
    assert patcomp("convert", "--help").out.startswith("Usage: patcomp convert [OPTIONS] [MODEL]\n")


def test_the_tables_name_options_that_are_there() -> None:
    known = {help.option_name(each) for command in ALL.values() for each in command.params} | {"help"}
    assert {name for names in help.GROUPS.values() for name in names} <= known
    assert help.WORDS.keys() <= known


def test_commands_have_groups(patcomp: Command) -> None:
    shown = patcomp("--help").out
    for group in ("Convert", "Check", "Look", "Write and prove rules", "Language, speech and pictures"):
        assert f"\n{group}:\n" in shown
    assert "\nCommands:" not in shown
    assert "  convert         Convert a model and write it as an asset, as text, or both\n" in shown


EXAMPLES = [example for command in ALL.values() for example in help.text_and_examples(command)[1]]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_commands(example: str) -> None:
    for part in example.split(" | "):
        program, *words = shlex.split(part)
        assert program == "patcomp"
        path = "patcomp"
        while words and f"{path} {words[0]}" in ALL:
            path = f"{path} {words.pop(0)}"
        if words[-1:] != ["--help"]:
            ALL[path].make_context(path, words)  # raises for an option that is not there


def test_each_job_has_an_example() -> None:
    of_tables = ("patcomp catalog", "patcomp defects", "patcomp rule")
    assert {path for path, command in ALL.items() if not help.text_and_examples(command)[1]} - {
        path for path in ALL if path.startswith(of_tables)
    } == set()


@pytest.mark.parametrize("words", [["--log-level", "info", "defects"], ["defects", "--log-level=INFO"]])
def test_log_level_anywhere(words: list[str], patcomp: Command) -> None:
    assert patcomp(*words).code == 0
    assert logging.getLogger("patcomp").level == logging.INFO
    said = patcomp("catalog", "functions", "--log-level", "loud").err
    assert said.startswith("error: --log-level must be debug, info, warning or error, got loud\n")
    patcomp("defects")
    assert logging.getLogger("patcomp").level == logging.WARNING


def test_commands_that_are_not_there(patcomp: Command) -> None:
    for words, said in {
        ("rule", "tst"): "there is no command 'tst' of patcomp rule; did you mean test?",
        ("xyz",): "there is no command 'xyz' of patcomp; `patcomp --help` lists the commands",
    }.items():
        done = patcomp(*words)
        assert (done.code, done.err.splitlines()[0], done.out) == (2, f"error: {said}", "")
    assert issubclass(UsageError, ValueError)


@pytest.mark.parametrize(("terminal", "no_color"), [(True, False), (True, True), (False, False)])
def test_messages_fold_at_words_and_have_colours(
    terminal: bool, no_color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    console = Console(file=stream, width=40, force_terminal=terminal, color_system="standard" if terminal else "auto")
    monkeypatch.setattr(common, "error_console", lambda: console)
    common.say("note: the output of these words is FAILED")
    shown = stream.getvalue()
    assert ("\x1b[36m" in shown) == ("31m" in shown) == (terminal and not no_color)
    plain = [line.rstrip() for line in Console(file=io.StringIO()).render_str(shown).plain.splitlines()]
    assert len(plain) == (2 if terminal else 1)
    assert "FAILED" in plain[-1]
