"""Batch normalisation folded into the convolution before it. The rule applies only if a user passes it:

    from patterns_catalog.optional import convolution
    program = TorchConverter(catalog=[convolution]).add_exported_program(exported).to_coreai()

It is not a default rule: a folded model has no `batch_norm` composite, its weights are computed anew and copied, and
its numbers differ in rounding. The rule runs in the recover stage, while the batch normalisation is still one op.
"""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai, aten
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.views import arguments_of


@op_rule(
    "recover", "aten._native_batch_norm_legit_no_training", name="fold batch_norm into convolution",
    examples=[example("2x3x4x5xf32", "3xf32", "3xf32", "3xf32", "3xf32[0.5,2]", 0.1, 1e-5)],
)  # fmt: skip
def fold_batch_norm(op: OpView, c: Coreai) -> list[Value | None]:
    "(x * w + b - mean) / sqrt(variance + eps) * gamma + beta is x * (w s) + (b - mean) s + beta, s = gamma / sqrt(...)"
    op.expect(not op.used(1) and not op.used(2), "the saved statistics are used; export the model in eval mode")
    op.ignore("momentum", because="it only concerns training")
    given = arguments_of(op.input, "convolution")
    if given is None:
        op.reject("the input of batch norm is not the result of a convolution")
    op.expect(op.input.is_read_once, "the convolution is also used elsewhere")
    op.expect(not given["transposed"], "a transposed convolution has its output channels on another axis")
    weight = _values(op, given["weight"], None)
    channels = weight.shape[0]
    mean = _values(op, op.running_mean, None)
    factor = _values(op, op.weight, np.ones(channels)) / np.sqrt(_values(op, op.running_var, None) + op.eps)
    shift = (_values(op, given["bias"], np.zeros(channels)) - mean) * factor + _values(op, op.bias, np.zeros(channels))
    folded = weight * factor.reshape(-1, *([1] * (weight.ndim - 1)))
    given["weight"], given["bias"] = (c.constant(values.astype(np.float32)) for values in (folded, shift))
    result = aten.convolution(op.result, **given)
    return [result, None, None]


def _values(op: OpView, value: Value | None, default: np.ndarray | None) -> np.ndarray:
    """The values of a weight in float64, in which the folding does not round."""
    if value is None:
        assert default is not None
        return default
    values = constant_values(value.ssa, Builder.current().blobs)
    if values is None or value.dtype != "f32":
        op.reject("the weights must be float32 constants")
    return values.astype(np.float64)
