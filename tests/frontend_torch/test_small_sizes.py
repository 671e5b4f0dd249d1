"""Sizes of 1 and 0 in the declared range, at which the shapes that export recorded may be wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from patcomp import ConversionWarning, EvaluationError, get_decomp_table
from patcomp.emit.native import Native
from tests.frontend_torch.dynamic import converted, exported_function
from tests.frontend_torch.models import run_on
from tests.helpers.ways import loaded

WRONG: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "a number that may be the length": (
        lambda x: x.flatten()[:7].sum() / x.flatten()[:7].shape[0],
        r"op aten.slice.Tensor, node %slice_1, at tests/.*py:\d+",
    ),
    "a result that is the length": (lambda x: (x.flatten()[:7], x.flatten()[:7].shape[0]), "op aten.slice.Tensor"),
    "a view with the length": (lambda x: x.flatten()[-7:].view(7, 1) * 2, "op aten.slice.Tensor"),
    "a broadcast to the length": (lambda x: x.flatten()[:7] + torch.ones(7), "op aten.slice.Tensor"),
    "an op that is not followed": (lambda x: x.flatten()[:7].sort()[0], "op aten.slice.Tensor"),
    "squeeze": (lambda x: x.squeeze(), "op aten.squeeze"),
    "squeeze in a branch": (
        lambda x: torch.cond(x.sum() > 0, lambda x: x.t()[:2] + 1, lambda x: x.t()[:2] * 2, (x,)), "slice.Tensor",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_size_at_which_the_recorded_shape_is_wrong(name: str) -> None:
    function, place = WRONG[name]
    exported = exported_function(function, torch.randn(4, 4), shapes=[{1: Dim("n", min=1, max=6)}])
    with pytest.warns(ConversionWarning, match=f"(?s)a shape that the model does not have where n is 1; .*{place}"):
        program = converted(exported)
    assert [str(guard) for guard in program.signature().guards] == ["n != 1"]
    assert program.signature().dims == {"n": (1, 6)}
    for size in (2, 6):
        x = torch.randn(4, size)
        torch.testing.assert_close(program.run(x), function(x), check_dtype=False)
    for backend in ("evaluator", "runtime"):
        with pytest.raises(
            EvaluationError, match="size 1 in dimension 1, but the model was exported for sizes where n"
        ):
            program.run(torch.randn(4, 1), backend=backend)
    with pytest.raises(ValueError, match="which does not hold where n is 1"):
        program.specialize({"n": 1})


COMPUTED: dict[str, Callable[[Tensor], Any]] = {
    "the first": lambda x: x.flatten()[:7],
    "the last": lambda x: x.flatten()[-7:] * 2,
    "the middle": lambda x: x.flatten()[1:7].exp(),
    "none at 1": lambda x: torch.relu(x.flatten()[5:8] + 1),
    "every third": lambda x: x.flatten()[:8:3] - 1,
    "of a slice": lambda x: x.flatten()[:7][:5] + 0.5,
    "same slices": lambda x: x.flatten()[:7].sigmoid() * x.flatten()[:7],
    "reductions": lambda x: torch.stack([x.flatten()[:7].mean(), x.flatten()[:7].amax(0)]),
    "joined": lambda x: torch.cat([x.flatten()[:7], x.flatten(), torch.ones(4)]),
    "outer": lambda x: x.flatten()[:7, None] @ torch.ones(1, 5),
    "batch of products": lambda x: x.t()[:2, :, None] @ x.t()[:2, None],
    "softmax": lambda x: x.flatten()[:7].softmax(0),
    "rows": lambda x: functional.linear(functional.layer_norm(x.t()[:2], (4,)), torch.ones(5, 4)),
    "reshaped": lambda x: x.t()[:2].reshape(-1) + 1,
    "integers": lambda x: x.flatten()[:7].long().cumsum(0),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_lengths_of_slices_that_are_computed(name: str, native: Native) -> None:
    function, one = COMPUTED[name], torch.randn(4, 1)
    exported = exported_function(function, torch.randn(4, 4), shapes=[{1: Dim("n", min=1, max=4)}])
    with pytest.warns(ConversionWarning, match="where n is 1; the program computes this shape, but numbers that"):
        program = converted(exported)
    assert not program.signature().guards
    torch.testing.assert_close(program.specialize({"n": 1}).run(one), function(one), check_dtype=False)
    for size in (1, 2, 3, 4):
        x = torch.randn(4, size)
        torch.testing.assert_close(program.run(x), function(x), check_dtype=False)
        torch.testing.assert_close(torch.from_numpy(run_on(native, program, (x,))), function(x), check_dtype=False)


def test_a_slice_that_becomes_a_state_is_refused() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", torch.zeros(7))

        def forward(self, x: Tensor) -> Tensor:
            self.last = x.flatten()[:7] + 1
            return x

    exported = torch.export.export(Model(), (torch.ones(4, 4),), dynamic_shapes=({1: Dim("n", min=1, max=4)},))
    with pytest.warns(ConversionWarning, match="program.run refuses this size"):
        assert [str(guard) for guard in converted(exported).signature().guards] == ["n != 1"]


def test_conversion_leaves_an_export_as_it_is() -> None:
    exported = exported_function(COMPUTED["same slices"], torch.randn(4, 4), shapes=[{1: Dim("n", min=1, max=4)}])
    before = str(exported)
    with pytest.warns(ConversionWarning):
        texts = [str(converted(exported)) for _ in range(2)]
    assert texts[0] == texts[1]
    assert str(exported) == before


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


SAVED: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "a broadcast": (lambda x: x * torch.ones(4, 1), 1),
    "products": (lambda x: torch.einsum("ij,kj->ik", x, x) @ x, 1),
    "a norm of groups": (lambda x: functional.group_norm(x.t(), 2), 1),
    "a convolution": (lambda x: functional.conv1d(x[None], torch.ones(4, 4, 1)), 1),
    "a softmax": (lambda x: x.softmax(1) + x.mean(1, keepdim=True), 1),
    "attention": (lambda x: functional.scaled_dot_product_attention(*(x.t()[None, None],) * 3), 1),
    "a squeeze, which is wrong at 1": (lambda x: x.squeeze() * torch.ones(4, 1), 2),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("table", [None, get_decomp_table()], ids=["PyTorch's table", "ours"])
@pytest.mark.parametrize("name", SAVED)
def test_decomposition_of_a_saved_program_takes_no_size_away(name: str, table: Any) -> None:
    """A loaded program's ranges begin at 1, so decomposition asks whether a size is 1, and notes the answer."""
    function, least = SAVED[name]
    exported = exported_function(function, torch.randn(4, 4), shapes=[{1: Dim("n", min=1, max=6)}])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)
        program = converted(loaded(exported).run_decompositions(table))
    for size in range(1, 7):
        x = torch.randn(4, size)
        if size >= least:
            torch.testing.assert_close(program.run(x), function(x))
        else:
            with pytest.raises(EvaluationError, match="but the model was exported for sizes where"):
                program.run(x)
