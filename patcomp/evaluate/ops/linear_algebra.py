"""Matrix products and convolutions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from patcomp.evaluate.element_types import accumulated, fits, in_doubles
from patcomp.evaluate.registry import EvaluatedOp, implements, integers
from patcomp.ir.types import BIT_WIDTHS, is_integer


@implements("coreai.batch_matmul", "coreai.decomposable.broadcasting_batch_matmul")
def batch_matmul(op: EvaluatedOp, x: Tensor, y: Tensor) -> Tensor:
    """Narrow floats are summed in f32 and rounded once; the Linux runtime rounds every partial sum of f16 and f8
    (`patcomp.evaluate.partial_sums`)."""
    product = torch.matmul(accumulated(x), op.machine.accumulated(y))
    element = op.element()
    if is_integer(element):
        estimate = torch.matmul(in_doubles(x), in_doubles(y)) if BIT_WIDTHS[element] == 64 else None
        if not fits(product, element, estimate):
            raise op.error(f"the product overflows {element}, which aborts the runtime")
    return op.result(product)


@implements("coreai.conv2d", "coreai.conv3d")
def conv(op: EvaluatedOp, x: Tensor, weight: Tensor, stride: Tensor, dilation: Tensor, groups: Tensor) -> Tensor:
    function = functional.conv2d if x.dim() == 4 else functional.conv3d
    return op.result(
        function(
            accumulated(x),
            accumulated(weight),
            stride=integers(stride),
            dilation=integers(dilation),
            groups=integers(groups)[0],
        )
    )


@implements("coreai.conv_transpose2d", "coreai.conv_transpose3d")
def conv_transpose(
    op: EvaluatedOp,
    x: Tensor,
    weight: Tensor,
    stride: Tensor,
    padding: Tensor,
    dilation: Tensor,
    output_padding: Tensor,
    groups: Tensor,
) -> Tensor:
    function = functional.conv_transpose2d if x.dim() == 4 else functional.conv_transpose3d
    return op.result(
        function(
            accumulated(x),
            accumulated(weight),
            stride=integers(stride),
            padding=integers(padding),
            dilation=integers(dilation),
            output_padding=integers(output_padding),
            groups=integers(groups)[0],
        )
    )
