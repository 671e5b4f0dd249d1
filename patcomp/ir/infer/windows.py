"""Result types of matrix products, convolutions, pools and resizing."""

from __future__ import annotations

from patcomp.ir.infer.common import InferredOp, broadcast_shapes, compatible, inference, merge, require, shape_text
from patcomp.ir.types import Shape
from patcomp.ir.xdsl import Attribute


@inference
def _matmul(op: InferredOp) -> list[Attribute]:
    x, y = op.shapes()
    require(
        len(x) >= 2 and len(y) >= 2, f"a matrix product needs rank 2 or more, got {shape_text(x)} and {shape_text(y)}"
    )
    require(compatible(x[-1:], y[-2:-1]), f"inner dimensions of {shape_text(x)} and {shape_text(y)} differ")
    if op.row.name == "batch_matmul":
        require(compatible(x[:-2], y[:-2]), f"batch dimensions of {shape_text(x)} and {shape_text(y)} differ")
        batch = merge(x[:-2], y[:-2])
    else:
        batch = broadcast_shapes(x[:-2], y[:-2])
    return op.result((*batch, x[-2], y[-1]))


def _window(dim: int | None, kernel: int | None, stride: int, dilation: int, *, ceil: bool = False) -> int | None:
    if dim is None or kernel is None:
        return None
    span = dim - dilation * (kernel - 1) - 1
    require(span >= 0, f"a window of {dilation * (kernel - 1) + 1} does not fit a dimension of {dim}")
    steps = -(-span // stride) if ceil else span // stride
    if ceil and steps * stride >= dim:
        steps -= 1  # the last window must start inside the input, as in PyTorch
    return steps + 1


def _shapes(op: InferredOp) -> tuple[Shape, Shape]:
    """The shapes of a convolution's input and weight."""
    x, weight = op.shape(), op.shape(1)
    require(len(x) == len(weight), f"the input has {len(x)} dimensions, the weight {len(weight)}")
    return x, weight


@inference
def _conv(op: InferredOp) -> list[Attribute]:
    x, weight = _shapes(op)
    count = len(x) - 2
    stride, dilation = op.sizes(2, count, "stride"), op.sizes(3, count, "dilation")
    groups = op.integers(4)
    if groups is not None:
        channels = None if weight[1] is None else weight[1] * groups[0]
        require(groups[0] > 0, "groups must be positive")
        require(
            compatible((x[1],), (channels,)),
            f"input has {x[1]} channels, the weight takes {weight[1]} in each of {groups[0]} groups",
        )
        require(
            weight[0] is None or weight[0] % groups[0] == 0, f"{weight[0]} filters do not split in {groups[0]} groups"
        )
    spatial: list[int | None] = [None] * count
    if stride is not None and dilation is not None:
        require(min(*stride, *dilation) > 0, "stride and dilation must be positive")
        spatial = [
            _window(dim, kernel, s, d) for dim, kernel, s, d in zip(x[2:], weight[2:], stride, dilation, strict=True)
        ]
    return op.result((x[0], weight[0], *spatial))


@inference
def _conv_transpose(op: InferredOp) -> list[Attribute]:
    x, weight = _shapes(op)
    count = len(x) - 2
    names = ("stride", "padding", "dilation", "output_pad")
    values = [op.sizes(operand, count, name) for operand, name in enumerate(names, start=2)]
    groups = op.integers(6)
    require(compatible(x[1:2], weight[:1]), f"input has {x[1]} channels, the weight takes {weight[0]}")
    channels = None if groups is None or weight[1] is None else weight[1] * groups[0]
    spatial: list[int | None] = [None] * count
    if all(value is not None for value in values):
        for i, (dim, kernel) in enumerate(zip(x[2:], weight[2:], strict=True)):
            s, p, d, o = (value[i] for value in values if value is not None)
            if dim is not None and kernel is not None:
                spatial[i] = (dim - 1) * s - 2 * p + d * (kernel - 1) + o + 1
                require(spatial[i] > 0, f"padding {p} leaves nothing of dimension {i}")  # type: ignore[operator]
    return op.result((x[0], channels, *spatial))


@inference
def _pool(op: InferredOp) -> list[Attribute]:
    x = op.shape()
    count = len(x) - 2
    kernel, stride, dilation = (
        op.sizes(operand, count, name) for operand, name in enumerate(("kernel", "stride", "dilation"), start=1)
    )
    ceil = op.integers(4) if len(op.operands) > 4 else (0,)
    spatial: list[int | None] = [None] * count
    if kernel is not None and stride is not None and dilation is not None and ceil is not None:
        require(min(*kernel, *stride, *dilation) > 0, "kernel, stride and dilation must be positive")
        spatial = [
            _window(dim, k, s, d, ceil=bool(ceil[0]))
            for dim, k, s, d in zip(x[2:], kernel, stride, dilation, strict=True)
        ]
    return op.result((*x[:2], *spatial))


@inference
def _interpolate(op: InferredOp) -> list[Attribute]:
    x = op.shape()
    size = op.sizes(1, len(x), "output_shape")
    for operand, name in enumerate(("scale", "offset"), start=2):
        require(op.length(operand) == len(x), f"{name} must have one value for each of the {len(x)} dimensions")
    return op.result(size if size is not None else (None,) * len(x))


@inference
def _interpolate_coordinates(op: InferredOp) -> list[Attribute]:
    x, coordinates = op.shape(), op.shape(1)
    require(compatible(coordinates[1:], (len(x),)), f"coordinates need {len(x)} columns")
    return op.result((coordinates[0],))
