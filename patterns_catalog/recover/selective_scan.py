"""Selective state spaces of Mamba as a composite."""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import Rejected, composites, example, formula
from patterns_catalog.recover.chunks import NOT_FINITE, in_chunks
from patterns_catalog.slices import slice_axis

_TOGETHER = 8
"""Tokens of an iteration, one after the other: each number of a state has a decay of its own, so that no products of
matrices compute several tokens at once."""


@composites.define
@composite(
    "selective_scan_update", inputs=("values", "steps", "slopes", "b", "c", "initial_state"),
    outputs=("output_0", "output_1"),
)  # fmt: skip
def selective_scan_update(
    c: Coreai, values: Value, steps: Value, slopes: Value, b: Value, asked: Value, initial_state: Value
) -> list[Value]:
    """S = exp(step slopes) S + step value ⊗ b; output = S c, for each element of the sequence.

    Values and steps `[batch, size, sequence]`, slopes `[size, state size]`, b and c `[batch, state size, sequence]`,
    the state S `[batch, size, state size]`; computed in float32. The outputs `[batch, size, sequence]` and the last
    state (Gu and Dao 2023, arXiv:2312.00752).
    """
    element = values.element_type
    values, steps, slopes, b, asked, state = (
        c.cast(x, "f32") for x in (values, steps, slopes, b, asked, initial_state)
    )
    # [batch, 1, sequence, ...], and the state [batch, 1, state size, size]
    sequences = [c.expand_dims(c.transpose(x, [0, 2, 1]), [1]) for x in (values, steps, b, asked)]
    state, slopes = c.expand_dims(c.transpose(state, [0, 2, 1]), [1]), c.transpose(slopes, [1, 0])

    def chunk(parts: Sequence[Value], state: Value) -> tuple[Value, Value]:
        """A known number of tokens."""
        length = parts[0].shape[2]
        if length is None:
            raise Rejected("selective state spaces are computed for a known number of tokens at once")
        outputs = []
        for token in range(length):
            value, step, b, asked = (slice_axis(c, x, 2, token, token + 1) for x in parts)
            decay = c.exp(c.broadcasting_mul(step, slopes))
            written = c.broadcasting_mul(c.broadcasting_mul(value, step), c.transpose(b, [0, 1, 3, 2]))
            state = c.broadcasting_add(c.broadcasting_mul(state, decay), written)
            outputs.append(c.broadcasting_batch_matmul(asked, state))
        return outputs[0] if length == 1 else c.concat(2, outputs), state

    outputs, state = in_chunks(c, sequences, sequences[0], state, chunk, sizes=(_TOGETHER, 1))
    return [c.cast(c.transpose(c.shrink_dims(x, [1]), [0, 2, 1]), element) for x in (outputs, state)]


@formula("recover", "torch_patcomp.selective_scan_update", name="selective_scan_update",
         unspecified=NOT_FINITE, examples=[
    example("1x4x3xf32", "1x4x3xf32[0,1]", "4x5xf32[-1,0]", "1x5x3xf32", "1x5x3xf32", "1x4x5xf32"),
])  # fmt: skip
def own_selective_scan_update(
    coreai: Coreai, values: Value, steps: Value, slopes: Value, b: Value, c: Value, initial_state: Value
) -> list[Value]:
    "S = exp(step slopes) S + step value ⊗ b; output = S c, for each element: the operator of patcomp"
    return selective_scan_update(values, steps, slopes, b, c, initial_state)  # type: ignore[no-any-return]
