"""Tensors that are filled part by part are joins of the parts; rows that are solved one by one are one composite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from tests.catalog.recovering import convert


def rows(order: tuple[int, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A tensor of three rows, written in an order."""

    def model(x: torch.Tensor) -> torch.Tensor:
        whole = torch.zeros(2, 3, 4)
        for index in order:
            whole[:, index] = x[:, index].sin() + index
        return whole

    return model


def overlapping(x: torch.Tensor) -> torch.Tensor:
    whole = torch.zeros(2, 3, 4)
    whole[:, :2] = x[:, :2].sin()
    whole[:, 1:] = x[:, 1:].cos()
    return whole


def along_two_dimensions(x: torch.Tensor) -> torch.Tensor:
    whole = torch.ones(2, 3, 4)
    whole[:, 0] = x[:, 0]
    whole[0] = x[0].sin()
    whole[1] = x[1].cos()
    return whole


def in_slices(x: torch.Tensor) -> torch.Tensor:
    whole = x.new_empty(2, 3, 4)
    whole[:, 1:] = x[:, 1:].sin()
    whole[:, :1] = x[:, :1].cos()
    return whole


def with_steps(x: torch.Tensor) -> torch.Tensor:
    whole = torch.zeros(2, 3, 4)
    whole[..., ::2] = x[..., :2]
    whole[..., 1::2] = x[..., 2:]
    return whole


JOINED = {
    "in order": rows((0, 1, 2)), "in another order": rows((2, 0, 1)), "in slices": in_slices,
    "along two dimensions": along_two_dimensions,
}  # fmt: skip
WRITTEN = {
    "not all": rows((0, 2)), "one twice": rows((0, 1, 2, 1)), "overlapping": overlapping, "with steps": with_steps,
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", [*JOINED, *WRITTEN])
@pytest.mark.parametrize("default_table", [False, True])
def test_writes_of_all_parts_are_a_join(form: str, default_table: bool) -> None:
    program = convert((JOINED | WRITTEN)[form], torch.randn(2, 3, 4), default_table=default_table)
    assert ("_scatter %" in program.stages["normalize"]) == (form in WRITTEN)


def test_other_dimensions_may_have_any_size() -> None:
    """As DeepSeek-V3 fills its keys."""

    def model(x: torch.Tensor) -> torch.Tensor:
        whole = x.new_empty(2, x.shape[1], 6)
        whole[..., :4] = x.sin()
        whole[..., 4:] = x[..., :2]
        return whole

    program = convert(model, torch.randn(2, 3, 4), sizes=[{1: Dim("tokens", min=1, max=64)}], as_exported=True)
    assert "_scatter %" not in program.stages["normalize"]


def substitution(
    mask: Callable[[torch.Tensor], torch.Tensor] = lambda x: x.tril(-1), steps: range = range(1, 5)
) -> Callable[[torch.Tensor], torch.Tensor]:
    def model(x: torch.Tensor) -> torch.Tensor:
        whole = mask(x).clone()
        for i in steps:
            row = whole[..., i, :i].clone()
            whole[..., i, :i] = row + (row.unsqueeze(-1) * whole[..., :i, :i].clone()).sum(-2)
        return whole

    return model


def masked_fill(x: torch.Tensor) -> torch.Tensor:
    return -x.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(0), 0)


SOLVED: dict[str, Any] = {"tril": substitution(), "masked_fill": substitution(masked_fill)}
NOT_SOLVED: dict[str, Any] = {
    "no mask": substitution(lambda x: x.sin()),
    "with a diagonal": substitution(lambda x: x.tril(0)),
    "above the diagonal": substitution(lambda x: x.triu(1)),
    "no first step": substitution(steps=range(2, 5)),
    "no last step": substitution(steps=range(1, 4)),
    "one step again": substitution(steps=[1, 2, 2, 3, 4]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("form", [*SOLVED, *NOT_SOLVED])
@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 5, 5)])
def test_rows_that_are_solved_one_by_one(form: str, shape: tuple[int, ...]) -> None:
    program = convert((SOLVED | NOT_SOLVED)[form], torch.randn(shape), as_exported=True)
    assert dict(program.composites) == ({"forward_substitution": 1} if form in SOLVED else {})
