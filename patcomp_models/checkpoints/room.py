"""Limit the size of a model by the size of the files in its folder, whatever its configuration says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
from torch.nn.modules.module import register_module_module_registration_hook

from patcomp_models.errors import BundleError

_MOST_FOR_A_BYTE = 16
"""Elements of a model for each byte of its files: twice as many as with weights of one bit."""
_FREE = 1 << 27
"""Elements that a model may have beside its weights, such as tables of positions and weights that are drawn."""


_FREE_MODULES = 10_000
_BYTES_OF_A_MODULE = 64
"""What a module with weights has at least in the files, most of it the name in the header."""


def check_room(folder: Path, make: Callable[[], Any], error: type[BundleError] = BundleError) -> None:
    """Check that a model has about as many modules and elements as the files of its folder, before memory is taken.

    Args:
        folder: with the weights.
        make: makes the model by its configuration; it is made without memory.
        error: what is raised.

    Raises:
        BundleError: the configuration asks for much more than the files hold.
    """
    held = sum(each.stat().st_size for each in folder.iterdir() if each.is_file())
    advice = f"and its files have {held} bytes; correct its config.json"
    most = _FREE_MODULES + held // _BYTES_OF_A_MODULE
    try:
        with torch.device("meta"), _counted(most):
            model = make()
    except _TooManyError:
        raise error(f"the configuration in {str(folder)!r} asks for more than {most} modules, {advice}") from None
    except Exception:  # loading makes it in the same way, and says what is wrong
        return
    asked = sum(each.numel() for each in (*model.parameters(), *model.buffers()))
    if asked > _MOST_FOR_A_BYTE * held + _FREE:
        raise error(f"the configuration in {str(folder)!r} asks for {asked} numbers, {advice}")


class _TooManyError(Exception):
    """A model has more modules than its files can fill."""


@contextmanager
def _counted(most: int) -> Iterator[None]:
    """Within this context, a model of this thread that gets more than `most` modules is not made."""
    count, thread = 0, get_ident()

    def counted(module: torch.nn.Module, name: str, part: torch.nn.Module | None) -> None:
        nonlocal count
        if get_ident() == thread:
            count += 1
            if count > most:
                raise _TooManyError

    hook = register_module_module_registration_hook(counted)
    try:
        yield
    finally:
        hook.remove()
