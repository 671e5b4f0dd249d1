"""Small functions of open sizes, at the ends of their ranges and between: equal to eager PyTorch, or refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import torch
from hypothesis import given
from torch import Tensor, nn
from torch.export import Dim

from patcomp import AIProgram, EvaluationError, TorchConverter, UnsupportedError
from patcomp.emit.native import Native
from tests.frontend_torch.models import run_on
from tests.helpers.thorough import drawn

STEPS: dict[str, Callable[[Tensor], Any]] = {
    "the first three": lambda x: x[:3],
    "the first three of all": lambda x: x.flatten()[:3],
    "the last two": lambda x: x[-2:],
    "without the ends": lambda x: x[1:-1],
    "every other": lambda x: x[::2],
    "narrow": lambda x: x.narrow(0, x.shape[0] - 1, 1),
    "the first": lambda x: x[0],
    "the second": lambda x: x.select(0, 1),
    "the last but one": lambda x: x[-2],
    "squeeze": lambda x: x.squeeze(),
    "squeeze of an axis": lambda x: x.squeeze(0),
    "chunk": lambda x: x.chunk(2)[0],
    "halves": lambda x: x.tensor_split(2)[1],
    "split": lambda x: x.split(2)[0],
    "unfold": lambda x: x.unfold(0, 2, 1),
    "pooling": lambda x: nn.functional.max_pool1d(x.t()[None], 2, 2),
    "pooling with a rest": lambda x: nn.functional.avg_pool1d(x.t()[None], 2, 2, ceil_mode=True),
    "twice as long": lambda x: nn.functional.interpolate(x.t()[None], scale_factor=2.0, mode="nearest"),
    "the largest": lambda x: x.topk(2, 0)[0],
    "maximum": lambda x: x.amax(0),
    "broadcast": lambda x: x + x[:1],
    "all pairs": lambda x: x[:, None] - x[None],
    "expand": lambda x: x.unsqueeze(0).expand(2, *x.shape),
    "one axis": lambda x: x.reshape(-1),
    "two rows": lambda x: x.reshape(2, -1),
    "joined": lambda x: torch.cat([x[:0], x, x[:1]]),
    "less by padding": lambda x: nn.functional.pad(x.flatten(), (-1, -1)),
    "diagonal": lambda x: x.diagonal() if x.dim() > 1 else x,
    "roll": lambda x: x.roll(1, 0),
    "repeat": lambda x: x.repeat_interleave(2, 0),
    "positions": lambda x: torch.arange(x.shape[0]) * 2,
    "triangle": lambda x: x.tril(),
    "softmax": lambda x: x.softmax(0),
    "other branch": lambda x: x * 2 if x.shape[0] % 2 == 0 else x,
    "other branch of more": lambda x: x * 2 if x.shape[0] > 3 else x,
}

RANGES: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "from 0": (lambda: Dim("n", max=7), [0, 1, 2, 3, 6, 7]),
    "from 1": (lambda: Dim("n", min=1, max=7), [1, 2, 3, 7]),
    "automatic": (lambda: Dim.AUTO, [2, 3, 4, 5, 9]),
    "even": (lambda: 2 * Dim("n", min=1, max=4), [2, 4, 8]),
    "from 3": (lambda: Dim("n", min=3, max=7), [3, 4, 7]),
}


class Chain(nn.Module):
    def __init__(self, steps: list[Callable[[Tensor], Any]]):
        super().__init__()
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step(x)
        return x * 3


def converted(model: nn.Module, size: int, dim: Any) -> AIProgram | None:
    """The program of a model; None if PyTorch cannot export it with such a dimension, or it is refused."""
    try:
        exported = torch.export.export(model, (torch.randn(size, 3),), dynamic_shapes={"x": {0: dim}})
    except Exception:  # whatever PyTorch raises
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TorchConverter().add_exported_program(exported).to_coreai()
    except UnsupportedError:
        return None


def check(model: nn.Module, program: AIProgram, size: int, run: Callable[[Tensor], Any]) -> None:
    x = torch.arange(3.0 * size).reshape(size, 3)
    refused, result = "", None
    try:
        result = run(x)
    except EvaluationError as error:
        refused = str(error)
    if refused:
        assert "the model was exported for sizes where" in refused or "must be" in refused, refused
        return
    torch.testing.assert_close(torch.as_tensor(result), model(x), check_dtype=False)


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=2), st.sampled_from(sorted(RANGES)))
@drawn(30)
def test_equal_or_refused(names: list[str], kind: str) -> None:
    dim, sizes = RANGES[kind]
    model = Chain([STEPS[name] for name in names])
    if (program := converted(model, 4, dim())) is not None:
        for size in sizes:
            check(model, program, size, program.run)


@given(st.sampled_from(sorted(STEPS)), st.sampled_from(["even", "from 1", "from 3"]))
@drawn(6)
def test_the_runtime_agrees_at_the_ends(native: Native, name: str, kind: str) -> None:
    dim, sizes = RANGES[kind]
    model = Chain([STEPS[name]])
    if (program := converted(model, 4, dim())) is not None:
        for size in (sizes[0], sizes[1], sizes[-1]):
            check(model, program, size, lambda x: (program.run(x), run_on(native, program, (x,)))[1])
