"""Numbers at which arithmetic in a 16-bit type differs from that in a wider one: where it overflows, where it becomes
zero, and where its rounding shows.

Symbols do not know how wide a type is: a sum of casts is, over the reals, the cast of the sum. So a program with a
16-bit type runs on such numbers, too. Where the result of the source is steady, the other one must be near. It is
steady where it hardly moves if the inputs change in their last place, or are given in 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.ir.types import TensorType, element_name
from patcomp_lab.proof.counterexample import COUNTEREXAMPLE_TOLERANCES
from patcomp_lab.proof.pairs import RulePair

_POOLS: Mapping[torch.dtype, Sequence[Sequence[float]]] = {
    torch.float32: (
        (70000.0, -69000.0, 65519.0, 65520.0, 1e5, -3e5, 300.0),
        (1000.3, 1001.4, -1000.2, 0.1, 2049.4, -2048.7, 1.3, 20.0),
        (1e-8, 3e-8, -2e-6, 1e-5, 7e-8),
    ),
    torch.float16: (
        (300.0, -1000.0, 30000.0, 60000.0, 256.0, -65504.0),
        (1000.5, -1000.0, 0.1, 2047.0, -2046.0, 1.3, 20.0),
        (6e-8, 1e-4, -1e-4, 3e-5, 1e-3),
    ),
    torch.bfloat16: ((300.0, -1000.0, 7e4, 256.0), (1000.0, -996.0, 0.1, 257.0, 20.0), (1e-8, 1e-4, -1e-4, 3e-5, 1e-3)),
}
"""For each type of an input: numbers whose sums, squares or casts overflow in 16 bits, numbers that cancel so that what
is left shows how they were rounded, and numbers whose squares or casts are zero."""
_CONSTANT = (300.0, 1e-4)
"""The numbers of tensors whose elements are all equal."""

_ROUNDING = 4
"""How many tolerances results may be apart."""


def has_narrow_floats(pair: RulePair) -> bool:
    """Whether a program has a 16-bit float, before or after the rule."""
    if any("f16" in each.type for run in pair.runs[:1] for each in run.values()):
        return True
    modules = [getattr(pair, name, None) for name in ("source", "module", "without")]
    return any(_has_narrow(module) for module in modules if module is not None)


def _has_narrow(module: Any) -> bool:
    for op in module.op.walk():
        for value in op.results:
            if (
                isinstance(value.type, TensorType)
                and element_name(value.type.element_type) in COUNTEREXAMPLE_TOLERANCES
            ):
                return True
    return False


def drawn_numbers(draw: int, place: int, dtype: torch.dtype) -> Sequence[float]:
    """The numbers for an input in a draw (below `NARROW_DRAWS`). The first draws give all inputs one pool, the next
    give each input another pool, and the last give a single number.

    Args:
        place: which of the inputs it is.
    """
    pools = _POOLS.get(dtype, _POOLS[torch.float32])
    if draw < 2 * len(pools):
        return pools[(draw + place * (draw >= len(pools))) % len(pools)]
    return (_CONSTANT[draw - 2 * len(pools)],)


NARROW_DRAWS = 2 * 3 + len(_CONSTANT)


def agree_in_range(pair: RulePair, expected: Tensor, actual: Tensor, index: int, inputs: Mapping[str, Any]) -> bool:
    """Whether a result is near the expected one, at all elements where the expected result is steady. NaN of the source
    says nothing."""
    if expected.shape != actual.shape:
        return False
    e, a = expected.double(), actual.double()
    finite = e[e.isfinite()].abs()
    tolerance = (
        COUNTEREXAMPLE_TOLERANCES.get(_NAMES.get(expected.dtype, ""), 2e-5) if expected.is_floating_point() else 0.0
    )
    largest = float(finite.max()) if finite.numel() else 0.0
    size = e.abs().nan_to_num(0.0, 0.0, 0.0) if pair.is_elementwise else torch.full_like(e, largest)
    allowed = _ROUNDING * tolerance * size + (pair.rule.approximation or 0.0)
    differs = ~e.isnan() & (_apart(a, e) > 2 * allowed)
    if not bool(differs.any()):
        return True
    for other in _near(pair, inputs, index):
        if other is not None and other.shape == e.shape:
            differs &= _apart(other.double(), e) <= allowed
    return not bool(differs.any())


def _apart(one: Tensor, other: Tensor) -> Tensor:
    return torch.where(one == other, 0.0, (one - other).abs()).nan_to_num(nan=torch.inf)


def _near(pair: RulePair, inputs: Mapping[str, Any], index: int) -> Iterator[Tensor | None]:
    """The source's result on inputs that are changed in their last place, and on inputs of 64 bits: where it moves, the
    source itself overflows or rounds, and says nothing."""
    for sign in (1, -1):
        yield _result(pair, {name: _nudged(value, sign) for name, value in inputs.items()}, index)
    yield in_64_bits(pair, inputs, index)


def in_64_bits(pair: RulePair, inputs: Mapping[str, Any], index: int) -> Tensor | None:
    """The source's result on inputs of 64 bits; None if the source does not take them."""
    wide = {name: value.double() if _is_float(value) else value for name, value in inputs.items()}
    return _result(pair, wide, index)


_NAMES = {torch.float16: "f16", torch.bfloat16: "bf16"}


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _nudged(value: Any, sign: int) -> Any:
    """A tensor whose floats are changed in their last place, in turn up and down."""
    if not _is_float(value):
        return value
    signs = sign * (torch.arange(value.numel()) % 2 * 2 - 1).reshape(value.shape)
    return (value.double() * (1 + torch.finfo(value.dtype).eps * signs)).to(value.dtype)


def _result(pair: RulePair, inputs: Mapping[str, Any], index: int) -> Tensor | None:
    try:
        with torch.no_grad():
            return pair.before(inputs)[index]
    except (EvaluationError, RuntimeError, IndexError, ValueError):
        return None
