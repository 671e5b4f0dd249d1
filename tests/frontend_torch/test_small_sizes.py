"""Sizes of 1 and 0 in the declared range, at which the shapes that export recorded may be wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from patcomp import ConversionWarning, EvaluationError
from tests.frontend_torch.dynamic import converted, exported_function

WRONG: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "slice": (lambda x: x.flatten()[:7] * 2, r"op aten.slice.Tensor, node %slice_1, at tests/.*py:\d+"),
    "slice from the end": (lambda x: x.flatten()[-7:] * 2, "op aten.slice.Tensor"),
    "squeeze": (lambda x: x.squeeze(), "op aten.squeeze"),
    "squeeze in a branch": (
        lambda x: torch.cond(x.sum() > 0, lambda x: x.t()[:2] + 1, lambda x: x.t()[:2] * 2, (x,)), "slice.Tensor",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_size_at_which_the_recorded_shape_is_wrong(name: str) -> None:
    function, place = WRONG[name]
    exported = exported_function(function, torch.randn(4, 4), shapes=[{1: Dim("n", min=1, max=6)}])
    with pytest.warns(ConversionWarning, match=f"(?s)another shape than the model has where n is 1; .*{place}"):
        program = converted(exported)
    assert [str(guard) for guard in program.signature().guards] == ["n != 1"]
    assert program.signature().dims == {"n": (1, 6)}
    for size in (2, 6):
        assert program.verify_against(function, (torch.randn(4, size),), backends=["evaluator"]).passed
    for backend in ("evaluator", "runtime"):
        with pytest.raises(
            EvaluationError, match="size 1 in dimension 1, but the model was exported for sizes where n"
        ):
            program.run(torch.randn(4, 1), backend=backend)
    with pytest.raises(ValueError, match="which does not hold where n is 1"):
        program.specialize({"n": 1})


QUIET: dict[str, tuple[Callable[[Tensor], Any], list[str]]] = {
    "PyTorch refuses 1 and 0": (lambda x: x.select(1, 1), ["n != 1", "n != 0"]),
    "PyTorch refuses 0": (lambda x: x.amax(1), ["n != 0"]),
    "another shape at 0": (lambda x: x[:, :1], ["n != 0"]),
    "all sizes are right": (lambda x: (x + x[:1], x.softmax(1), x.unsqueeze(0).expand(3, -1, -1)), []),
}


@pytest.mark.parametrize("name", QUIET)
def test_sizes_that_need_no_warning(name: str) -> None:
    function, guards = QUIET[name]
    exported = exported_function(function, torch.randn(4, 4), shapes=[{1: Dim("n", max=6)}])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConversionWarning)
        assert [str(guard) for guard in converted(exported).signature().guards] == guards


def test_sizes_that_are_wrong_together() -> None:
    shapes = [{0: Dim("n", min=1, max=6), 1: Dim("m", min=1, max=6)}]
    exported = exported_function(lambda x: x.flatten()[:2] * 2, torch.randn(4, 4), shapes=shapes)
    with pytest.warns(ConversionWarning, match="where n is 1 and m is 1"):
        program = converted(exported)
    assert [str(guard) for guard in program.signature().guards] == ["n != 1 or m != 1"]
    assert program.run(torch.ones(1, 2)).tolist() == [2, 2]
    with pytest.raises(EvaluationError, match="n != 1 or m != 1"):
        program.run(torch.ones(1, 1))
