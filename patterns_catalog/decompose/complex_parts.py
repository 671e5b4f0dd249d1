"""Complex numbers as pairs of real numbers: helpers of the decompositions of complex ops.

The import decomposes a complex op into real ops between `view_as_real` and `complex`. The normalize stage cancels two
of these that meet (`normalize/complex_parts.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from patcomp.evaluate.eager import overload_of
from patcomp.patterns import Example, Rule, decomposition, example

Number = bool | int | float | complex
Part = Tensor | float
"""A real or imaginary part: of a tensor, or of a Python number."""


def parts(z: Tensor | Number) -> tuple[Part, Part]:
    """Real and imaginary part. The imaginary part of a real operand is a zero, which still takes part: as in PyTorch,
    infinities times it are NaN."""
    if isinstance(z, Tensor):
        return (torch.real(z), torch.imag(z)) if z.is_complex() else (z, 0.0)
    return complex(z).real, complex(z).imag


def joined(real: Part, imag: Part) -> Tensor:
    """The complex tensor of two parts, at least one of which is a tensor; the parts broadcast."""
    dtype = torch.result_type(real, imag)
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    return torch.complex(*(_tensor(part, dtype) for part in (real, imag)))


def _tensor(part: Part, dtype: torch.dtype) -> Tensor:
    return part.to(dtype) if isinstance(part, Tensor) else torch.full((), part, dtype=dtype)


def real_dtype(*operands: Tensor | Number) -> torch.dtype:
    """The type of the parts of PyTorch's result for some operands."""
    dtype = operands[0].dtype if isinstance(operands[0], Tensor) else torch.result_type(0.0, operands[0])
    if len(operands) == 2:
        dtype = torch.result_type(*operands)  # type: ignore[arg-type]
    return dtype.to_real()


def tensors(z: Tensor | Number, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Both parts as tensors of a real type."""
    real, imag = parts(z)
    return _tensor(real, dtype), _tensor(imag, dtype)


def nonzero(z: Tensor | Number) -> Tensor:
    """Where a value is not zero, as bools."""
    if isinstance(z, Tensor) and not z.is_complex():
        return z != 0
    real, imag = tensors(z, real_dtype(z))
    return (real != 0) | (imag != 0)


def complex_function(name: str, formula: str, function: Callable[..., Tensor], *examples: Example) -> Rule:
    """The decomposition of an op by a function of complex tensors."""
    return decomposition(
        f"aten.{name}",
        name=f"decompose complex {name}",
        doc=formula,
        examples=examples or [example("2x9xcomplex<f32>")],
        of_complex=True,
    )(function)


def function_of_parts(
    name: str, formula: str, function: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], *examples: Example
) -> Rule:
    """The decomposition of an op by both parts of a + ib, which gives both parts of the result."""

    @wraps(function)
    def of_parts(z: Tensor) -> Tensor:
        return torch.complex(*function(torch.real(z), torch.imag(z)))

    return complex_function(name, formula, of_parts, *examples)


def function_of_truth(name: str, *examples: Example) -> Rule:
    """The decomposition of an op by the same op on bools that say which numbers are not zero."""
    overload = overload_of(f"aten.{name}")

    def of_truth(*arguments: Any, **options: Any) -> Tensor:
        made: Tensor = overload(*(nonzero(x) if isinstance(x, Tensor) else x for x in arguments), **options)
        return made

    return complex_function(name, "the op on bools: whether each number is not zero", of_truth, *examples)
