"""Discrete Fourier transforms as matrix products.

X[k] = sum over j of x[j] exp(-2 pi i jk / n). Short axes are products with the constant matrices of cosines and sines.
Longer ones are split by the algorithm of Cooley and Tukey (1965): with n = p q, j = q r + s and k = t + p u,

    X[t + p u] = sum over s of w^(s t) (sum over r of x[q r + s] exp(-2 pi i r t / p)) exp(-2 pi i s u / q)

so that constants stay small. What is left undivided, a prime factor, is limited.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example

DIRECT = 256
"""Up to this size an axis is transformed by one product."""

LARGEST_PRIME = 1024
"""The largest factor that is transformed by one product where it cannot be split."""


def _waves(rows: int, columns: int, period: int, like: Tensor, sign: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of 2 pi r c / period, exact in whole turns, as constants of the type of `like`."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % period
    eighths = 8 * turns / period
    angle = turns * (2 * math.pi / period)
    cosine = np.where(eighths % 4 == 2, 0.0, np.cos(angle))
    sine = np.where(turns * 2 % period == 0, 0.0, np.sin(angle))
    return _constant(cosine, like), _constant(sign * sine, like)


def _constant(values: np.ndarray, like: Tensor) -> Tensor:
    dtype = np.float64 if like.dtype == torch.float64 else np.float32
    return torch.ops.aten.lift_fresh_copy(torch.from_numpy(values.astype(dtype)))


def _split(size: int) -> tuple[int, int]:
    """Two factors, near each other."""
    first = next(factor for factor in range(math.isqrt(size), 0, -1) if size % factor == 0)
    if first == 1:
        raise Rejected(f"the prime factor {size} of a Fourier transform's length is above the limit, {LARGEST_PRIME}")
    return first, size // first


def _fits(size: int) -> bool:
    if size <= DIRECT:
        return True
    prime = all(size % factor for factor in range(2, math.isqrt(size) + 1))
    return prime and size <= LARGEST_PRIME


Pair = tuple[Tensor, Tensor | None]
"""Real and imaginary part; None for a real signal."""


def _times(x: Pair, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix product of a signal's last axis with cosine + i sine."""
    real, imag = x
    if imag is None:
        return real @ cosine, real @ sine
    return real @ cosine - imag @ sine, real @ sine + imag @ cosine


def _transformed(x: Pair, sign: int) -> tuple[Tensor, Tensor]:
    """The transform of the last axis, with exp(sign 2 pi i jk / n)."""
    real, imag = x
    size = real.shape[-1]
    if _fits(size):
        return _times(x, *_waves(size, size, size, real, sign))
    p, q = _split(size)
    columns = [None if part is None else part.reshape(*part.shape[:-1], p, q).transpose(-1, -2) for part in x]
    assert columns[0] is not None
    real, imag = _transformed((columns[0], columns[1]), sign)  # [..., s, t]
    cosine, sine = _waves(q, p, size, real, sign)
    real, imag = real * cosine - imag * sine, real * sine + imag * cosine
    real, imag = _transformed((real.transpose(-1, -2), imag.transpose(-1, -2)), sign)  # [..., t, u]
    return tuple(part.transpose(-1, -2).reshape(*part.shape[:-2], size) for part in (real, imag))  # type: ignore[return-value]


def _along(x: Pair, dim: int, sign: int) -> tuple[Tensor, Tensor]:
    """The transform of one axis."""
    moved = [None if part is None else part.movedim(dim, -1) for part in x]
    assert moved[0] is not None
    real, imag = _transformed((moved[0], moved[1]), sign)
    return real.movedim(-1, dim), imag.movedim(-1, dim)


_UNCHECKED = dict.fromkeys(
    ("axes", "options", "ranks", "sizes"), "eager does not check what torch.fft has checked before"
)
_UNCHECKED["infinities and zeros"] = "the order of sums decides what infinities of either sign give"


def _normalized(x: Tensor, normalization: int, sizes: Iterable[int]) -> Tensor:
    """`x` divided by nothing, by the root of the number of points or by that number, as the mode says."""
    count = math.prod(sizes)
    scale = (1.0, 1 / math.sqrt(count), 1 / count)[normalization]
    return x if scale == 1 else x * scale


@decomposition("aten._fft_c2c", unspecified=_UNCHECKED, examples=[
    example("2x8xcomplex<f32>", [1], 0, True), example("4x6x5xcomplex<f32>", [0, 2], 2, False),
    example("2x360xcomplex<f32>", [1], 1, True),
], of_complex=True)  # fmt: skip
def fft_of_complex(self: Tensor, dim: list[int], normalization: int, forward: bool) -> Tensor:
    "one axis after the other"
    pair = torch.real(self), torch.imag(self)
    for axis in dim:
        pair = _along(pair, axis, -1 if forward else 1)
    sizes = [self.shape[axis] for axis in dim]
    return torch.complex(*(_normalized(part, normalization, sizes) for part in pair))


@decomposition("aten._fft_r2c", unspecified=_UNCHECKED, examples=[
    example("2x8xf32", [1], 0, True), example("2x9xf32", [1], 2, True), example("3x7x4xf32", [0, 1], 1, False),
    example("2x300xf32", [1], 0, True),
])  # fmt: skip
def fft_of_real(self: Tensor, dim: list[int], normalization: int, onesided: bool) -> Tensor:
    "the last axis first; `onesided` keeps its frequencies that are not conjugates of others"
    *others, last = dim
    size = self.shape[last]
    kept = size // 2 + 1 if onesided else size
    x = self.movedim(last, -1)
    if _fits(size):
        pair = _times((x, None), *_waves(size, kept, size, x, -1))
    else:
        real, imag = _transformed((x, None), -1)
        pair = real[..., :kept], imag[..., :kept]
    pair = pair[0].movedim(-1, last), pair[1].movedim(-1, last)
    for axis in reversed(others):
        pair = _along(pair, axis, -1)
    sizes = [self.shape[axis] for axis in dim]
    return torch.complex(*(_normalized(part, normalization, sizes) for part in pair))


@decomposition("aten._fft_c2r", unspecified=_UNCHECKED, examples=[
    example("2x5xcomplex<f32>", [1], 2, 8), example("2x5xcomplex<f32>", [1], 0, 9),
    example("3x5xcomplex<f32>", [0, 1], 1, 8), example("2x151xcomplex<f32>", [1], 2, 300),
], of_complex=True)  # fmt: skip
def fft_to_real(self: Tensor, dim: list[int], normalization: int, last_dim_size: int) -> Tensor:
    "of a spectrum whose other half is the conjugate of this one; imaginary parts that must be zero count as zero"
    *others, last = dim
    pair = torch.real(self), torch.imag(self)
    for axis in others:
        pair = _along(pair, axis, 1)
    size, kept = last_dim_size, last_dim_size // 2 + 1
    real, imag = (part.movedim(last, -1)[..., :kept] for part in pair)
    made = _signal(real, imag, size) if _fits(size) else _long_signal(real, imag, size)
    return _normalized(made.movedim(-1, last), normalization, [size, *(self.shape[axis] for axis in others)])


def _signal(real: Tensor, imag: Tensor, size: int) -> Tensor:
    """By one product: frequencies count twice that have a conjugate."""
    kept = size // 2 + 1
    turns = np.outer(np.arange(kept), np.arange(size)) % size
    twice = np.where((np.arange(kept) % size == 0) | (2 * np.arange(kept) == size), 1.0, 2.0)[:, None]
    inner = slice(1, (size + 1) // 2)  # the others have no imaginary part
    angle = turns * (2 * math.pi / size)
    made = real @ _constant(twice * np.cos(angle), real)
    if inner.stop <= 1:
        return made
    return made - imag[..., inner] @ _constant((twice * np.sin(angle))[inner], real)


def _long_signal(real: Tensor, imag: Tensor, size: int) -> Tensor:
    """From the whole spectrum."""
    inner = slice(1, (size + 1) // 2)
    zero = torch.zeros_like(imag[..., :1])
    middle = [] if size % 2 else [zero]
    mirrored = imag[..., inner]
    whole_real = torch.cat([real, real[..., inner].flip(-1)], -1)
    whole_imag = torch.cat([zero, mirrored, *middle, -mirrored.flip(-1)], -1)
    return _transformed((whole_real, whole_imag), 1)[0]


def _check_count(n: int) -> None:
    if isinstance(n, int) and n < 1:
        raise Rejected("the frequencies of a Fourier transform need a positive number of points")


def _inverse(number: float) -> float:
    """1 / number, where 1 / 0 is infinite."""
    return 1.0 / number if number else math.copysign(math.inf, number)


@decomposition("aten.fft_fftfreq", examples=[example(8), example(7, 0.5)])
def fft_frequencies(n: int, d: float = 1.0, *, dtype: torch.dtype | None = None, **memory: Any) -> Tensor:
    "0, 1, ... and then -n/2, ... -1, divided by n d"
    _check_count(n)
    upper = torch.arange((n + 1) // 2, dtype=dtype or torch.get_default_dtype())
    return torch.cat([upper, torch.arange(-(n // 2), 0, dtype=upper.dtype)]) * _inverse(n * d)


@decomposition("aten.fft_rfftfreq", examples=[example(8), example(7, 0.5)])
def fft_frequencies_of_real(n: int, d: float = 1.0, *, dtype: torch.dtype | None = None, **memory: Any) -> Tensor:
    "0, 1, ... n/2, divided by n d"
    _check_count(n)
    return torch.arange(n // 2 + 1, dtype=dtype or torch.get_default_dtype()) * _inverse(n * d)
