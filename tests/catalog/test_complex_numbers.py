"""Programs of complex numbers: what becomes of their borders, rope in complex form, Fourier transforms, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import TorchConverter, UnsupportedError
from patcomp.emit.native import Native
from tests.catalog.recovering import Calling, convert

COMPLEX = torch.randn(2, 6, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))


def real(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


# ---- borders ---------------------------------------------------------------------------------------


def test_inputs_and_outputs_stay_complex_and_all_else_is_real(native: Native) -> None:
    program = convert(lambda z: torch.exp(z) * z.conj() / 2, COMPLEX, native=native)
    lines = [line for line in program.text().splitlines() if "complex<f32>" in line and "@main" not in line]
    assert all(any(op in line for op in ("real_part", "imaginary_part", "create_complex", "output")) for line in lines)
    assert len([line for line in lines if "create_complex" in line]) == 1


def test_complex_weights_are_stored_in_parts(native: Native) -> None:
    weight = torch.randn(6, 300, dtype=torch.complex64, generator=torch.Generator().manual_seed(2))
    program = convert(lambda z: torch.view_as_real(z @ weight), COMPLEX, native=native)
    assert "constant dense_resource" in program.text()
    assert "create_complex" not in program.text()


def test_conjugated_and_negated_views_are_carried_out_once(native: Native) -> None:
    convert(lambda z: (z.conj() * z.conj().imag, z.conj().t() @ z.conj()), COMPLEX, native=native)


def test_double_precision_narrows(native: Native) -> None:
    program = convert(lambda x: torch.fft.rfft(x.double()).abs().float(), real(2, 8), native=native)
    assert "f64" not in program.text()


def test_empty_complex_results(native: Native) -> None:
    convert(lambda z: z.exp(), COMPLEX[:0], native=native)


# ---- refusals --------------------------------------------------------------------------------------


def refusal(function: object, *inputs: torch.Tensor) -> str:
    exported = torch.export.export(Calling(function), inputs)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError) as caught:
        TorchConverter().add_exported_program(exported).to_coreai()
    return str(caught.value)


def test_large_primes_are_refused() -> None:
    assert "the prime factor 2053 of a Fourier transform's length" in refusal(torch.fft.rfft, real(2 * 2053))


def test_half_precision_is_refused() -> None:
    half = real(3).half()
    assert "complex32 has no Core AI element type" in refusal(lambda x: torch.complex(x, x).abs(), half)
    assert "complex32 has no Core AI element type" in refusal(torch.view_as_real, half.to(torch.complex32))


# ---- sizes that only the run knows -----------------------------------------------------------------


def rows_of_complex(size: int) -> torch.Tensor:
    return torch.complex(real(size, 3), real(3))


def rows(size: int) -> torch.Tensor:
    return real(size, 3)


OF_OPEN_SIZES: dict[str, tuple[Callable[..., Any], Callable[[int], torch.Tensor]]] = {
    "polar": (lambda x: torch.polar(x.abs(), x), rows),
    "polar with broadcasting": (lambda x: torch.view_as_real(torch.polar(x.abs(), x[0])), rows),
    "complex with broadcasting": (lambda x: torch.complex(x, x[0]), rows),
    "a real and an imaginary number": (lambda x: x + 1j, rows),
    "product and exponential": (lambda z: (z * z.conj() + 2).exp() / 100, rows_of_complex),
    "matrices": (lambda z: z @ z.mT, rows_of_complex),
    "einsum": (lambda z: torch.einsum("ni,mi->nm", z, z), rows_of_complex),
    "transform": (lambda z: torch.fft.fft(z, dim=1), rows_of_complex),
    "transform of real numbers": (lambda x: torch.fft.fft2(x[:, None] * x[:, :, None]), rows),
    "transform to real numbers": (lambda x: torch.fft.irfft(x, n=5), rows),
    "a real number for all": (lambda x: torch.complex(x.amax(), x), rows),
}


@pytest.mark.parametrize("name", OF_OPEN_SIZES)
def test_open_sizes(name: str) -> None:
    function, made = OF_OPEN_SIZES[name]
    model = Calling(function)
    exported = torch.export.export(model, (made(4),), dynamic_shapes=(({0: torch.export.Dim("n", min=2, max=16)},),))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    for size in (4, 7):
        program.verify_against(model, (made(size),)).check()


# ---- Fourier transforms ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 256, 257, 400, 1000, 1024, 2310])
def test_lengths(size: int, native: Native) -> None:
    def there_and_back(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spectrum = torch.fft.rfft(x, norm="ortho")
        return spectrum, torch.fft.irfft(spectrum, n=size, norm="ortho"), torch.fft.ifft(torch.fft.fft(x)).real

    convert(there_and_back, real(2, size), native=native)


def test_stft_of_a_speech_model(native: Native) -> None:
    def spectrogram(x: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(400)
        return torch.stft(x, 400, 160, window=window, return_complex=True)[..., :-1].abs() ** 2

    convert(spectrogram, real(1, 1600) / 20, native=native)


# ---- rope in complex form --------------------------------------------------------------------------


class Attention(nn.Module):
    """As in the reference code of Llama, with grouped queries."""

    def __init__(self, *, conjugated: bool, in_forward: bool):
        super().__init__()
        self.conjugated, self.in_forward = conjugated, in_forward
        self.query, self.key = nn.Linear(32, 32, bias=False), nn.Linear(32, 16, bias=False)
        self.value, self.out = nn.Linear(32, 16, bias=False), nn.Linear(32, 32, bias=False)
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, 8, 2).float() / 8))
        self.register_buffer("table", self.turns(16))

    def turns(self, length: int) -> torch.Tensor:
        angles = torch.outer(torch.arange(length).float(), self.frequencies)
        return torch.polar(torch.ones_like(angles), angles)

    def turned(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turns = turns.view(1, x.shape[1], 1, pairs.shape[-1])
        turns = turns.conj() if self.conjugated else turns
        return torch.view_as_real(pairs * turns).flatten(3).type_as(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        turns = self.turns(length) if self.in_forward else self.table[:length]
        query = self.turned(self.query(x).view(batch, length, 4, 8), turns)
        key = self.turned(self.key(x).view(batch, length, 2, 8), turns).repeat_interleave(2, 2)
        value = self.value(x).view(batch, length, 2, 8).repeat_interleave(2, 2)
        heads = [part.transpose(1, 2) for part in (query, key, value)]
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


@pytest.mark.parametrize("in_forward", [False, True])
@pytest.mark.parametrize("conjugated", [False, True])
def test_rope_of_complex_numbers(conjugated: bool, in_forward: bool, native: Native) -> None:
    """Conjugated tables turn backwards: a rope with the negative sine, which only the numbers can tell."""
    torch.manual_seed(0)
    model = Attention(conjugated=conjugated, in_forward=in_forward).eval()
    program = convert(model, real(2, 6, 32), native=native)
    assert program.composites == {"rope": 2, "scaled_dot_product_attention": 1}
    assert "complex" not in program.text()


def test_a_product_with_conjugated_input_is_no_rope(native: Native) -> None:
    """conj(x) * turn mirrors before it turns."""
    turns = torch.polar(torch.ones(6, 4), real(6, 4))

    def mirrored(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.reshape(2, 6, 4, 2)).conj()
        return torch.view_as_real(pairs * turns).flatten(2)

    assert convert(mirrored, real(2, 6, 8), native=native).composites == {}
