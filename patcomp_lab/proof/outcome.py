"""What symbols say of a program before and after a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from patcomp_lab.proof import orders, pools, scalars
from patcomp_lab.proof.lemmas import LEMMAS
from patcomp_lab.proof.pairs import RulePair, RunInput, made_of
from patcomp_lab.proof.same_code import SAME_CODE
from patcomp_lab.proof.symbols import FLOAT_DTYPES, INTEGERS, Symbols, UnreachedError, same_codes
from patcomp_lab.proof.worlds import CodeKind, World

_ = orders, pools  # imported for the meanings that it registers

_WORLDS = 2
"""In how many worlds each program is run."""

RUNS = 3
"""With how many sizes a program with open sizes is run on symbols; it is run with all of them on numbers."""

WITHOUT_FLOATS = "there is no tensor of floats"


@dataclass(frozen=True)
class Outcome:
    """The kind of equality, None if the symbols differ."""

    kind: CodeKind | None
    lemmas: frozenset[str] = frozenset()
    casts_are_exact: bool = False
    """Whether the symbols are equal only if casts to 16 bits do not round."""


@dataclass(frozen=True)
class _Level:
    """A kind of worlds that is tried."""

    kind: CodeKind
    allowed: tuple[str, ...] = ()
    lifts_constants: bool = False
    casts_are_exact: bool = False

    def world(self, number: int, used: set[str]) -> World:
        return World(
            self.kind, number, allowed=self.allowed, lemmas=used, lifts_constants=self.lifts_constants,
            casts_are_exact=self.casts_are_exact,
        )  # fmt: skip


_LEVELS = (
    _Level(CodeKind.BITS), _Level(CodeKind.BITS, tuple(LEMMAS)),
    *(_Level(CodeKind.REALS, (), lifts, exact) for exact in (False, True) for lifts in (False, True)),
)  # fmt: skip
"""The kinds of worlds, the strictest one first."""


def outcome(pair: RulePair) -> Outcome:
    """Whether symbols are the same before and after the rule.

    Raises:
        UnreachedError: the program does not run on symbols.
    """
    if pair.shares_definition:
        raise UnreachedError(SAME_CODE)
    reasons: list[UnreachedError] = []
    ran = False
    for level in _LEVELS:
        try:
            if (used := _lemmas_if_equal(pair, level)) is not None:
                return Outcome(level.kind, used, level.casts_are_exact)
            ran = True
        except UnreachedError as error:
            reasons.append(error)
    if reasons and not ran:
        raise reasons[-1]
    return Outcome(None)


def _lemmas_if_equal(pair: RulePair, level: _Level) -> frozenset[str] | None:
    """A minimal set of allowed lemmas under which the symbols are equal; None if the symbols differ."""
    used: set[str] = set()
    runs = [*((pair.runs[0], number) for number in range(_WORLDS)), *((run, 0) for run in pair.runs[1:RUNS])]
    for run, number in runs:
        if not _is_same(pair, run, level.world(number, used)):
            return None
    for lemma in sorted(used):
        fewer = _lemmas_if_equal(pair, replace(level, allowed=tuple(sorted(used - {lemma}))))
        if fewer is not None:
            return fewer
    return frozenset(used)


def _is_same(pair: RulePair, run: Mapping[str, RunInput], world: World) -> bool:
    numbers = {name: made_of(each, (), n) for n, (name, each) in enumerate(run.items())}
    inputs = {name: symbolic(value, name, world) for name, value in numbers.items()}
    if not any(isinstance(value, Symbols) for value in inputs.values()):
        free = {name for name, each in run.items() if each.is_free_integer or pair.is_elementwise}
        if world.kind is CodeKind.REALS or (run and not free):
            raise UnreachedError(WITHOUT_FLOATS)
        inputs = {n: _symbolic_integers(v, n, world) if n in free else v for n, v in numbers.items()}
    try:
        with torch.no_grad():
            before, after = pair.before(inputs), pair.after(inputs)
    except UnreachedError:
        raise
    except Exception as error:  # a kernel that does not take symbols
        if run is not pair.runs[0] and _is_refused(pair, run):
            return True
        raise UnreachedError(_cause(error)) from error
    return all(same_codes(a, b, world) for a, b in zip(before, after, strict=False))


def _is_refused(pair: RulePair, run: Mapping[str, RunInput]) -> bool:
    """Whether the source does not take the sizes of a run."""
    try:
        pair.before({name: made_of(each) for name, each in run.items()})
    except Exception:  # of a kernel
        return True
    return False


def _symbolic_integers(tensor: Tensor, name: str, world: World) -> Tensor:
    return Symbols(world.symbols(name, tensor.shape), tensor.dtype, world) if tensor.dtype in INTEGERS else tensor


def symbolic(tensor: Tensor, name: str, world: World) -> Tensor:
    """Symbols in the place of a tensor of floats; integers and booleans stay numbers."""
    if tensor.dtype not in FLOAT_DTYPES:
        return tensor
    codes = world.symbols(name, tensor.shape)
    if world.kind is CodeKind.BITS:
        codes = codes // 4 * 4 + scalars.TYPE_MARKS[tensor.dtype]
    return Symbols(codes, tensor.dtype, world)


def _cause(error: BaseException) -> str:
    """The reason why a program does not run on symbols."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, UnreachedError):
            return str(inner)
        inner = inner.__cause__
    return f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
