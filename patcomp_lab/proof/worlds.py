"""Worlds of symbols: what floats, functions of floats and comparisons are while a rule is proved.

A float is a code, a number below `P`. A function that a proof does not look into is an oracle: it gives a code that
depends on the function's name and on the codes of its operands, and on nothing else. So equal codes in a random world
mean that the same functions are applied to the same elements. There are two kinds of worlds:

- `BITS`: every operation is an oracle, but a change of the sign, which is one of the code. Equal codes mean equal bits,
  whatever the operations round to. Identities of numbers hold only if the world allows them (`proof.lemmas`).
- `REALS`: `+ - * /` are those of the field of `P` elements, so that equal codes at random points mean equal rational
  functions (the lemma of Schwartz and Zippel). Rounding, overflow and NaN are not in these worlds. A cast to 16 bits is
  an oracle, unless the world takes casts for exact.

Comparisons are booleans of a random order of codes, in which different codes may be equal (as the zeros of two signs
are) and, in `BITS`, some codes are NaN.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patcomp_lab.proof.lemmas import LEMMAS

P = 2**31 - 249
"""The number of elements of the field, a prime. Products of two codes fit into 64 bits. It is 7 modulo 8, and 2, 3, 5,
7 and 11 are squares, so that constants with these factors have roots."""

SIGN = 1 << 61
"""The bit of a code that a change of the sign changes, in worlds of bits."""

CODE_OF_INFINITY, MINUS_INFINITY = P + 1, P + 2
_NAMES = {math.inf: CODE_OF_INFINITY, -math.inf: MINUS_INFINITY}
_NAN = P + 3
_NARROW = (torch.float16, torch.bfloat16)
_SIMPLE = 64
"""The largest denominator of a constant that is taken for a fraction which was rounded."""


_DIGITS = 11
"""The most digits of a fraction that a short decimal is taken for."""


_DIGITS_OF_SQUARE = 8
"""The most digits of a fraction whose root a constant is taken for."""


class CodeKind(Enum):
    """What equal codes mean."""

    BITS = "to the bit"
    REALS = "over the reals"


def _seed(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def _mixed(bits: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64, on each number."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@dataclass
class World:
    """One random interpretation of inputs, functions and comparisons."""

    kind: CodeKind
    number: int = 0
    """Another number is another world."""
    constants: dict[int, float] = field(default_factory=dict)
    """The numbers whose codes were made, by code."""
    allowed: Collection[str] = ()
    """The names of the lemmas that may be used."""
    lifts_constants: bool = False
    """Whether the constants of a program are symbols, too. Otherwise what a program computes of constants is a number,
    rounded as it is."""
    lemmas: set[str] = field(default_factory=set)
    """The names of those that were used."""
    meanings: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """What ops mean in this world, by their name in PyTorch, where it is not what they mean in others."""
    casts_are_exact: bool = False
    """Whether, in `REALS`, a cast to 16 bits is the number itself. Otherwise it is an oracle of the type, so that
    arithmetic before a cast is not arithmetic after it."""
    held: dict[torch.dtype, Tensor] = field(default_factory=dict)
    """The codes of numbers that a 16-bit type has, in `REALS`: a cast to a wider type and back is the number itself."""

    def takes(self, lemma: str) -> bool:
        """Use a lemma, if it is allowed; return whether it is."""
        assert lemma in LEMMAS, lemma
        if lemma not in self.allowed:
            return False
        self.lemmas.add(lemma)
        return True

    def cast(self, codes: Tensor, before: torch.dtype, after: torch.dtype) -> Tensor:
        """A cast of floats, over the reals."""
        if before in _NARROW:
            known = self.held.get(before)
            self.held[before] = codes.flatten() if known is None else torch.cat([known, codes.flatten()]).unique()
        if after not in _NARROW or self.casts_are_exact:
            return codes.clone()
        constants = [code for code, value in self.constants.items() if float(torch.tensor(value, dtype=after)) == value]
        held = self.held.get(after, torch.tensor([], dtype=torch.int64))
        exact = torch.isin(codes, torch.cat([held, torch.tensor(constants, dtype=torch.int64)])) | (codes >= P)
        return torch.where(exact, codes, self.oracle(("round", str(after)), codes))

    # ---- codes ---------------------------------------------------------------------------------

    def oracle(self, function: object, *operands: Tensor) -> Tensor:
        """A code for each element of codes that broadcast."""
        parts = np.broadcast_arrays(*(np.atleast_1d(operand.numpy()) for operand in operands))
        shape = torch.broadcast_shapes(*(operand.shape for operand in operands))
        bits = np.full(shape or (1,), _seed(self.number, self.kind.value, function), np.uint64)
        with np.errstate(over="ignore"):
            for part in parts:
                bits = _mixed(bits * np.uint64(0x9E3779B97F4A7C15) + part.astype(np.uint64))
        if self.kind is CodeKind.REALS:
            return torch.from_numpy(np.asarray(bits % np.uint64(P)).astype(np.int64).reshape(shape))
        return torch.from_numpy(np.asarray(bits >> np.uint64(1)).astype(np.int64).reshape(shape))

    def symbols(self, name: object, shape: Sequence[int]) -> Tensor:
        """New codes for an input."""
        count = math.prod(shape)
        return self.oracle(("input", name), torch.arange(count)).reshape(tuple(shape))

    def numbers(self, values: Tensor) -> Tensor:
        """The codes of constants."""
        flat = [self.number_of(value) for value in values.reshape(-1).to(torch.float64).tolist()]
        return torch.tensor(flat, dtype=torch.int64).reshape(values.shape)

    def number_of(self, value: float) -> int:
        """The code of a constant."""
        value = float(value)
        if math.isnan(value):
            return _NAN
        if math.isinf(value):
            return _NAMES[value] if self.kind is CodeKind.REALS else _NAMES[math.inf] | (SIGN if value < 0 else 0)
        code = self._bits_of(value) if self.kind is CodeKind.BITS else self._real(value)
        self.constants[code] = value
        return code

    def _bits_of(self, value: float) -> int:
        return (_seed("constant", struct.pack("<d", abs(value))) >> 1 & ~SIGN) | (SIGN * (math.copysign(1, value) < 0))

    def _real(self, value: float) -> int:
        """A rational number of the field; a fraction or a root that was rounded to 16 or 32 bits is itself."""
        exact = Fraction(value)
        if exact.denominator <= 2**12:
            return exact.numerator % P * pow(exact.denominator, -1, P) % P
        decimal = Fraction(str(np.float32(value)))  # 1e-05 of the type f32 is 1/100000
        if len(str(decimal.numerator)) + len(str(decimal.denominator)) <= _DIGITS:
            return decimal.numerator % P * pow(decimal.denominator, -1, P) % P
        square = Fraction(f"{value * value:.6g}")
        is_short = len(str(square.numerator)) + len(str(square.denominator)) <= _DIGITS_OF_SQUARE
        if value > 0 and is_short and abs(square - exact**2) <= square * Fraction(3, 10**7):
            return int(self.root(torch.tensor(self._real(float(square)))))  # the root of 1e-05, or of 2
        near = exact.limit_denominator(_SIMPLE)
        if near and abs(near - exact) <= abs(exact) * Fraction(1, 2**20):
            return near.numerator % P * pow(near.denominator, -1, P) % P
        # a number without a short name: the same code for all its roundings, and the inverse for its inverse
        sign, size = (-1 if value < 0 else 1), abs(value)
        code = _seed(self.number, "irrational", f"{max(size, 1 / size):.5e}") % P
        return sign * (code if size >= 1 else pow(code, -1, P)) % P

    def negated(self, codes: Tensor) -> Tensor:
        """The numbers with the other sign, in a world of bits."""
        return torch.where(codes == _NAN, codes, codes ^ SIGN)

    # ---- arithmetic of the field ---------------------------------------------------------------

    def inverse(self, codes: Tensor) -> Tensor:
        """The inverse of each number; that of 0 is a symbol."""
        made = self._power(codes, P - 2)
        return torch.where(codes == 0, self.oracle("1 / 0", codes), made)

    def is_positive(self, codes: Tensor) -> Tensor:
        """Whether numbers count as positive: half of them do, and the signs of factors multiply to the sign of the
        product.

        They are the squares of the field. As `P` is 3 modulo 4, of a number and its negative one is a square.
        """
        return self._power(codes, (P - 1) // 2) == 1

    def root(self, codes: Tensor) -> Tensor:
        """The square root of each number, `sqrt(x y) = sqrt(x) sqrt(y)` where one of them is positive, and the positive
        root of a square. That of a negative number is a symbol times the root of its negative."""
        finite = codes < P
        made = self._power(torch.where(finite, codes, torch.zeros_like(codes)), (P + 1) // 4)
        other = self.oracle("root of -1", torch.tensor(0)) % P
        made = torch.where(self.is_positive(codes) | (codes == 0), made, made * other % P)
        return torch.where(finite, made, self.oracle("root", codes))

    def _power(self, codes: Tensor, exponent: int) -> Tensor:
        made, base = torch.ones_like(codes), codes % P
        while exponent:
            if exponent & 1:
                made = made * base % P
            base, exponent = base * base % P, exponent >> 1
        return made

    def arithmetic(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """`add`, `sub`, `mul` or `div` of finite numbers; with an infinity or NaN among them, a symbol."""
        if name == "add":
            made = (x + y) % P
        elif name == "sub":
            made = (x - y) % P
        elif name == "mul":
            made = x * y % P
        else:
            made = x * self.inverse(torch.where(y >= P, torch.ones_like(y), y)) % P
        wild = (x >= P) | (y >= P)
        if not bool(wild.any()):
            return made
        if name in ("add", "mul"):
            x, y = torch.broadcast_tensors(x, y)
            x, y = torch.minimum(x, y), torch.maximum(x, y)
        special = self.oracle((name, "not finite"), x, y)
        if name == "add":  # a number and an infinity
            special = torch.where((x < P) & (y > P), y, special)
        return torch.where(wild, special, made)

    # ---- order ---------------------------------------------------------------------------------

    def keys(self, codes: Tensor) -> Tensor:
        """Numbers that are ordered as the codes are; constants are ordered by their values, NaN is NaN."""
        if self.kind is CodeKind.BITS:
            size = codes & ~SIGN
            drawn = self.oracle("order", size)
            keys = (drawn % 13 - 6).to(torch.float64)
            keys[drawn // 16 % 8 == 0] = math.nan
            known = {code & ~SIGN: abs(value) for code, value in self.constants.items()}
            keys = _replaced(keys, size, {**known, _NAMES[math.inf]: math.inf, _NAN: math.nan})
            return torch.where(codes & SIGN != 0, -keys, keys)
        keys = codes.to(torch.float64)
        keys = torch.where(keys > P // 2, keys - P, keys) / 2**26
        infinities = {code: value for value, code in _NAMES.items()}
        return _replaced(keys, codes, {0: 0.0, **self.constants, **infinities, _NAN: math.nan})


def _replaced(keys: Tensor, codes: Tensor, known: Mapping[int, float]) -> Tensor:
    """The keys; each known number gets its value as key in place of a random one."""
    for code, value in known.items():
        keys = torch.where(codes == code, torch.tensor(value, dtype=torch.float64), keys)
    return keys
