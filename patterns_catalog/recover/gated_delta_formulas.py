"""Patterns for one step of the gated delta rule and for the ops around it; `gated_delta_recovery` uses them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from patcomp.authoring import AtenSource
from patcomp.patterns import ANY, Attr, Capture, Const, any_of, check, pattern
from patcomp.patterns.match import Match
from patterns_catalog.recover.gated_delta import L2_EPSILON
from patterns_catalog.recover.unrolled import element_at

# ---- a step -----------------------------------------------------------------------------------------

Sizes = tuple[int, int, int, int]
"""Batch, heads, key size, value size."""
_SWAP = [0, 1, 3, 2]


def _reshaped(a: AtenSource, x: Any) -> Any:
    """x with further dimensions of size 1; a condition on the shape says where."""
    once = a.unsqueeze(x, dim=ANY)
    return any_of(a.unsqueeze(once, dim=ANY), a.permute(once, dims=_SWAP), once, a.view(x, size=ANY))


class _Asked:
    """vector @ state, for a vector of the key size: as products and their sum, or as a product of matrices."""

    def __init__(self, a: AtenSource, state: Any, vector: Any):
        column, row, again = (_reshaped(a, vector) for _ in range(3))
        swapped = a.permute(state, dims=_SWAP)
        flat_row, flat_state = a.view(vector, size=ANY), a.view(_twice_swapped(a, state), size=ANY)
        flat_column, flat_swapped = a.view(vector, size=ANY), a.view(swapped, size=ANY)
        matrix = any_of(a.matmul(row, state), a.matmul(swapped, again))
        flat_matrix = any_of(a.bmm(flat_row, flat_state), a.bmm(flat_swapped, flat_column))
        self.value = any_of(
            a.op("sum.dim_IntList", state * column, dim=[2], keepdim=False, dtype=None),
            a.op("squeeze.dims", matrix, dim=ANY),
            a.view(any_of(matrix, flat_matrix), size=ANY),
        )
        self.shapes: dict[Any, Callable[[Sizes], tuple[int, ...]]] = {
            self.value: _per_value, vector: _per_key, column: lambda s: (*s[:3], 1),
            row: lambda s: (*s[:2], 1, s[2]), again: lambda s: (*s[:3], 1),
            flat_row: lambda s: (s[0] * s[1], 1, s[2]), flat_state: lambda s: (s[0] * s[1], s[2], s[3]),
            flat_column: lambda s: (s[0] * s[1], s[2], 1), flat_swapped: lambda s: (s[0] * s[1], s[3], s[2]),
        }  # fmt: skip


def _twice_swapped(a: AtenSource, x: Any) -> Any:
    """x, or two permutations that undo each other, which PyTorch's einsum adds."""
    return any_of(a.permute(a.permute(x, dims=_SWAP), dims=_SWAP), x)


def _shapes(state: Any, parts: dict[Any, Callable[[Sizes], tuple[int, ...]]]) -> Any:
    """Whether the state is [batch, heads, key size, value size] in float32, and every part that matched has the shape
    that follows from it."""

    def hold(match: Match) -> bool:
        whole = match[state]
        if whole.rank != 4 or not whole.is_static or whole.dtype != "f32":
            return False
        return all(match[part] is None or match[part].shape == shape(whole.shape) for part, shape in parts.items())

    return check("shapes follow from the state's", hold)


def _per_head(s: Sizes) -> tuple[int, ...]:
    return s[:2]


def _per_key(s: Sizes) -> tuple[int, ...]:
    return s[:3]


def _per_value(s: Sizes) -> tuple[int, ...]:
    return (*s[:2], s[3])


@pattern
def step(
    a: AtenSource, state: Capture, decay: Capture, key: Capture, again: Capture, value: Capture, beta: Capture
) -> Any:
    "decay * state + key ⊗ beta * (value - key @ (decay * state))"
    fading, strength, writing = _reshaped(a, decay), _reshaped(a, beta), _reshaped(a, again)
    faded = state * fading
    remembered = _Asked(a, faded, key)
    delta = (value - remembered.value) * strength
    row = _reshaped(a, delta)
    return faded + any_of(writing * row, a.matmul(writing, row)), [
        check("the key is one and the same", lambda match: element_at(match["key"]) == element_at(match["again"])),
        _shapes(
            state,
            {
                decay: _per_head, fading: lambda s: (*s[:2], 1, 1), **remembered.shapes,
                again: _per_key, writing: lambda s: (*s[:3], 1),
                value: _per_value, beta: _per_head, strength: lambda s: (*s[:2], 1),
                delta: _per_value, row: lambda s: (*s[:2], 1, s[3]),
            },
        ),
    ]  # fmt: skip


@pattern
def read(a: AtenSource, state: Capture, query: Capture) -> Any:
    "query @ state"
    asked = _Asked(a, state, query)
    return asked.value, [_shapes(state, asked.shapes)]


# ---- around the steps -------------------------------------------------------------------------------


@pattern
def normalized(a: AtenSource, x: Capture, eps: Const, axis: Attr) -> Any:
    "x * rsqrt(sum(x ** 2, -1) + eps), or a quotient"
    square = a.op("sum.dim_IntList", any_of(x * x, a.pow(x, 2.0)), dim=[axis], keepdim=True, dtype=None)
    close = check("eps is the composite's", lambda match: math.isclose(match["eps"].constant, L2_EPSILON, rel_tol=1e-6))
    return any_of(x * a.rsqrt(square + eps), x / a.sqrt(square + eps)), [
        eps.rank == 0,
        close,
        axis == x.rank - 1,
        x.dtype == "f32",
    ]


@pattern
def scaled(a: AtenSource, x: Capture, factor: Const, divisor: Const) -> Any:
    "x / sqrt(key size)"

    def is_root(match: Match) -> bool:
        size = match["x"].shape[-1] if match["x"].rank else None
        if not size:
            return False
        given = match["factor"].constant if match["factor"] is not None else 1 / match["divisor"].constant
        return bool(math.isclose(given, size**-0.5, rel_tol=1e-6))

    return any_of(x * factor, x / divisor), [
        (factor.rank == 0) | (divisor.rank == 0),
        check("the factor is 1 / sqrt(key size)", is_root),
    ]
