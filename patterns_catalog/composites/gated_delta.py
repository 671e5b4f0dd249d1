"""The gated delta rule of linear attention as a composite."""

from __future__ import annotations

from collections.abc import Callable

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import composites
from patterns_catalog.composites.attention import repeat_heads

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
    element, heads = query.element_type, value.static_shape[1]
    batch, _, length, width = query.static_shape
    if use_qk_l2_norm:
        query, key = _normalized(c, query), _normalized(c, key)
    query = c.broadcasting_mul(c.cast(query, "f32"), width**-0.5)
    query, key = (_by_step(c, repeat_heads(c, x, heads)) for x in (query, key))
    value, strength = _by_step(c, value), _by_step(c, beta)
    decay = c.exp(_by_step(c, g))

    def update(state: Value, element_of: Callable[[Value], Value]) -> tuple[Value, Value]:
        """The output of one step and the next state, of the elements of the sequences at that step."""
        column = c.expand_dims(element_of(key), [3])
        state = c.broadcasting_mul(state, c.expand_dims(element_of(decay), [2, 3]))
        remembered = c.shrink_dims(c.reduce_sum(c.broadcasting_mul(state, column), [2]), [2])
        error = c.broadcasting_sub(element_of(value), remembered)
        delta = c.broadcasting_mul(error, c.expand_dims(element_of(strength), [2]))
        state = c.broadcasting_add(state, c.broadcasting_mul(column, c.expand_dims(delta, [2])))
        asked = c.broadcasting_mul(state, c.expand_dims(element_of(query), [3]))
        return c.shrink_dims(c.reduce_sum(asked, [2]), [2]), state

    def body(step: Value, state: Value, outputs: Value) -> list[Value]:
        at = c.expand_dims(step, [0])
        output, state = update(state, lambda sequence: c.gather_nd(sequence, at))
        outputs = c.scatter_nd(outputs, c.expand_dims(at, [0]), c.expand_dims(output, [0]))
        return [c.broadcasting_add(step, 1), state, outputs]

    state = c.cast(initial_state, "f32")
    if length == 1:  # the decode step of a language model needs no loop, and some devices run none
        output, state = update(state, lambda sequence: c.shrink_dims(sequence, [0]))
        return [c.cast(c.expand_dims(output, [1]), element), c.cast(state, element)]
    none_yet = c.broadcast_to(c.constant(0.0), [length, batch, heads, value.static_shape[-1]])
    _, state, outputs = c.while_(
        [c.constant(0), state, none_yet],
        lambda step, state, outputs: c.broadcasting_greater(c.constant(length), step),
        body,
    )
    return [c.cast(c.transpose(outputs, [1, 0, 2, 3]), element), c.cast(state, element)]


def _normalized(c: Coreai, x: Value) -> Value:
    square = c.reduce_sum(c.broadcasting_mul(x, x), [3])
    return c.broadcasting_mul(x, c.rsqrt(c.broadcasting_add(square, L2_EPSILON)))


def _by_step(c: Coreai, x: Value) -> Value:
    """float32 with the sequence in front, so that an index picks a step."""
    return c.transpose(c.cast(x, "f32"), [2, 0, 1, *range(3, x.rank)])
