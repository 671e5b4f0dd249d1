"""The gated delta rule of linear attention as a composite."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import Rejected, composites, example, formula
from patterns_catalog.composites.attention import repeat_heads
from patterns_catalog.recover.chunks import CHUNK, NOT_FINITE, Decays, at_last, in_chunks, mask
from patterns_catalog.recover.forward_substitution import unit_lower_inverse

L2_EPSILON = 1e-6


@composites.define
@composite(
    "gated_delta_update",
    inputs=("query", "key", "value", "g", "beta", "initial_state"),
    attributes=("use_qk_l2_norm",),
    outputs=("output_0", "output_1"),
)
def gated_delta_update(
    c: Coreai, query: Value, key: Value, value: Value, g: Value, beta: Value, initial_state: Value, *,
    use_qk_l2_norm: bool,
) -> list[Value]:  # fmt: skip
    """S = exp(g) S; S = S + k ⊗ beta (v - k S); output = q / sqrt(key size) S, for each element of the sequence.

    Queries and keys `[batch, key heads, sequence, key size]`, values `[batch, heads, sequence, value size]`, g and beta
    `[batch, heads, sequence]`, the state S `[batch, heads, key size, value size]`; computed in float32. The outputs
    `[batch, sequence, heads, value size]` and the last state (Yang et al. 2024, arXiv:2412.06464).
    """
    return _updated(c, query, key, value, g, beta, initial_state, use_qk_l2_norm)


@composites.define
@composite(
    "kimi_delta_update",
    inputs=("query", "key", "value", "g", "beta", "initial_state"),
    attributes=("use_qk_l2_norm",),
    outputs=("output_0", "output_1"),
)
def kimi_delta_update(
    c: Coreai, query: Value, key: Value, value: Value, g: Value, beta: Value, initial_state: Value, *,
    use_qk_l2_norm: bool,
) -> list[Value]:  # fmt: skip
    """The gated delta rule whose decay is a number for each element of a key, g `[batch, heads, sequence, key size]`.

    The others are those of `gated_delta_update`; the normalization is computed in float32, too (Kimi delta attention,
    2025, arXiv:2510.26692).
    """
    wide = c.cast(query, "f32"), c.cast(key, "f32")
    outputs = _updated(c, *wide, value, g, beta, initial_state, use_qk_l2_norm)
    return [c.cast(x, query.element_type) for x in outputs]


def _updated(
    c: Coreai, query: Value, key: Value, value: Value, g: Value, beta: Value, initial_state: Value, use_qk_l2_norm: bool
) -> list[Value]:
    """The rule for decays of either rank."""
    element, heads = query.element_type, value.shape[1]
    width = query.shape[-1]
    if heads is None or not width:
        raise Rejected("the gated delta rule needs a static number of heads, and keys of a static width of at least 1")
    query, key, value, g, beta, state = (c.cast(x, "f32") for x in (query, key, value, g, beta, initial_state))
    if use_qk_l2_norm:  # in float32: the square of 256 is infinite in float16
        query, key = _normalized(c, query), _normalized(c, key)
    query = c.broadcasting_mul(query, width**-0.5)
    query, key = repeat_heads(c, query, heads), repeat_heads(c, key, heads)
    beta = c.expand_dims(beta, [3])

    def step(parts: Sequence[Value], state: Value) -> tuple[Value, Value]:
        """One token."""
        query, key, value, g, beta = parts
        kept = c.exp(c.transpose(g, [0, 1, 3, 2]) if g.rank == 4 else c.expand_dims(g, [3]))
        state = c.broadcasting_mul(state, kept)
        error = c.broadcasting_sub(value, c.broadcasting_batch_matmul(key, state))
        column = c.transpose(key, [0, 1, 3, 2])
        state = c.broadcasting_add(state, c.broadcasting_mul(column, c.broadcasting_mul(error, beta)))
        return c.broadcasting_batch_matmul(query, state), state

    def chunk(parts: Sequence[Value], state: Value) -> tuple[Value, Value]:
        """Some tokens. What each writes depends on what the tokens before it write: the inverse of a triangular matrix
        solves this (Yang et al. 2024, arXiv:2406.06484)."""
        query, key, value, g, beta = parts
        decays = Decays(c, g)
        overlap = decays.products(c.broadcasting_mul(key, beta), key)
        remembered = c.broadcasting_batch_matmul(c.broadcasting_mul(key, decays.before), state)
        error = c.broadcasting_mul(c.broadcasting_sub(value, remembered), beta)
        inverse = unit_lower_inverse(c, overlap, CHUNK, partial(mask, c, g))
        delta = c.broadcasting_batch_matmul(inverse, error)
        scores = decays.products(query, key)
        held = c.broadcasting_batch_matmul(c.broadcasting_mul(query, decays.before), state)
        output = c.broadcasting_add(held, c.broadcasting_batch_matmul(scores, delta))
        kept = c.transpose(c.broadcasting_mul(key, decays.at_end), [0, 1, 3, 2])
        state = c.broadcasting_mul(state, c.transpose(at_last(c, decays.before), [0, 1, 3, 2]))
        return output, c.broadcasting_add(state, c.broadcasting_batch_matmul(kept, delta))

    one = value.shape[2] == 1
    outputs, state = in_chunks(c, [query, key, value, g, beta], value, state, step if one else chunk)
    return [c.cast(c.transpose(outputs, [0, 2, 1, 3]), element), c.cast(state, element)]


def _normalized(c: Coreai, x: Value) -> Value:
    square = c.reduce_sum(c.broadcasting_mul(x, x), [3])
    return c.broadcasting_mul(x, c.rsqrt(c.broadcasting_add(square, L2_EPSILON)))


@formula("recover", "torch_patcomp.gated_delta_update", name="gated_delta_update of the operator",
         unspecified=NOT_FINITE, examples=[
    example("1x2x3x4xf32", "1x2x3x4xf32", "1x4x3x5xf32", "1x4x3xf32[-1,0]", "1x4x3xf32[0,1]", "1x4x4x5xf32", True),
])  # fmt: skip
def own_gated_delta_update(
    c: Coreai, query: Value, key: Value, value: Value, g: Value, beta: Value, initial_state: Value,
    use_qk_l2_norm: bool,
) -> list[Value]:  # fmt: skip
    "S = exp(g) S; S = S + k ⊗ beta (v - k S); output = q S, for each element: the operator of patcomp"
    inputs = query, key, value, g, beta, initial_state
    return gated_delta_update(*inputs, use_qk_l2_norm=use_qk_l2_norm)  # type: ignore[no-any-return]


@formula("recover", "torch_patcomp.kimi_delta_update", name="kimi_delta_update", unspecified=NOT_FINITE, examples=[
    example("1x2x3x4xf32", "1x2x3x4xf32", "1x4x3x5xf32", "1x4x3x4xf32[-1,0]", "1x4x3xf32[0,1]", "1x4x4x5xf32", True),
])  # fmt: skip
def own_kimi_delta_update(
    c: Coreai, query: Value, key: Value, value: Value, g: Value, beta: Value, initial_state: Value,
    use_qk_l2_norm: bool,
) -> list[Value]:  # fmt: skip
    "The gated delta rule with a decay for each element of a key: the operator of patcomp"
    inputs = query, key, value, g, beta, initial_state
    return kimi_delta_update(*inputs, use_qk_l2_norm=use_qk_l2_norm)  # type: ignore[no-any-return]
