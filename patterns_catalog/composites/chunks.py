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


def in_chunks(c: Coreai, sequences: Sequence[Value], outputs_like: Value, state: Value, chunk: Chunk) -> list[Value]:
    """The outputs `[batch, heads, sequence, size]` of all tokens, and the last state.

    Args:
        sequences: their axis of tokens is 2.
        outputs_like: the sequence that has the shape of the outputs.
        state: before the first token.
        chunk: computes up to `CHUNK` tokens.
    """
    length = size_of(c, outputs_like, 2)
    if isinstance(length, int) and length <= CHUNK:
        return list(chunk(sequences, state))
    last = _start_of_last(c, length)

    def part(x: Value, start: Size, end: Size, size: int | None) -> Value:
        return typed(c, slice_axis(c, x, 2, start, end), (*x.shape[:2], size, *x.shape[3:]))

    def body(start: Value, state: Value, outputs: Value) -> list[Value]:
        end = c.broadcasting_add(start, CHUNK)
        made, state = chunk([part(x, start, end, CHUNK) for x in sequences], state)
        return [end, state, update_axis(c, outputs, 2, start, end, made)]

    none_yet = c.broadcast_to(c.constant(0.0), sizes_of(c, outputs_like))
    _, state, outputs = c.while_(
        [c.constant(0), state, typed(c, none_yet, outputs_like.shape)],
        lambda start, state, outputs: c.broadcasting_greater(last, start),
        body,
    )
    rest = length - last if isinstance(length, int) and isinstance(last, int) else None
    made, state = chunk([part(x, last, length, rest) for x in sequences], state)
    return [update_axis(c, outputs, 2, last, length, made), state]


def _start_of_last(c: Coreai, length: Size) -> Size:
    """The largest multiple of `CHUNK` that is less than a length."""
    if isinstance(length, int):
        return (length - 1) // CHUNK * CHUNK
    return c.broadcasting_mul(c.broadcasting_floor_divide(plus(c, length, -1), CHUNK), CHUNK)


def decays(c: Coreai, g: Value) -> tuple[Value, Value, Value]:
    """How much is left of what was written at a token of a chunk, from logarithms `[batch, heads, tokens]`.

    Returns:
        At each token, of the state before the chunk, `[batch, heads, tokens, 1]`; at each token, of each token up to
        it, and 0 for later ones, `[batch, heads, tokens, tokens]`; at the end of the chunk, of each token, `[batch,
        heads, tokens, 1]`.
    """
    passed = c.expand_dims(c.scan(c.broadcasting_maximum(g, _LEAST), 2, False, scan_op="sum"), [3])
    between = c.broadcasting_sub(passed, c.transpose(passed, [0, 1, 3, 2]))
    is_seen = mask(c, g, np.tri(CHUNK, dtype=np.bool_))
    pairs = c.exp(c.broadcasting_where(is_seen, between, c.constant(-np.inf, "f32")))
    return c.exp(passed), pairs, c.exp(c.broadcasting_sub(at_last(c, passed), passed))


def mask(c: Coreai, g: Value, values: np.ndarray) -> Value:
    """The first rows and columns of a constant matrix, as many as `g` has tokens."""
    size = size_of(c, g, 2)
    if isinstance(size, int):
        return c.constant(values[:size, :size])
    return c.slice_(c.constant(values), [0, 0], [size, size], [1, 1])


def at_last(c: Coreai, x: Value) -> Value:
    """The last token's element of a sequence, whose axis of tokens stays."""
    return typed(c, slice_axis(c, x, 2, -1, END), (*x.shape[:2], 1, *x.shape[3:]))
