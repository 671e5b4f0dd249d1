"""How far a rule's rounding takes results, where a rule is equal over the reals or on whole numbers only.

A search looks for the inputs on which a program in 32 bits rounds the worst after the rule: it draws numbers of several
magnitudes and signs, numbers that are alike and numbers that cancel, and then changes the worst of them a little at a
time. It is deterministic.

The unit is that in the last place of the largest number of a result, or of 1 if that is smaller, as in
`proof.deciding_numbers`. It is not that of each number: a small number may be what large ones that cancel leave.
How far the result moves if the inputs change in their last place is added to it: no program can be expected to compute
a result better. The distance is that from the result before the rule, or from the result before the rule in 64 bits
where that is nearer: a rule may round better. A rule that loses digits of results near zero only, such as
`tanh by sigmoid`, is near.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from patcomp.patterns.example_types import limits_of
from patcomp_lab.proof.pairs import RulePair, RunInput, made_of

ROUNDING_LIMIT = 64.0
"""From this many units in the last place on, a rule loses digits."""

_EPS = torch.finfo(torch.float32).eps
_ROUNDS = 8
"""How often the worst inputs are changed."""

Inputs = dict[str, Tensor]


def units_apart(pair: RulePair) -> float | None:
    """The largest distance that the search finds, in units in the last place; None if nothing is computed in 32 bits.

    Inputs on which a result is not finite before or after the rule are left out: `proof.numbers` compares them.
    """
    run = pair.runs[0]
    base = {name: made_of(each, (), index) for index, (name, each) in enumerate(run.items())}
    free = [name for name, each in run.items() if _is_free(each, base[name])]
    if any(value.is_floating_point() and value.dtype != torch.float32 for value in base.values()) or not free:
        return None
    generator = torch.Generator().manual_seed(0)
    worst: tuple[float, Inputs] | None = None
    tried = [base | {name: _within(run[name], draw(base[name], generator)) for name in free} for draw in _DRAWS]
    for round_ in range(len(tried) + _ROUNDS):
        if round_ < len(tried):
            inputs = tried[round_]
        elif worst is None:
            return None
        else:
            inputs = worst[1] | {
                name: _within(run[name], value * (1 + 0.05 * _normal(value, generator)))
                for name, value in worst[1].items()
                if name in free
            }
        units = _units(pair, inputs, free, generator)
        if units is not None and (worst is None or units > worst[0]):
            worst = units, inputs
    return worst and worst[0]


def _is_free(given: RunInput, value: Tensor) -> bool:
    """Whether an input may be drawn, within its range of values."""
    return given.given is None and value.dtype == torch.float32


def _within(given: RunInput, value: Tensor) -> Tensor:
    limits = limits_of(given.type)
    return value if limits is None else value.clamp(*limits)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator)


def _cancelling(like: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers of which every second one is nearly the opposite of another one."""
    numbers = 100 + _normal(like, generator)
    signs = (torch.arange(like.numel()) % 2 * 2 - 1).reshape(like.shape)
    return numbers * signs


_DRAWS: Sequence[Callable[[Tensor, torch.Generator], Tensor]] = (
    _normal,
    lambda like, generator: 1e-3 * _normal(like, generator),
    lambda like, generator: 10 * _normal(like, generator),
    lambda like, generator: _normal(like, generator) * 10 ** _normal(like, generator),
    lambda like, generator: 1e3 + _normal(like, generator),
    lambda like, generator: -30 + _normal(like, generator),
    _cancelling,
)


def _units(pair: RulePair, inputs: Inputs, free: Sequence[str], generator: torch.Generator) -> float | None:
    """The distance on some inputs, in the units of the module's docstring."""
    signs = {name: torch.sign(_normal(inputs[name], generator)) for name in free}
    nudged = inputs | {name: inputs[name].double() * (1 + _EPS * sign) for name, sign in signs.items()}
    before, after = _results(pair.before, inputs), _results(pair.after, inputs)
    if before is None or after is None:
        return None
    wide = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    exact, moved = _results(pair.before, wide), _results(pair.before, {**wide, **nudged})
    if exact is None or moved is None or any(a.dtype == torch.float32 for a in exact):  # the program names its types
        narrow = {name: value.float() if name in signs else value for name, value in nudged.items()}
        exact, moved = before, _results(pair.before, narrow) or before
    distances = []
    for one, other, truth, near in zip(before, after, exact, moved, strict=False):
        if one.dtype != torch.float32 or other.dtype != torch.float32 or one.shape != other.shape or not one.numel():
            continue
        a, b, c, d = (value.double() for value in (one, other, truth, near))
        if not all(bool(value.isfinite().all()) for value in (a, b, c, d)):
            return None
        unit = _EPS * max(1.0, float(c.abs().amax())) + float((d - c).abs().amax())
        apart = float(torch.minimum((b - a).abs(), (b - c).abs()).amax())
        distances.append(apart / unit)
    return max(distances, default=None)


def _results(run: Callable[[Mapping[str, Tensor]], list[Tensor]], inputs: Mapping[str, Tensor]) -> list[Tensor] | None:
    """The results of a program; None if it does not take the inputs."""
    try:
        with torch.no_grad():
            return run(inputs)
    except (RuntimeError, IndexError, ValueError, TypeError):  # an EvaluationError is a RuntimeError
        return None
