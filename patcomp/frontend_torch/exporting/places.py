"""Where in a model something happens: the line of its code, and the path of its module."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from traceback import extract_tb
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import nn

_NOT_THE_MODEL = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]), "<")
"""The folders of PyTorch and of patcomp, and code without a file."""


def line_of_now() -> str:
    """The line of the model that is being traced, `model.py:12`; empty if there is none."""
    return _line((frame, frame.f_lineno) for frame in _frames(sys._getframe()))


def line_of(error: BaseException) -> str:
    """The last line of the model that an error went through, or that a strict trace was at."""
    stack: Any = getattr(error, "real_stack", None) or ()
    return _line(reversed(list(_traced(error.__traceback__)))) or _first(
        (frame.filename, frame.lineno or 0) for frame in reversed(stack)
    )


def module_path_of(error: BaseException, model: nn.Module) -> str:
    """The path of the innermost module of a model that an error went through; empty for the model itself."""
    paths = {id(module): path for path, module in model.named_modules()}
    for frame, _ in reversed(list(_traced(error.__traceback__))):
        if (path := paths.get(id(frame.f_locals.get("self")))) is not None:
            return path
    return ""


def raises_itself(error: BaseException) -> bool:
    """Whether a statement of the model raised an error, and not an operator of PyTorch."""
    frames = extract_tb(error.__traceback__)
    return bool(frames) and is_of_model(frames[-1].filename) and (frames[-1].line or "").startswith(("raise", "assert"))


def is_of_model(file: str) -> bool:
    """Whether a file is the model's, not PyTorch's or patcomp's."""
    return bool(file) and not file.startswith(_NOT_THE_MODEL)


def _line(frames: Iterable[tuple[FrameType, int]]) -> str:
    return _first((frame.f_code.co_filename, line) for frame, line in frames)


def _first(lines: Iterable[tuple[str, int]]) -> str:
    return next((f"{Path(file).name}:{line}" for file, line in lines if is_of_model(file)), "")


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _traced(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next
