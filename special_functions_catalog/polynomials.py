"""Sums over the coefficients of `coefficients.toml`, from which special functions are computed."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor


@cache
def coefficients(name: str) -> tuple[float, ...]:
    """The coefficients of a name such as "lgamma.near", with the highest power first."""
    table, row = name.split(".")
    tables = tomllib.loads(files(__package__).joinpath("coefficients.toml").read_text("utf-8"))
    return tuple(tables[table][row])


def polynomial(x: Tensor, terms: str | tuple[float, ...]) -> Tensor:
    """A polynomial by Horner's rule; its coefficients by name, or as numbers with the highest power first."""
    first, *others = coefficients(terms) if isinstance(terms, str) else terms
    total = torch.full_like(x, first)
    for coefficient in others:
        total = total * x + coefficient
    return total


def ratio(x: Tensor, name: str) -> Tensor:
    """A rational function."""
    return polynomial(x, name) / polynomial(x, f"{name}_divisor")


def chebyshev_series(x: Tensor, name: str) -> Tensor:
    """The sum of c[k] T_k(x / 2) with half of c[0], by Clenshaw's recurrence; c[0] is the last coefficient."""
    first, *others = coefficients(name)
    last, one_before, two_before = torch.full_like(x, first), torch.zeros_like(x), torch.zeros_like(x)
    for coefficient in others:
        last, one_before, two_before = x * last - one_before + coefficient, last, one_before
    return 0.5 * (last - two_before)
