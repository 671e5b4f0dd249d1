"""Run the example: the assumptions of a program must hold for its own example."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from patcomp.frontend_torch.exporting.kept import copied
from patcomp.frontend_torch.exporting.packed import FULL, WITHIN
from patcomp.frontend_torch.exporting.refusals import RefusedError
from patcomp.frontend_torch.fx.closeness import is_close
from patcomp.pytorch import pytree

_Call = tuple[tuple[Any, ...], dict[str, Any], Any]


def check_packing(program: ExportedProgram, call: _Call, full: str, limited: str) -> None:
    """Check that the packed sequences of the example have the lengths assumed by a program.

    Args:
        full: where the model packs those that must be full.
        limited: where it packs those of any length.

    Raises:
        RefusedError: they have not.
    """
    try:
        run_example(program.module(), call, program.buffers())
    except RuntimeError as error:
        if FULL in str(error):
            raise RefusedError(
                f"the model packs sequences at {full}, and the lengths of the example are not all full, so the program "
                "would depend on them"
            ) from error
        if WITHIN in str(error):
            raise RefusedError(
                f"the model packs sequences at {limited}, and the lengths of the example are not those that PyTorch "
                f"packs: {WITHIN}"
            ) from error
        raise


def check_example(program: ExportedProgram, model: nn.Module, call: _Call) -> None:
    """Check that a drafted program computes the results of the model for the example.

    Raises:
        RefusedError: it does not.
    """
    expected = run_example(model, call, model.buffers())
    try:
        results = run_example(program.module(), call, program.buffers())
    except (RuntimeError, AssertionError) as error:
        raise RefusedError(
            f"torch.export.draft_export gives a program that does not run the example: {error}"
        ) from error
    for one, other in zip(pytree.tree_leaves(expected), pytree.tree_leaves(results), strict=True):
        if isinstance(one, Tensor) and not is_close(one, other):
            raise RefusedError("the program of torch.export.draft_export has other results than the model")


def failure_of(model: nn.Module, call: _Call) -> Exception | None:
    """What the model itself raises for the example in eager PyTorch; None if it runs."""
    try:
        run_example(model, call, model.buffers())
    except Exception as error:  # the model's own code may raise anything
        return error
    return None


def run_example(function: Callable[..., Any], call: _Call, buffers: Iterable[Tensor]) -> Any:
    """The results for copies of the example, with the random numbers of now; the buffers are put back."""
    args, kwargs, _ = call
    with torch.no_grad(), torch.random.fork_rng(devices=[]), _restored(buffers):
        return copied(function(*copied(args), **copied(kwargs)))


@contextmanager
def _restored(buffers: Iterable[Tensor]) -> Iterator[None]:
    before = [(buffer, buffer.detach().clone()) for buffer in buffers]
    try:
        yield
    finally:
        for buffer, content in before:
            if not torch.equal(buffer, content):  # its version does not tell of a write through `data`
                buffer.copy_(content)
