"""Matrix products and convolutions."""

from __future__ import annotations

import torch
from torch.nn import functional

from patcomp.ir.evaluate.element_types import integer_range, is_integer, widen
from patcomp.ir.evaluate.registry import Call, implements, integers

_SINGLE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def _accumulated(tensor: torch.Tensor) -> torch.Tensor:
    """The dtype that products are summed in: f16 and bf16 in f32."""
    wide = widen(tensor)
    return wide.to(_SINGLE.get(wide.dtype, wide.dtype))


@implements("coreai.batch_matmul", "coreai.decomposable.broadcasting_batch_matmul")
def batch_matmul(call: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    product = torch.matmul(_accumulated(x), _accumulated(y))
    element = call.element()
    if is_integer(element) and element not in ("si64", "ui64"):
        low, high = integer_range(element)
        if bool(((product < low) | (product > high)).any()):
            raise call.error(f"the product overflows {element}")
    return call.result(product)


@implements("coreai.conv2d", "coreai.conv3d")
def conv(
    call: Call,
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: torch.Tensor,
    dilation: torch.Tensor,
    groups: torch.Tensor,
) -> torch.Tensor:
    function = functional.conv2d if x.dim() == 4 else functional.conv3d
    return call.result(
        function(
            _accumulated(x),
            _accumulated(weight),
            stride=integers(stride),
            dilation=integers(dilation),
            groups=integers(groups)[0],
        )
    )


@implements("coreai.conv_transpose2d", "coreai.conv_transpose3d")
def conv_transpose(
    call: Call,
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: torch.Tensor,
    padding: torch.Tensor,
    dilation: torch.Tensor,
    output_padding: torch.Tensor,
    groups: torch.Tensor,
) -> torch.Tensor:
    function = functional.conv_transpose2d if x.dim() == 4 else functional.conv_transpose3d
    return call.result(
        function(
            _accumulated(x),
            _accumulated(weight),
            stride=integers(stride),
            padding=integers(padding),
            dilation=integers(dilation),
            output_padding=integers(output_padding),
            groups=integers(groups)[0],
        )
    )
