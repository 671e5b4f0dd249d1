"""The exceptions that patcomp raises, and `Problem`, a reason with its place in the model."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Self

_HIDDEN = re.compile(r"[^\x20-\x7e\n\t]")


def printable(text: str) -> str:
    """The text with invisible characters (control characters of terminals, for example) replaced by escapes: `\\x1b`.

    Names in files of strangers may have any character. Ends of lines and tabs stay.
    """
    return _HIDDEN.sub(lambda found: found[0] if found[0].isprintable() else _escape(found[0]), text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


@cache
def explanations() -> dict[str, str]:
    """The causes and remedies of each kind of error by its class: the sections of `errors.md`."""
    text = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))


def help_for(kind: type[BaseException]) -> str:
    """The command that explains a kind of error, `patcomp help UnsupportedError`; empty if nothing does."""
    return next((f"patcomp help {each.__name__}" for each in kind.__mro__ if each.__name__ in explanations()), "")


class PatcompError(Exception):
    """Base of every error that patcomp itself raises; its message is `printable`, and a note says what explains it."""

    def __new__(cls, *args: object, **options: object) -> Self:
        error = super().__new__(cls, *args, **options)
        error.add_note(f"more: {help_for(cls)}")
        return error

    def __str__(self) -> str:
        return printable(super().__str__())


class ParseError(PatcompError, ValueError):
    """The text is not IR that patcomp can read."""


class EvaluationError(PatcompError, RuntimeError):
    """The reference evaluator cannot run an op, or the op's operands make it undefined."""


class UnknownNameError(PatcompError, KeyError):
    """A name is unknown; the message lists the known names, or similar ones."""

    def __str__(self) -> str:
        return printable(str(self.args[0]))  # a KeyError would show the repr of the message


def near_names(name: object, names: Iterable[str], shown: int = 5) -> str:
    """The known names that are similar to `name`, or all of them if there are few: `main, decode`."""
    names = list(names)
    if len(names) > shown:
        wanted = str(name)
        names = get_close_matches(wanted, names, n=shown, cutoff=0.4) or [n for n in names if wanted and wanted in n]
    return ", ".join(names[:shown]) or "none like it"


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: `; did you mean mean or amin?`, or nothing if no name is similar."""
    near = get_close_matches(str(name), sorted(names), n=3, cutoff=0.7)
    listed = " or ".join(filter(None, [", ".join(near[:-1]), *near[-1:]]))
    return f"; did you mean {listed}?" if near else ""


class MismatchError(PatcompError, AssertionError):
    """A program's outputs differ from the model's by more than the tolerance."""


class MissingToolchainError(PatcompError, ImportError):
    """`coreai-core` is needed and is not installed."""


class StageError(PatcompError, RuntimeError):
    """A stage failed; the message names the stage, the rule, the op and the dump of the stage before."""

    def __init__(self, message: str, stage: str = ""):
        super().__init__(message)
        self.stage = stage


class DynamicSizeError(PatcompError, TypeError):
    """A rule asked a dynamic dimension for its number, which only a run knows."""


class RuleError(PatcompError, ValueError):
    """A rule is declared wrongly (a missing argument, an unbound capture), or built an invalid result for an op."""


@dataclass(frozen=True)
class Problem:
    """A reason why a program cannot be converted, or a warning about it, with the place in the model."""

    message: str
    op: str = ""
    node: str = ""
    module_path: str = ""
    source: str = ""
    advice: str = ""
    """What the user can do; code to paste may follow after an empty line."""

    @property
    def place(self) -> str:
        """The place in the model: `op aten.add, node %add, in module layer, at model.py:3`."""
        places = [
            f"op {self.op}" if self.op else "",
            f"node %{self.node}" if self.node else "",
            f"in module {self.module_path}" if self.module_path else "",
            f"at {self.source}" if self.source else "",
        ]
        return ", ".join(filter(None, places))

    def __str__(self) -> str:
        words, _, code = self.advice.partition("\n\n")
        whole = "".join(
            [
                self.message,
                f" ({self.place})" if self.place else "",
                textwrap.indent(f"\n{words}", "      ") if words else "",
                f"\n\n{code}\n" if code else "",
            ]
        )
        return printable(whole)


class ConversionWarning(UserWarning):
    """A converted program has a property that its user may not expect; `program.diagnostics` has the same facts."""

    def __str__(self) -> str:
        return printable(super().__str__())


def shortened(text: str, most: int = 500) -> str:
    """The beginning of a text. A message that quotes a file may have thousands of characters."""
    return text if len(text) <= most else f"{text[:most]}..."


def reason_of(error: BaseException) -> str:
    """What an exception of a library says, in one line: its first paragraph, or its class if it says nothing."""
    text = " ".join(str(error).strip().partition("\n\n")[0].split())
    is_plain = isinstance(error, OSError | ValueError | RuntimeError) and not isinstance(error, RecursionError)
    if is_plain and text:
        return shortened(text)
    return shortened(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _numbered(headline: str, problems: Sequence[Problem]) -> str:
    """A headline and a list of problems; the advice of several in a row follows the last of them."""
    short = [replace(problem, message=shortened(problem.message), op=shortened(problem.op)) for problem in problems]
    shown = [
        replace(problem, advice="") if following is not None and following.advice == problem.advice else problem
        for problem, following in zip_longest(short, short[1:])
    ]
    return "\n".join([headline, *(f"  {number}. {problem}" for number, problem in enumerate(shown, 1))])


class UnsupportedError(PatcompError, ValueError):
    """The program cannot be converted; `problems` lists every reason."""

    def __init__(self, headline: str, problems: Sequence[Problem]):
        self.headline, self.problems = headline, tuple(problems)
        super().__init__(_numbered(headline, problems))

    def without_code(self) -> str:
        """The message without the code to paste."""
        plain = [replace(each, advice=each.advice.partition("\n\n")[0]) for each in self.problems]
        return printable(_numbered(self.headline, plain))


class AssetError(PatcompError, RuntimeError):
    """The toolchain rejects a program, or an asset cannot be read; `diagnostics` holds its messages, one a string."""

    def __init__(self, headline: str, diagnostics: tuple[str, ...] = ()):
        self.diagnostics = diagnostics
        super().__init__("\n  ".join([headline, *diagnostics]))


class ExportError(PatcompError, RuntimeError):
    """A model cannot be exported; `problem` says where and why, and what to change."""

    def __init__(self, headline: str, problem: Problem):
        self.problem = problem
        super().__init__(f"{headline}: {problem}")


class VerifyError(PatcompError, ValueError):
    """The IR breaks a rule of its dialect, or a rule that the Core AI runtime relies on without checking it.

    `problems` lists every violation; the message shows the first ones.
    """

    SHOWN = 20

    def __init__(self, headline: str, problems: Sequence[Problem] = ()):
        self.problems = tuple(problems)
        more = len(self.problems) - self.SHOWN
        shown = _numbered(headline, self.problems[: self.SHOWN])
        super().__init__(shown + (f"\n  and {more} more" if more > 0 else ""))
