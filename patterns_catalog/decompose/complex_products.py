"""Products of complex matrices: (A + iB)(C + iD) = AC - BD + i (AD + BC).

Convolutions need no rule: PyTorch itself exports them in real parts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.patterns import Example, Rule, decomposition, example
from patterns_catalog.decompose.complex_parts import Number

_MATRICES = ("2x3xcomplex<f32>", "3x4xcomplex<f32>")
_BATCHES = ("2x2x3xcomplex<f32>", "2x3x4xcomplex<f32>")
_VECTORS = ("3xcomplex<f32>", "3xcomplex<f32>")


def _product(name: str, *examples: Example) -> Rule:
    overload = getattr(torch.ops.aten, name).default

    @decomposition(f"aten.{name}", name=f"decompose complex {name}", examples=examples, of_complex=True)
    def product(self: Tensor, other: Tensor) -> Tensor:
        "four real products"
        a, b, c, d = torch.real(self), torch.imag(self), torch.real(other), torch.imag(other)
        return torch.complex(overload(a, c) - overload(b, d), overload(a, d) + overload(b, c))

    return product


PRODUCTS = [
    _product("mm", example(*_MATRICES)),
    _product("bmm", example(*_BATCHES)),
    _product("mv", example("2x3xcomplex<f32>", "3xcomplex<f32>")),
    _product("dot", example(*_VECTORS)),
]


@decomposition("aten.vdot", examples=[example(*_VECTORS)], of_complex=True)
def vdot(self: Tensor, other: Tensor) -> Tensor:
    "the product with the conjugate of the first"
    return torch.dot(self.conj(), other)


def _added(name: str, product: str, *arguments: str) -> Rule:
    overload = getattr(torch.ops.aten, product).default

    @decomposition(
        f"aten.{name}", name=f"decompose complex {name}", of_complex=True,
        examples=[example(*arguments), example(*arguments, beta=0.5, alpha=2.0)],
    )  # fmt: skip
    def added(self: Tensor, left: Tensor, right: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
        "beta * self + alpha * the product; by the schema, NaN in self times 0 does not count"
        made = overload(left, right)
        made = made if alpha == 1 else made * alpha
        return made if beta == 0 else made + (self if beta == 1 else self * beta)

    return added


ADDED = [
    _added("addmm", "mm", "4xcomplex<f32>", *_MATRICES),
    _added("baddbmm", "bmm", "4xcomplex<f32>", *_BATCHES),
    _added("addmv", "mv", "2xcomplex<f32>", "2x3xcomplex<f32>", "3xcomplex<f32>"),
]
