"""Numbers that the runtime on Linux rounds in sums: they are told from those of a wrong program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import AIProgram, MismatchError, TorchConverter
from patcomp.evaluate.comparison import beside_partial_sums, compare
from patcomp.evaluate.element_types import to_tensor
from patcomp.evaluate.partial_sums import PartialSumMachine
from patcomp.evaluate.twin import Twin
from patcomp.program import running
from tests.catalog.recovering import Calling


def converted(function: Any, *arguments: torch.Tensor) -> AIProgram:
    exported = torch.export.export(Calling(function), arguments)
    return TorchConverter().add_exported_program(exported, output_names=["y"]).to_coreai()


def drawn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float16) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (torch.matmul, drawn((3, 65), (65, 5))),
        (torch.matmul, drawn((2, 1, 3, 40), (4, 40, 5))),
        (lambda x, w, b: nn.functional.linear(x, w, b), drawn((3, 96), (8, 96), (8,))),
        (lambda x: x.cumsum(-1), drawn((2, 70))),
        (lambda x: x.flip(0).cumsum(0).flip(0), drawn((70, 2))),
        (lambda x: x.cumsum(1), drawn((2, 70, 3), dtype=torch.bfloat16)),
        (lambda x: (1 + x / 8).cumprod(-1), drawn((2, 20))),
    ],
)
def test_the_rounding_is_that_of_the_runtime_bit_by_bit(function: Any, arguments: tuple[torch.Tensor, ...]) -> None:
    program = converted(function, *arguments)
    values = dict(zip(program.input_names(), arguments, strict=True))
    machine = PartialSumMachine(program.module)
    rounded = running.run_entry_point(program, values, "main", None, "evaluator", machine=machine)["y"]
    exact, given = program.run(values)["y"], program.run(values, backend="runtime")["y"]
    given = to_tensor(given)
    assert torch.equal(rounded, given)
    assert not torch.equal(exact, given)


@pytest.fixture(scope="module")
def long_sum() -> tuple[AIProgram, Any, tuple[torch.Tensor, ...]]:
    """A mean of 3000 products, each of which is small beside their sum."""
    arguments = drawn((2, 3000), (3000, 4))
    model = Calling(lambda x, w: torch.softmax(x, -1) @ (w + 2))
    return converted(model.function, *arguments), model, arguments


def test_an_output_that_the_rounding_explains_passes_and_is_named(long_sum: Any) -> None:
    program, model, arguments = long_sum
    verification = program.verify_against(model, arguments).check()
    evaluator, runtime = verification.errors
    assert (evaluator.reference, runtime.reference) == ("float32 twin", "evaluator that rounds partial sums")
    assert runtime.partial_sums > 3 * evaluator.tolerance
    (text,) = verification.of_partial_sums
    assert text == (
        f"output 'y' on the runtime differs from eager PyTorch by {runtime.partial_sums:.3g}, because the runtime on "
        f"this machine rounds every partial sum of float16; the evaluator with the same rounding agrees within "
        f"{runtime.max_abs:.2g}"
    )
    assert str(verification).endswith(f"note: {text}")


@pytest.mark.parametrize("backends", [["runtime"], None])
def test_the_rounding_excuses_no_wrong_program(long_sum: Any, backends: Any) -> None:
    """Neither one that computes something else, nor one that differs by as much as the rounding does."""
    program, model, arguments = long_sum
    given = program.verify_against(model, arguments).errors[1].partial_sums
    for wrong in (Calling(lambda x, w: model(x, w) + given), Calling(lambda x, w: model(x, w) * 1.5)):
        verification = program.verify_against(wrong, arguments, backends=backends)
        assert not any(error.passed or error.partial_sums for error in verification.errors)
    assert program.verify_against(model, arguments, backends=backends)


def test_a_given_tolerance_is_kept(long_sum: Any) -> None:
    program, model, arguments = long_sum
    with pytest.raises(MismatchError, match=r"on the runtime differs from eager PyTorch by .* tolerance of 0\.001"):
        program.verify_against(model, arguments, tolerance=1e-3).check()


def test_only_finite_floats_of_the_same_numbers_are_explained() -> None:
    ones = torch.ones(3, dtype=torch.float16)
    wrong = compare("y", "runtime", ones, ones + 1)
    explained = beside_partial_sums(wrong, ones + 1, ones + 1)
    assert explained.passed
    assert explained.partial_sums == 1
    for given, rounded in ((ones + 1, ones), (ones.int() + 1, ones.int() + 1), (ones + torch.nan, ones + torch.nan)):
        failed = replace(compare("y", "runtime", ones.to(given.dtype), given), tolerance=0)
        assert beside_partial_sums(failed, given, rounded) == failed


def test_rounding_behind_rounding_is_explained_by_the_distance_from_the_twin() -> None:
    """The output may be three times as far from the rounded numbers as these are from the twin."""
    ones = torch.ones(8, dtype=torch.float16)
    twin = Twin(torch.ones(8), torch.float16)
    rounded = ones + 0.0625
    wrong = compare("y", "runtime", ones, ones + 0.5)
    for moved, is_explained in ((0.1875, True), (0.25, False)):
        given = rounded - moved
        assert (beside_partial_sums(wrong, given, rounded, lambda: twin) != wrong) is is_explained
        assert beside_partial_sums(wrong, given, rounded) == wrong
    infinite = rounded * torch.inf
    assert beside_partial_sums(wrong, rounded, infinite, lambda: twin) == wrong
