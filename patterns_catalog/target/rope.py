"""Rotary embeddings as plain ops, which a device without the composite computes."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.recover.rope import rope


@op_rule("target", rope, name="rope as plain ops", targets=("neural_engine",), examples=[
    example("1x2x5x8xf32", "1x1x5x4xf32", "1x1x5x4xf32", program=lambda torch, x, cos, sin: (
        x * torch.cat([cos, cos], -1) + torch.cat([-x[..., 4:], x[..., :4]], -1) * torch.cat([sin, sin], -1))),
])  # fmt: skip
def rope_as_plain_ops(op: OpView, c: Coreai) -> Value:
    "[x1 cos - x2 sin, x1 sin + x2 cos] with slices and a concat"
    options = {name: op[name] for name in ("scale", "base", "dims", "interleaved")}
    made = rope.body(c, op.input, op.cos, op.sin, op.position_ids, op.freqs, **options)
    assert isinstance(made, Value)
    return made
