"""Masks that the target `gpu` drops, and near ones that it must keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from patcomp import TorchConverter
from patcomp.targets import Target
from patterns_catalog.composites.attention import lower_right

ONLY = Target("causal", rules=("causal attention",))
Make = Callable[[Any, Any], torch.Tensor]


class Attention(torch.nn.Module):
    """Attention with the mask that a function makes of the positions of queries, as a column, and of keys."""

    def __init__(self, make: Make):
        super().__init__()
        self.make = make

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        rows, columns = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None]
        made: torch.Tensor = torch.nn.functional.scaled_dot_product_attention(q, k, k, self.make(rows, columns))
        return made


def check(make: Make, queries: int, keys: int, dynamic: bool) -> bool:
    """Whether the mask is dropped, after a look at the numbers."""
    torch.manual_seed(0)
    model, inputs = Attention(make), (torch.randn(1, 2, queries, 8), torch.randn(1, 2, keys, 8))
    if dynamic:
        length = torch.export.Dim("length", min=1, max=64)
        other = length if queries == keys else torch.export.Dim("keys", min=2, max=64)
        exported = torch.export.export(model, inputs, dynamic_shapes={"q": {2: length}, "k": {2: other}})
    else:
        exported = torch.export.export(model, inputs)
    program = TorchConverter().add_exported_program(exported).to_coreai(target=ONLY)
    for shape in ((queries, keys), (9, 9), (1, 12) if queries != keys else (12, 12)) if dynamic else ((queries, keys),):
        inputs = (torch.randn(1, 2, shape[0], 8), torch.randn(1, 2, shape[1], 8))
        (made,) = program.run(dict(zip(("q", "k"), inputs, strict=True))).values()
        torch.testing.assert_close(torch.as_tensor(made), model(*inputs), atol=1e-5, rtol=1e-5)
    return "is_causal = true" in str(program)


def numbers(mask: torch.Tensor, hidden: float) -> torch.Tensor:
    return torch.where(mask, torch.tensor(0.0), torch.tensor(hidden))


DROPPED: dict[str, Make] = {
    "causal": lambda row, column: column <= row,
    "strict": lambda row, column: ~(column > row),
    "window": lambda row, column: (column <= row) & (column > row - 3),
    "numbers": lambda row, column: numbers(column <= row, -1e30),
    "infinity": lambda row, column: numbers(row >= column, float("-inf")),
}
KEPT: dict[str, Make] = {
    "one later key": lambda row, column: column <= row + 1,
    "not the own key": lambda row, column: (column < row) | (row == 0),
    "later keys": lambda row, column: column >= row,
    "two sides": lambda row, column: (column <= row + 2) & (column > row - 3),
    "every second": lambda row, column: (column <= row) & ((row - column) % 2 == 0),
    "a small number": lambda row, column: numbers(column <= row, -5.0),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", [*DROPPED, *KEPT])
def test_square(name: str, dynamic: bool) -> None:
    assert check({**DROPPED, **KEPT}[name], 6, 6, dynamic) == (name in DROPPED)


def test_queries_are_counted_from_the_last() -> None:
    assert check(lambda row, column: column <= row + 4, 3, 7, False)
    assert not check(lambda row, column: column <= row, 3, 7, False)


def cached(make: Make, shift: Callable[[Any, Any], Any] = lambda queries, keys: keys - queries) -> Make:
    """A mask whose queries come after keys of earlier calls."""
    return lambda row, column: make(row + shift(row.shape[0], column.shape[1]), column)


@pytest.mark.parametrize("name", [*DROPPED, *KEPT])
def test_different_dynamic_lengths(name: str) -> None:
    assert check(cached({**DROPPED, **KEPT}[name]), 3, 7, True) == (name in DROPPED)


@pytest.mark.parametrize(
    "shift",
    [
        lambda queries, keys: 0,
        lambda queries, keys: keys - queries - 1,
        lambda queries, keys: keys - 1,
        lambda queries, keys: queries + 1,
        lambda queries, keys: 2 * (keys - queries),
    ],
)
def test_the_last_query_is_at_another_key(shift: Callable[[Any, Any], Any]) -> None:
    assert not check(cached(lambda row, column: column <= row, shift), 3, 7, True)


def test_masks_with_two_shifts() -> None:
    make = cached(lambda row, column: column <= row)
    assert not check(lambda row, column: make(row, column) & (column > row - 3), 3, 7, True)
    assert not check(lambda row, column: make(row, column) | (column <= row), 3, 7, True)


@pytest.mark.parametrize(("queries", "keys", "window"), [(5, 5, 0), (3, 7, 0), (3, 7, 2), (5, 5, 5)])
def test_mask_of_the_body(queries: int, keys: int, window: int) -> None:
    wanted = [
        [key <= row + keys - queries and (not window or key > row + keys - queries - window) for key in range(keys)]
        for row in range(queries)
    ]
    assert np.array_equal(lower_right(queries, keys, window), np.array(wanted))
