"""Norms that are no composites."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.composites.normalization import FOLDED, compute_type
from patterns_catalog.sizes import size_of


@lowering("aten.instance_norm", name="instance_norm by given statistics", unspecified=FOLDED, examples=[
    example("2x4x5xf32", "4xf32", None, "4xf32", "4xf32[0.5,2]", False, 0.1, 1e-5, False),
])  # fmt: skip
def instance_norm(op: OpView, c: Coreai) -> Value:
    "(x - mean) * rsqrt(var + eps) * weight + bias for each channel"
    x, mean, variance = op.input, op.running_mean, op.running_var
    op.ignore("momentum", "cudnn_enabled", because="they concern training, and how PyTorch computes it")
    op.expect(not op.use_input_stats, "instance norm updates its running statistics; export the model in eval mode")
    op.expect(mean is not None and variance is not None, "instance norm without use_input_stats needs statistics")
    op.expect(x.rank > 2, "an instance norm needs an input of rank 3 or more")
    wide = c.cast(x, compute_type(x))

    def per_channel(value: Value) -> Value:
        return c.reshape(c.cast(value, wide.element_type), [size_of(c, value, 0), *([1] * (x.rank - 2))])

    deviation = c.rsqrt(c.broadcasting_add(per_channel(variance), op.eps))
    made = c.broadcasting_mul(c.broadcasting_sub(wide, per_channel(mean)), deviation)
    if op.weight is not None:
        made = c.broadcasting_mul(made, per_channel(op.weight))
    if op.bias is not None:
        made = c.broadcasting_add(made, per_channel(op.bias))
    return c.cast(made, x.element_type)
