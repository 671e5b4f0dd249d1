"""Load files of `torch.export.save`; describe files of other kinds."""

from __future__ import annotations

import logging
import re
import zipfile
from contextlib import nullcontext
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING

from patcomp.commands.archives import DAMAGED, code_in, weights_only
from patcomp.commands.common import import_torch
from patcomp.commands.subjects import WHAT_MODELS_ARE, is_archive
from patcomp.errors import PatcompError, shortened

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def check_written_by_export(path: Path) -> None:
    """Check that `torch.export.save` may have written a file, without PyTorch.

    Raises:
        PatcompError: it did not.
    """
    members = _members(path)
    if any(name.endswith("/constants.pkl") and name.count("/") == 1 for name in members):
        raise PatcompError(
            f"{path} is TorchScript, and holds no exported program; write a FILE.py with a function that makes the "
            "module of Python again, gives it the state_dict() of the file, and returns it and its inputs. If the "
            "model is also there as a file of ONNX, convert this file"
        )
    if any(name.endswith("/data.pkl") and name.count("/") == 1 for name in members):
        raise PatcompError(
            f"{path} was written by torch.save: it holds weights or a pickled module, and no exported program; "
            "write a FILE.py with a function that loads it and returns the module and its inputs, or save "
            "torch.export.export(module, inputs) with torch.export.save"
        )
    if not is_archive(path):
        raise PatcompError(f"{path} is not a program that torch.export.save wrote; {WHAT_MODELS_ARE}")


def check_saved_program(path: Path, trusted: bool) -> None:
    """Check a file before PyTorch loads it.

    Args:
        path: of the file.
        trusted: whether to load a file that can run code while it is loaded.

    Raises:
        PatcompError: `torch.export.save` did not write the file, or it can run code.
    """
    check_written_by_export(path)
    import_torch()  # to see what the file holds
    if not trusted:
        _check_trust(path)


def load_program(path: Path, trusted: bool) -> ExportedProgram:
    """The exported program in a file that `check_saved_program` let pass.

    Raises:
        PatcompError: PyTorch cannot load it.
    """
    import torch

    reasons = _Reasons()
    loggers = [logging.getLogger(name) for name in _Reasons.LOGGERS]
    for logger in loggers:
        logger.addFilter(reasons)
    try:
        with nullcontext() if trusted else weights_only():
            return torch.export.load(path)
    except Exception as error:
        if isinstance(error, UnpicklingError) and not trusted:
            pickled = re.search(r"GLOBAL ([\w.]+)", str(error))
            raise _distrust(path, f"it holds a pickled {pickled[1] if pickled else 'object'}") from error
        found = reasons.last or error
        reason = str(found).partition("This is an internal miniz error")[0].strip()
        if not isinstance(found, RuntimeError | ValueError | OSError):
            reason = f"PyTorch's loader fails with {type(found).__name__}: {reason}"
        reason = _shortened(reason)
        advice = f"; {WHAT_MODELS_ARE}"
        if "regist" in reason:
            advice = "\n--import MODULE imports a module that registers a class or an operator first"
        raise PatcompError(f"{path} is not a program that torch.export.save wrote: {reason}{advice}") from error
    finally:
        for logger in loggers:
            logger.removeFilter(reasons)


def _shortened(reason: object) -> str:
    """A library's message about a file, shortened, because it may repeat the content of the file."""
    return shortened(str(reason), 1000)


def _check_trust(path: Path) -> None:
    """Check that nothing in a file can run code when PyTorch loads it.

    Raises:
        PatcompError: something can, or the file is damaged.
    """
    try:
        found = code_in(path)
    except PatcompError as error:
        raise PatcompError(
            f"{path} is not a program that torch.export.save wrote: {_shortened(error)}; {WHAT_MODELS_ARE}"
        ) from error
    if found:
        raise _distrust(path, found)


def _distrust(path: Path, reason: str) -> PatcompError:
    return PatcompError(
        f"{path} can run code while PyTorch loads it, because {_shortened(reason)}. Give --trusted if you trust "
        "whoever made the file; docs/untrusted-files.md explains what is checked"
    )


def _members(path: Path) -> list[str]:
    """The names of the files in an archive; empty for another file."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except DAMAGED:
        return []
    # in a file that was cut off, zipfile finds the last archive inside it
    if min((member.header_offset for member in members), default=0):
        return []
    return [member.filename for member in members]


class _Reasons(logging.Filter):
    """Keeps the exceptions that PyTorch logs if it cannot load a program, because its own exception has no reason."""

    LOGGERS = ("torch.export", "torch.export.pt2_archive._package", "torch._export.serde.serialize")

    def __init__(self) -> None:
        super().__init__()
        self.last: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop the record and keep its exception."""
        if record.exc_info and record.exc_info[1] is not None:
            self.last = record.exc_info[1]
        return False
