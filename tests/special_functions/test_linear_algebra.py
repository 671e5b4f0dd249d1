"""What examples of rules do not show: checks of errors, failed factorizations, vectors that are refused, sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from patcomp import TorchConverter, UnsupportedError, get_decomp_table


class Function(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def exported(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> ExportedProgram:
    return torch.export.export(Function(function), (x,), strict=False)


def evaluated(program: ExportedProgram, x: torch.Tensor) -> list[torch.Tensor]:
    converted = TorchConverter().add_exported_program(program).to_coreai()
    outputs = converted.run({converted.input_names()[0]: x})
    return [torch.as_tensor(outputs[name]) for name in converted.output_names()]


@pytest.mark.parametrize("decomposed", [False, True])
def test_the_check_of_an_inverse_is_left_out(decomposed: bool) -> None:
    x = torch.tensor([[2.0, 1.0], [1.0, -3.0]])
    program = exported(torch.linalg.inv, x)
    if decomposed:
        program = program.run_decompositions(get_decomp_table())
        assert "with_effects" in str(program.graph)
    torch.testing.assert_close(evaluated(program, x), [torch.linalg.inv(x)])


def test_info_is_the_first_step_that_fails() -> None:
    x = torch.tensor([[[1.0, 2.0], [2.0, 1.0]], [[4.0, 2.0], [2.0, 4.0]]])
    info = evaluated(exported(lambda x: torch.linalg.cholesky_ex(x).info, x), x)
    assert info[0].tolist() == torch.linalg.cholesky_ex(x).info.tolist() == [2, 0]
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    assert evaluated(exported(lambda x: torch.linalg.inv_ex(x).info, singular), singular)[0].item() == 2


def test_values_without_vectors() -> None:
    x = torch.tensor([[3.0, 1.0, 0.0], [1.0, -2.0, 0.5], [0.0, 0.5, 1.0]])
    torch.testing.assert_close(evaluated(exported(torch.linalg.eigvalsh, x), x), [torch.linalg.eigvalsh(x)])
    torch.testing.assert_close(evaluated(exported(lambda x: torch.linalg.svd(x)[1], x), x), [torch.linalg.svdvals(x)])


@pytest.mark.parametrize(
    ("function", "size", "reason"),
    [
        (torch.linalg.eigh, 3, "vectors_of_undetermined_sign"),
        (torch.linalg.svd, 3, "vectors_of_undetermined_sign"),
        (torch.linalg.inv, 33, "the limit is 32"),
        (torch.linalg.svdvals, 17, "more than 16 columns"),
    ],
)
def test_refused(function: Callable[[torch.Tensor], Any], size: int, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        TorchConverter().add_exported_program(exported(function, torch.eye(size)))
