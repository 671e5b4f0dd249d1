"""Selective state spaces of Mamba-2 as a composite."""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import Rejected, composites, example, formula
from patterns_catalog.composites.attention import repeat_heads
from patterns_catalog.recover.chunks import NOT_FINITE, Decays, at_last, in_chunks


@composites.define
@composite("state_space_update", inputs=("values", "g", "b", "c", "initial_state"), outputs=("output_0", "output_1"))
def state_space_update(c: Coreai, values: Value, g: Value, b: Value, asked: Value, initial_state: Value) -> list[Value]:
    """S = exp(g) S + values ⊗ b; output = S c, for each element of the sequence.

    Values `[batch, heads, sequence, head size]`, times the step size, g `[batch, heads, sequence]`, b and c `[batch,
    groups, sequence, state size]`, the state S `[batch, heads, head size, state size]`; computed in float32. The
    outputs `[batch, sequence, heads, head size]` and the last state (Dao and Gu 2024, arXiv:2405.21060).
    """
    element, heads = values.element_type, values.shape[1]
    if heads is None:
        raise Rejected("state spaces need a static number of heads")
    values, g, b, asked, state = (c.cast(x, "f32") for x in (values, g, b, asked, initial_state))
    b, asked = repeat_heads(c, b, heads), repeat_heads(c, asked, heads)

    def chunk(parts: Sequence[Value], state: Value) -> tuple[Value, Value]:
        values, g, b, asked = parts
        decays = Decays(c, g)
        scores = decays.products(asked, b)
        held = c.broadcasting_batch_matmul(asked, c.transpose(state, [0, 1, 3, 2]))
        output = c.broadcasting_add(
            c.broadcasting_mul(held, decays.before), c.broadcasting_batch_matmul(scores, values)
        )
        kept = c.transpose(c.broadcasting_mul(values, decays.at_end), [0, 1, 3, 2])
        state = c.broadcasting_mul(state, at_last(c, decays.before))
        return output, c.broadcasting_add(state, c.broadcasting_batch_matmul(kept, b))

    outputs, state = in_chunks(c, [values, g, b, asked], values, state, chunk)
    return [c.cast(c.transpose(outputs, [0, 2, 1, 3]), element), c.cast(state, element)]


@formula("recover", "torch_patcomp.state_space_update", name="state_space_update", unspecified=NOT_FINITE, examples=[
    example("1x4x3x5xf32", "1x4x3xf32[-1,0]", "1x2x3x6xf32", "1x2x3x6xf32", "1x4x5x6xf32"),
])  # fmt: skip
def own_state_space_update(
    coreai: Coreai, values: Value, g: Value, b: Value, c: Value, initial_state: Value
) -> list[Value]:  # fmt: skip
    "S = exp(g) S + values ⊗ b; output = S c, for each element of the sequence: the operator of patcomp"
    return state_space_update(values, g, b, c, initial_state)  # type: ignore[no-any-return]
