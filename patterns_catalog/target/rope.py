"""Rotary embeddings as plain ops, which a device without the composite computes."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import example, formula
from patterns_catalog.composites.rope import rope


@formula("target", rope, name="rope as plain ops", targets=("neural_engine",), examples=[
    example("1x2x5x8xf32", "1x1x5x4xf32", "1x1x5x4xf32", program=lambda torch, x, cos, sin: (
        x * torch.cat([cos, cos], -1) + torch.cat([-x[..., 4:], x[..., :4]], -1) * torch.cat([sin, sin], -1))),
])  # fmt: skip
def rope_as_plain_ops(
    c: Coreai, input: Value, cos: Value, sin: Value, position_ids: Value, freqs: Value,
    scale: float, base: float, dims: int | None, interleaved: bool,
) -> Value:  # fmt: skip
    "[x1 cos - x2 sin, x1 sin + x2 cos] with slices and a concat"
    made = rope.body(
        c, input, cos, sin, position_ids, freqs, scale=scale, base=base, dims=dims, interleaved=interleaved
    )
    assert isinstance(made, Value)
    return made
