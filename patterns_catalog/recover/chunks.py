"""Recurrences over a sequence, computed in chunks of tokens: products of matrices within each chunk, and the state from
chunk to chunk.

A sequence `[batch, heads, sequence, ...]` may have any length. The last chunk has 1 to `CHUNK` tokens and is no part of
the loop over the others, so that one token needs no iteration of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patterns_catalog.recover.forward_substitution import lower_halves
from patterns_catalog.sizes import END, Size, plus, size_of, sizes_of, typed
from patterns_catalog.slices import slice_axis, update_axis

CHUNK = 32
"""Tokens of a chunk. Larger chunks need fewer iterations, and more products within a chunk."""

NOT_FINITE = dict.fromkeys(
    ("infinities and zeros", "NaN"), "in chunks, what is not finite at a token reaches the outputs before it, too"
)
"""What rules of recurrences leave open."""

_LEAST = -100.0
"""The least logarithm of a decay; its exponential is 0 beside any float32 number. Sums of larger ones would be
rounded."""

Chunk = Callable[[Sequence[Value], Value], tuple[Value, Value]]
"""From the elements of the sequences and the state to the outputs and the next state."""


def in_chunks(
    c: Coreai, sequences: Sequence[Value], outputs_like: Value, state: Value, chunk: Chunk,
    sizes: Sequence[int] = (CHUNK,),
) -> list[Value]:  # fmt: skip
    """The outputs `[batch, heads, sequence, size]` of all tokens, and the last state.

    Args:
        sequences: their axis of tokens is 2.
        outputs_like: the sequence that has the shape of the outputs.
        state: before the first token.
        chunk: computes up to `sizes[0]` tokens.
        sizes: of the chunks of each loop, the largest first; each loop leaves 1 to that many tokens.
    """
    length = size_of(c, outputs_like, 2)
    if isinstance(length, int) and length <= sizes[0]:
        return list(chunk(sequences, state))

    def part(x: Value, start: Size, end: Size, size: int | None) -> Value:
        return typed(c, slice_axis(c, x, 2, start, end), (*x.shape[:2], size, *x.shape[3:]))

    def loop(start: Size, last: Size, size: int, state: Value, outputs: Value) -> list[Value]:
        """All chunks of a size from one token to another."""

        def body(start: Value, state: Value, outputs: Value) -> list[Value]:
            end = c.broadcasting_add(start, size)
            made, state = chunk([part(x, start, end, size) for x in sequences], state)
            return [end, state, update_axis(c, outputs, 2, start, end, made)]

        first = c.constant(start) if isinstance(start, int) else start
        return c.while_(
            [first, state, outputs], lambda start, state, outputs: c.broadcasting_greater(last, start), body
        )[1:]

    outputs = typed(c, c.broadcast_to(c.constant(0.0), sizes_of(c, outputs_like)), outputs_like.shape)
    last: Size = 0
    for size in sizes:
        start, last = last, _start_of_last(c, length, size)
        if last != start:
            state, outputs = loop(start, last, size, state, outputs)
    rest = length - last if isinstance(length, int) and isinstance(last, int) else 1 if sizes[-1] == 1 else None
    made, state = chunk([part(x, last, length, rest) for x in sequences], state)
    return [update_axis(c, outputs, 2, last, length, made), state]


def _start_of_last(c: Coreai, length: Size, size: int) -> Size:
    """The largest multiple of a size that is less than a length."""
    if isinstance(length, int):
        return (length - 1) // size * size
    before = plus(c, length, -1)
    return before if size == 1 else c.broadcasting_mul(c.broadcasting_floor_divide(before, size), size)


class Decays:
    """How much is left of what was written at a token of a chunk.

    Args:
        c: the namespace of Core AI.
        g: logarithms `[batch, heads, tokens]`, or `[batch, heads, tokens, key size]` if each element of a key has its
            own.
    """

    def __init__(self, c: Coreai, g: Value):
        self._c, self._g, self._by_element = c, g, g.rank == 4
        self._logarithms = c.broadcasting_maximum(g, _LEAST)
        passed = c.scan(self._logarithms, 2, False, scan_op="sum")
        self._passed = passed if self._by_element else c.expand_dims(passed, [3])
        self.before = c.exp(self._passed)
        """At each token, of the state before the chunk, `[batch, heads, tokens, 1 or key size]`."""
        self.at_end = c.exp(c.broadcasting_sub(at_last(c, self._passed), self._passed))
        """At the end of the chunk, of each token, `[batch, heads, tokens, 1 or key size]`."""
        self._levels = [self._level(size) for size in _SIZES] if self._by_element else []
        self._pairs = None if self._by_element else self._between()

    def products(self, rows: Value, columns: Value) -> Value:
        """What is left at each token of each token up to it, times the products of two vectors of the key size, and 0
        for later tokens: `[batch, heads, tokens, tokens]`."""
        c = self._c
        if self._pairs is not None:
            return c.broadcasting_mul(c.broadcasting_batch_matmul(rows, _swapped(c, columns)), self._pairs)
        nothing = c.constant(0.0, "f32")
        same = c.broadcasting_batch_matmul(rows, _swapped(c, columns))
        total = c.broadcasting_where(mask(c, self._g, np.eye(CHUNK, dtype=np.bool_)), same, nothing)
        for is_in, left in self._levels:
            kept = c.broadcasting_mul(rows, left), _swapped(c, c.broadcasting_mul(columns, left))
            each = c.broadcasting_batch_matmul(*kept)
            total = c.broadcasting_add(total, c.broadcasting_where(is_in, each, nothing))
        return total

    def _between(self) -> Value:
        """At each token, of each token up to it, and 0 for later ones, `[batch, heads, tokens, tokens]`."""
        c = self._c
        between = c.broadcasting_sub(self._passed, _swapped(c, self._passed))
        is_seen = mask(c, self._g, np.tri(CHUNK, dtype=np.bool_))
        return c.exp(c.broadcasting_where(is_seen, between, c.constant(-np.inf, "f32")))

    def _level(self, size: int) -> tuple[Value, Value]:
        """Pairs of a token in the second half of a block and one in its first half: which these are; and for each
        token, what is left at a token of the second half of what there was at the end of the first half, or at this
        end of what was written at a token of the first half.

        The product of both is what is left between the tokens, and neither overflows. Differences of sums over the
        chunk would be rounded where much was forgotten.
        """
        c, token = self._c, np.arange(CHUNK)
        ends = (token // (2 * size) * 2 * size + size - 1)[:, None]
        between = (np.minimum(token[:, None], ends) < token) & (token <= np.maximum(token[:, None], ends))
        sums = c.broadcasting_batch_matmul(mask(c, self._g, between.astype(np.float32)), self._logarithms)
        return mask(c, self._g, lower_halves(size, CHUNK)), c.exp(sums)


_SIZES = [2**power for power in range(CHUNK.bit_length() - 1)]
"""Of the halves of blocks within a chunk."""


def _swapped(c: Coreai, x: Value) -> Value:
    return c.transpose(x, [0, 1, 3, 2])


def mask(c: Coreai, g: Value, values: np.ndarray) -> Value:
    """The first rows and columns of a constant matrix, as many as `g` has tokens."""
    size = size_of(c, g, 2)
    if isinstance(size, int):
        return c.constant(values[:size, :size])
    return c.slice_(c.constant(values), [0, 0], [size, size], [1, 1])


def at_last(c: Coreai, x: Value) -> Value:
    """The last token's element of a sequence, whose axis of tokens stays."""
    return typed(c, slice_axis(c, x, 2, -1, END), (*x.shape[:2], 1, *x.shape[3:]))
