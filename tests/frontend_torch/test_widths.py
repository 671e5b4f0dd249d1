"""`int64=` and `float64=`: narrowed, kept or refused, and never silently wrapped where it can be known."""

from __future__ import annotations

import math

import pytest
import torch

from patcomp import TorchConverter, UnsupportedError
from patcomp.emit.native import Native
from patcomp.errors import EvaluationError
from tests.frontend_torch.models import export

BIG = 5_000_000_000


def test_integers_are_narrowed_by_default() -> None:
    exported = export(lambda x: x * 2, torch.tensor([1, 2]))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    (name,) = program.input_names()
    assert program.run({name: torch.tensor([1, 2])})["mul"].dtype == torch.int32
    with pytest.raises(EvaluationError, match="do not fit int32"):
        program.run({name: torch.tensor([BIG, 2])})


def test_a_narrowed_constant_that_does_not_fit_is_an_error() -> None:
    exported = export(lambda x: x + BIG, torch.tensor([1, 2]))
    with pytest.raises(UnsupportedError, match=r"5000000000 does not fit 32 bits(.|\n)*int64='keep'"):
        TorchConverter().add_exported_program(exported).to_coreai()


def test_kept_integers_compute_in_64_bits_and_index(native: Native) -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + BIG, x[i], x.cumsum(0), x.argmax(), torch.gather(x, 0, i), x.sort().values

    inputs = (torch.tensor([BIG, -BIG, 3]), torch.tensor([1, 0, 2]))
    program = TorchConverter(int64="keep").add_exported_program(export(function, *inputs)).to_coreai()
    given = dict(zip(program.input_names(), inputs, strict=True))
    for outputs in (program.run(given), native.run(program.module, given)):
        for expected, name in zip(function(*inputs), program.output_names(), strict=True):
            assert torch.equal(torch.as_tensor(outputs[name]), expected)


@pytest.mark.parametrize("numbers", [[-2, -1, -2, -2], [2**62, 2**62 - 1, -5, 1], [-(2**62), -(2**62), 7]])
def test_kept_sums_up_to_the_largest_integer(numbers: list[int], native: Native) -> None:
    """The parts that a sum is made of come close to 2**63, where doubles round up."""
    x = torch.tensor(numbers)
    program = TorchConverter(int64="keep").add_exported_program(export(lambda x: x.cumsum(0), x)).to_coreai()
    given = {program.input_names()[0]: x}
    for outputs in (program.run(given), native.run(program.module, given)):
        assert torch.equal(torch.as_tensor(outputs[program.output_names()[0]]), x.cumsum(0))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
def test_kept_integers_wrap_in_a_cast(dtype: torch.dtype, native: Native) -> None:
    x = torch.tensor([0, 5, -1, 2**31, 2**32 + 5, -(2**31) - 1, 2**62 + 77, 300, -300])
    program = TorchConverter(int64="keep").add_exported_program(export(lambda x: x.to(dtype), x)).to_coreai()
    given = dict(zip(program.input_names(), [x], strict=True))
    for outputs in (program.run(given), native.run(program.module, given)):
        (value,) = outputs.values()
        assert torch.equal(torch.as_tensor(value), x.to(dtype))


def test_kept_floats_compute_in_64_bits(native: Native) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x + 1e-12).exp().softmax(-1) @ x.T

    x = torch.rand(3, 4, dtype=torch.float64)
    program = TorchConverter(float64="keep").add_exported_program(export(function, x)).to_coreai()
    given = dict(zip(program.input_names(), [x], strict=True))
    for outputs in (program.run(given), native.run(program.module, given)):
        (value,) = outputs.values()
        torch.testing.assert_close(torch.as_tensor(value), function(x), rtol=1e-14, atol=1e-14)


def test_error_converts_what_fits() -> None:
    exported = export(lambda x: (x.argmax(-1) + 1, x.double() > 0.5), torch.randn(1, 3))
    program = TorchConverter(int64="error", float64="error").add_exported_program(exported).to_coreai()
    x = torch.tensor([[0.25, 0.75, 0.5]])
    assert [value.dtype for value in program.run(x)] == [torch.int32, torch.bool]


def test_another_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="int64 must be one of 'narrow', 'keep', 'error', got 'wide'"):
        TorchConverter(int64="wide")


@pytest.mark.parametrize(
    ("numbers", "fits"), [([math.inf, -math.inf, math.nan, 1.0], True), ([math.inf, 1e300], False), ([-1e300], False)]
)
def test_infinite_constants_of_64_bits_are_narrowed(numbers: list[float], fits: bool) -> None:
    """Infinity stays infinity; a number that becomes infinite is refused."""

    class Adds(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tensor(numbers, dtype=torch.float64)

    x = torch.zeros(1, dtype=torch.float64)
    converter = TorchConverter().add_exported_program(torch.export.export(Adds(), (x,)))
    if fits:
        given = converter.to_coreai().run(x.float())
        assert torch.equal(given.nan_to_num(7.0), torch.tensor(numbers).nan_to_num(7.0))
    else:
        with pytest.raises(UnsupportedError, match="a 64-bit float constant overflows 32 bits"):
            converter.to_coreai()
