"""What a model checks of the values of its inputs: `program.run` checks it too, straight, decomposed and saved."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

from patcomp import AIProgram, ConversionWarning, EvaluationError, TorchConverter
from tests.helpers.ways import WAYS as THREE_WAYS


class Of(nn.Module):
    """A function as a model with a buffer."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function
        self.register_buffer("limit", torch.tensor(2.0))

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self, *args)


def number_in_range(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= 2)
    return x * k


def with_a_message(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    torch._assert_async((x > -5).all(), "x is above -5")
    return x * n


def all_of_a_tensor(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """What transformers' `torch_compilable_check` does."""
    torch._check_tensor_all(n.sum() == x.shape[1], lambda: "sizes do not fit")
    return x * 2


def of_a_buffer(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    torch._assert_async((x < m.limit).all(), "x is below the limit")
    return x + n


def number_of_selected(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    rows = x.nonzero()
    torch._check(rows.shape[0] > 1)
    return rows * 2


def size_of_a_slice(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch._check_is_size(k)
    torch._check(k <= x.shape[1])
    return x[:, :k].sum()


def in_a_branch(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x < 3).all(), "x is below 3")
        return x + 1

    return torch.cond(x.sum() > 0, checked, lambda x: x - 1, (x,))


X = torch.ones(2, 3)
ONE = torch.tensor(1)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], str]] = {
    "a number": (number_in_range, (X, ONE), (X, torch.tensor(5)), "n <= 2"),
    "the other limit": (number_in_range, (X, ONE), (X, torch.tensor(-1)), "n >= 0"),
    "a message": (with_a_message, (X, ONE), (X - 9, ONE), "(x is above -5)"),
    "all of a tensor": (all_of_a_tensor, (X, torch.tensor([1, 2])), (X, torch.tensor([2, 2])), "sum(n) == 3"),
    "a buffer": (of_a_buffer, (X, ONE), (X + 1, ONE), "(x is below the limit)"),
    "what is selected": (number_of_selected, (X, ONE), (X * 0, ONE), "nonzero(x).shape[0] >= 2"),
    "a slice": (size_of_a_slice, (X, ONE), (X, torch.tensor(4)), "n <= 3"),
    "a branch": (in_a_branch, (X, ONE), (X + 5, ONE), "cond hold: x is below 3"),
}
"""Function, inputs that are right, inputs that are wrong, words of the condition."""


WAYS = dict(THREE_WAYS) | {"by PyTorch's table": lambda exported: exported.run_decompositions()}


def converted(exported: ExportedProgram) -> AIProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)
        return TorchConverter().add_exported_program(exported, input_names=["x", "n"]).to_coreai()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_a_check_that_does_not_hold_is_an_error(name: str, way: str):
    function, right, wrong, words = CASES[name]
    model = Of(function)
    program = converted(WAYS[way](export(model, right, strict=False)))
    torch.testing.assert_close(program.run(*right), model(*right), check_dtype=False)
    with pytest.raises(
        EvaluationError, match=r"the model checks that .*, which does not hold for these inputs"
    ) as error:
        program.run(*wrong)
    if way != "by PyTorch's table" or "(" not in words:  # which writes `all` as other ops
        assert words in str(error.value)
    assert all(len(line) < 200 for line in str(error.value).splitlines())


def test_the_signature_and_a_warning_list_the_checks():
    exported = export(Of(number_in_range), (X, ONE), strict=False)
    with pytest.warns(
        ConversionWarning, match="checks that n >= 0; n <= 2; program.run checks this, but an asset cannot"
    ):
        program = TorchConverter().add_exported_program(exported, input_names=["x", "n"]).to_coreai()
    assert program.signature().checks == ("n >= 0", "n <= 2")
    assert "check  n <= 2" in str(program.signature())


def test_verification_checks_the_values_too():
    """The function leaves the check out, so that only the program has it."""
    program = converted(export(Of(number_in_range), (X, ONE), strict=False))
    assert program.verify_against(lambda x, n: x * n, (X, ONE), backends=["evaluator"])
    with pytest.raises(EvaluationError, match="the model checks that n <= 2"):
        program.verify_against(lambda x, n: x * n, (X, torch.tensor(5)), backends=["evaluator"])


@pytest.mark.parametrize(
    "function",
    [lambda m, x, n: x.nonzero() * 2, lambda m, x, n: x[x > 0].sum(), lambda m, x, n: x * n.item()],
    ids=["nonzero", "mask", "item"],
)
def test_what_always_holds_is_no_check(function: Callable[..., Any]):
    program = converted(export(Of(function), (X, ONE), strict=False))
    assert program.checks == {}
    assert program.signature().checks == ()


def test_checks_belong_to_fixed_shapes_and_compressed_programs_too():
    exported = export(
        Of(number_in_range), (X, ONE), dynamic_shapes=(({0: Dim("rows", min=1, max=9)}, {}),), strict=False
    )
    program = converted(exported)
    fixed = program.specialize({"rows": 4})
    program.set_static_shape_config("main", {"two": {"x": (2, 3)}})
    for each, rows, entrypoint in ((fixed, 4, "main"), (program, 2, "main_two")):
        with pytest.raises(EvaluationError, match="the model checks that n <= 2"):
            each.run(torch.ones(rows, 3), torch.tensor(3), entrypoint=entrypoint)


def test_sizes_of_inputs_stay_guards():
    def below_the_other(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] <= n.shape[0])
        return x.sum() + n.sum()

    sizes = (({0: Dim("rows", min=2, max=8)}, {0: Dim("others", min=2, max=8)}),)
    program = converted(export(Of(below_the_other), (X, torch.ones(5)), dynamic_shapes=sizes, strict=False))
    assert program.checks == {}
    with pytest.raises(EvaluationError, match="exported for sizes where rows <= others"):
        program.run(torch.ones(6, 3), torch.ones(5))


def test_ops_that_only_checks_read_need_no_rule():
    """No rule takes eigenvalues of a matrix that is not symmetric, or rows without repetition."""

    def function(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        torch._check((torch.linalg.eigvals(x).real.sum() < 9).item())
        torch._check((torch.unique(x, dim=0)[0].sum() < 9).item())
        return x * 2

    small, large = torch.eye(3), 9 * torch.eye(3)
    exported = export(Of(function), (small, ONE))
    for way in WAYS.values():
        program = converted(way(exported))
        assert torch.equal(program.run(small, ONE), small * 2)
        with pytest.raises(EvaluationError, match="the model checks that"):
            program.run(large, ONE)
        assert not any(">= 0" in text for text in program.signature().checks)
