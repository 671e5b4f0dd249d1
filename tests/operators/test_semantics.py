"""What compilers get wrong of element-wise ops: signs, ties, NaN, digits near zero, bounds beyond 32 bits.

Every case is exported, converted, and run on the reference evaluator and the real runtime beside eager PyTorch;
floats agree to 1e-6, and zeros in sign.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from patcomp import UnsupportedError
from patcomp.emit.native import Native
from tests.operators.programs import _converted, assert_agrees

NAN, INF = float("nan"), float("inf")
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -2.5]


def _pairs(numbers: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.tensor(numbers)
    return values.repeat_interleave(len(numbers)), values.repeat(len(numbers))


def case(name: str, function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> Any:
    return pytest.param(function, tensors, id=name)


def integers(*numbers: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)


TINY = torch.cat([sign * torch.logspace(-9, 0, 40) for sign in (-1, 1)])
TIES = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 8388609.0, 1e30, *SPECIAL, 0.3, -0.3])
SIGNED = (integers(7, -7, 7, -7, 6, -6, 0), integers(3, 3, -3, -3, 3, 3, 5))
DIVIDED = (
    torch.tensor([7.0, -7.0, 7.0, -7.0, 6.0, 0.3, -0.0, 5.0, -5.0]),
    torch.tensor([2, 2, -2, -2, 3, 0.1, 2, INF, INF]),
)

CASES = [
    case("expm1 near zero", torch.expm1, TINY),
    case("expm1 of special values", torch.expm1, torch.tensor([*SPECIAL, 88.0, 90.0, -104.0])),
    case("log1p near zero", torch.log1p, TINY * 0.9),
    case("log2 of powers of two", torch.log2, 2.0 ** torch.arange(-140, 128)),
    case("log10 of powers of ten", torch.log10, torch.tensor([10.0**power for power in range(-3, 11)])),
    case("exp2 of integers", torch.exp2, torch.arange(-140, 130).float()),
    case("round of ties", torch.round, TIES),
    case("trunc of ties", torch.trunc, TIES),
    case("floor of ties", torch.floor, TIES),
    case("ceil of ties", torch.ceil, TIES),
    case("sums with alpha", lambda x, y: torch.add(x, y, alpha=0.5), *_pairs([1.0, -3.0])),
    case("differences with alpha", lambda x, y: torch.sub(x, y, alpha=3), *SIGNED),
    case("reversed differences with alpha", lambda x, y: torch.rsub(x, y, alpha=3), *SIGNED),
    case("remainder signs of integers", torch.remainder, *SIGNED),
    case("fmod signs of integers", torch.fmod, *SIGNED),
    case("floor_divide signs of integers", torch.floor_divide, *SIGNED),
    case("truncated division signs of integers", functools.partial(torch.div, rounding_mode="trunc"), *SIGNED),
    case("floor_divide by a number", lambda x: x // -3, SIGNED[0]),
    case("remainder of a number", lambda y: torch.remainder(7, y), SIGNED[1]),
    case("remainder signs of floats", torch.remainder, *DIVIDED),
    case("floor division of floats", functools.partial(torch.div, rounding_mode="floor"), *DIVIDED),
    case("truncated division of floats", functools.partial(torch.div, rounding_mode="trunc"), *DIVIDED),
    case("clamp between tensors", torch.clamp, torch.tensor(SPECIAL), torch.full((7,), -1.0), torch.full((7,), 2.0)),
    case("clamp between tensors the wrong way round", torch.clamp, torch.arange(3.0), torch.ones(3), torch.zeros(3)),
    case("clamp between numbers the wrong way round", lambda x: torch.clamp(x, 3, 1), integers(0, 2, 9)),
    case("clamp beyond 32 bits", lambda x: torch.clamp(x, -(2**40), 2**40), integers(-9, 9, dtype=torch.int64)),
    case("integer powers", torch.pow, integers(2, -3, 1, -1, -1, 5, 0, 7), integers(3, 3, -2, -2, -3, -1, 0, 40)),
    case("left shifts", torch.bitwise_left_shift, integers(1, -3, 5, 1, 1, 7), integers(3, 2, 0, 31, 32, -1)),
    case("right shifts", torch.bitwise_right_shift, integers(9, -9, 5, -1, -1, 7), integers(1, 2, 0, 31, 40, -1)),
    case("gcd and lcm", lambda x, y: torch.gcd(x, y) + torch.lcm(x, y), *(SIGNED[0] * 6, SIGNED[1] * 4)),
    case("atan2 of special values", torch.atan2, *_pairs(SPECIAL)),
    case("hypot of special values", torch.hypot, *_pairs([*SPECIAL, 1e30, 1e-30])),
    case("copysign of special values", torch.copysign, *_pairs(SPECIAL[1:])),
    case("fmax and fmin of special values", lambda x, y: torch.stack([torch.fmax(x, y), torch.fmin(x, y)]).abs(),
         *_pairs(SPECIAL)),
    case("xlogy of special values", torch.xlogy, *_pairs(SPECIAL)),
    case("logaddexp of special values", torch.logaddexp, *_pairs(SPECIAL)),
    case("nan_to_num", torch.nan_to_num, torch.tensor(SPECIAL)),
    case("heaviside of special values", torch.heaviside, *_pairs(SPECIAL)),
    case("nextafter", torch.nextafter, *_pairs([0.0, 1.0, -1.0, 3.4e38, -3e-39, 1e-30, INF, -INF])),
    case("mantissas", lambda x: torch.frexp(x).mantissa, torch.tensor([1.0, 0.5, -3.0, 1e30, 1e-30, 1e-40, *SPECIAL])),
    case("hypot of a bool", torch.hypot, torch.tensor([True, False]), torch.tensor([3.0, -4.0])),
    case("ldexp of half precision", torch.ldexp, torch.tensor([1.5, -3.0]).half(), integers(-2, 3)),
    case("bytes subtracted from complex numbers", lambda x, z: torch.view_as_real(torch.rsub(x, z)),
         torch.tensor([4, 200], dtype=torch.uint8), torch.tensor([0.5 + 1j, -2j])),
    case("multiples of bytes added to complex numbers", lambda z, x: torch.view_as_real(torch.add(z, x, alpha=3)),
         torch.tensor([0.5 + 1j, -2j]), torch.tensor([4, 200], dtype=torch.uint8)),
    case("complex numbers divided by infinity", lambda z, x: torch.view_as_real(z / x).abs(),
         torch.tensor([0.5 + 1j, -2j]), torch.tensor([INF, -INF])),
    *(case(f"{name} on both sides of the branch cuts", lambda z, name=name: torch.view_as_real(getattr(torch, name)(z)),
           torch.tensor([complex(x, y) for x in (1.5, -1.5) for y in (0.0, -0.0, 0.3)])) for name in ("asin", "acos")),
    case("powers of a complex zero", lambda z, w: torch.view_as_real(torch.pow(z, w)).abs(),
         torch.tensor([0j, 0j, 2j]), torch.tensor([1.5 + 1j, -1.5 + 1j, -1 + 1j])),
    case("distances of NaN that count", lambda x, y: torch.cdist(x, y, p=0.0),
         torch.tensor([[NAN, 1.0]]), torch.tensor([[1.0, 1.0], [2.0, 3.0]])),
    case("a linear resize that keeps the size", lambda x: torch.nn.functional.interpolate(
        x, scale_factor=1.4, mode="linear", recompute_scale_factor=False), torch.randn(1, 2, 2)),
    case("logarithms beside infinity", lambda x: x - torch.logsumexp(x, -1, keepdim=True),
         torch.tensor([[INF, 0.0, -INF], [-INF, -INF, -INF], [1.0, -INF, 2.0]])),
    *(case(f"{name} of NaN", getattr(torch, name), *_pairs([NAN, 1.0, -INF]))
      for name in ("eq", "ne", "lt", "le", "gt", "ge")),
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("function", "tensors"), CASES)
def test_agrees(function: Callable[..., torch.Tensor], tensors: tuple[torch.Tensor, ...], native: Native) -> None:
    assert_agrees(native, function, *tensors)


@pytest.mark.parametrize("write", [False, True])
def test_negative_indices_of_what_the_toolchain_folds(write: bool, native: Native) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        constant = torch.full((6,), 0.5)
        folded = constant / constant.norm(2, -1, True).clamp(min=0.125)
        index = torch.tensor([-6, 5, -1])
        return folded.index_put((index,), x) if write else folded[index[:, None]] + x

    assert_agrees(native, function, torch.randn(3))


def test_an_integer_divided_by_the_number_zero_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="an integer is divided by the constant zero"):
        _converted(lambda x: torch.ops.aten.remainder.Scalar(x, 0) if not torch.compiler.is_exporting() else x % 0,
                   integers(1, 2))  # fmt: skip


def test_an_integer_divided_by_zero_at_run_time_does_not_end_the_process(native: Native) -> None:
    x, y = integers(7, 8), integers(2, 3)
    program = _converted(torch.floor_divide, x, y)
    (name,), names = program.output_names(), program.input_names()
    assert native.run(program.module, dict(zip(names, (x, integers(0, 3)), strict=True)))[name].tolist() == [7, 2]
