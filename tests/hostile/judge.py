"""How a case may end: with a result or a clear error; everything else is a finding."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

from patcomp.errors import PatcompError

RESULT, REFUSED = "result", "refused"
RAW, UNCLEAR, MEMORY, HANG, DIED, RAN = "raw error", "unclear error", "out of memory", "hang", "died", "code ran"
FINDINGS = (RAW, UNCLEAR, MEMORY, HANG, DIED, RAN)
KINDS = (RESULT, REFUSED, *FINDINGS)

LONGEST_MESSAGE = 12_000
"""Characters of an error, which may repeat a long name that the user gave, but not the input."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended; two findings with one place are alike."""

    kind: str
    message: str = ""
    place: str = ""

    @property
    def is_finding(self) -> bool:
        return self.kind in FINDINGS


@dataclass(frozen=True)
class Case:
    """A hostile input, and what reads it."""

    run: Callable[[], object]
    data: bytes
    """The input, for the folder of findings."""
    what: str = ""
    """How the input was made."""


def judge(case: Case) -> Outcome:
    """Run a case in this process; a case that runs in another returns its outcome."""
    try:
        ended = case.run()
    except PatcompError as error:
        return _of_message(error)
    except OSError as error:  # a file that is missing, or has a name that the system refuses
        return _of_message(error) if str(error) else Outcome(RAW, repr(error), _place(error))
    except MemoryError as error:
        return Outcome(MEMORY, repr(error), _place(error))
    except Exception as error:
        return Outcome(RAW, f"{type(error).__name__}: {error}"[:2000], f"{type(error).__name__} {_place(error)}")
    return ended if isinstance(ended, Outcome) else Outcome(RESULT)


def _of_message(error: Exception) -> Outcome:
    message = str(error)
    cause = error.__cause__
    while cause is not None and isinstance(cause, PatcompError):
        cause = cause.__cause__
    accidents = AttributeError | AssertionError | KeyError | IndexError | RecursionError | MemoryError
    if isinstance(cause, accidents) and type(cause).__name__ not in message:
        # the words of an accident explain nothing; a message that repeats them must say that something failed
        return Outcome(UNCLEAR, f"{message[:1500]} <- {cause!r}"[:2000], f"{type(cause).__name__} {_place(cause)}")
    if not message.strip() or len(message) > LONGEST_MESSAGE:
        return Outcome(UNCLEAR, f"{len(message)} characters: {message[:300]}", f"length {_place(error)}")
    return Outcome(REFUSED, message)


def _place(error: BaseException) -> str:
    """The innermost frame of patcomp, which tells findings apart."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = ("/patcomp/", "/patterns_catalog/", "/special_functions_catalog/")
    own = [frame for frame in frames if any(folder in frame.filename for folder in ours)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}"
