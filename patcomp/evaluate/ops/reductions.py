"""Reductions (dimensions stay as 1), softmax, sorting, scans, positions of non-zero elements."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from patcomp.evaluate.element_types import as_bits, fits, in_doubles, ordered, unordered, widen
from patcomp.evaluate.registry import EvaluatedOp, Implementation, axis_of, front_axes, implements
from patcomp.ir.types import BIT_WIDTHS, is_integer


def _reduced_axes(op: EvaluatedOp, x: Tensor, axes: Tensor) -> list[int]:
    result = front_axes(op, axes, x.dim())
    if not result:
        raise op.error("a reduction over no axes is undefined")
    return result


def _reduction(function: Callable[..., Tensor], *, ordering: bool = False) -> Implementation:
    """A reduction by a torch function; one that compares values works on `ordered` ones."""

    def implementation(op: EvaluatedOp, x: Tensor, axes: Tensor) -> Tensor:
        reduced = function((ordered if ordering else widen)(x), dim=_reduced_axes(op, x, axes), keepdim=True)
        return unordered(reduced, op.element()) if ordering else op.result(reduced)

    return implementation


implements("coreai.all")(_reduction(torch.all))
implements("coreai.any")(_reduction(torch.any))
implements("coreai.reduce_max")(_reduction(torch.amax, ordering=True))
implements("coreai.reduce_min")(_reduction(torch.amin, ordering=True))
implements("coreai.reduce_sum")(_reduction(torch.sum))
implements("coreai.reduce_mean")(_reduction(torch.mean))


@implements("coreai.reduce_product")
def reduce_product(op: EvaluatedOp, x: Tensor, axes: Tensor) -> Tensor:
    product = widen(x)
    for axis in _reduced_axes(op, x, axes):
        product = torch.prod(product, dim=axis, keepdim=True)
    return op.result(product)


@implements("coreai.argmax")
def argmax(op: EvaluatedOp, x: Tensor, axis: Tensor) -> Tensor:
    dim = axis_of(op, axis, x.dim())
    values = _without_nan(ordered(x), -torch.inf)
    # torch promises no order among ties; the runtime takes the first
    largest = values == torch.amax(values, dim=dim, keepdim=True)
    return op.result(torch.argmax(largest.to(torch.uint8), dim=dim, keepdim=True))


def _without_nan(values: Tensor, neutral: float) -> Tensor:
    """Where the runtime compares with `<` or `>`, a NaN never wins."""
    return torch.where(values.isnan(), neutral, values) if values.is_floating_point() else values


@implements("coreai.softmax")
def softmax(op: EvaluatedOp, x: Tensor, axis: Tensor) -> Tensor:
    return op.result(torch.softmax(widen(x), dim=axis_of(op, axis, x.dim())))


def _sorting_order(op: EvaluatedOp, x: Tensor, dim: int, descending: bool) -> Tensor:
    """The stable order along a dimension; NaN comes last in either direction."""
    values = ordered(x)
    if descending:
        values = _without_nan(values, -torch.inf)
        order = torch.argsort(values, dim=dim, descending=True, stable=True)
        if x.is_floating_point():
            # NaN went among the smallest: a second stable sort brings it behind a true minus infinity
            late = ordered(x).isnan().gather(dim, order)
            order = order.gather(dim, torch.argsort(late.to(torch.uint8), dim=dim, stable=True))
        return order
    return torch.argsort(values, dim=dim, stable=True)


@implements("coreai.sort")
def sort(op: EvaluatedOp, x: Tensor, dim: Tensor, descending: Tensor, stable: Tensor) -> Tensor:
    axis = axis_of(op, dim, x.dim())
    return as_bits(x).gather(axis, _sorting_order(op, x, axis, bool(descending))).view(x.dtype)


@implements("coreai.argsort")
def argsort(op: EvaluatedOp, x: Tensor, dim: Tensor, descending: Tensor, stable: Tensor) -> Tensor:
    return op.result(_sorting_order(op, x, axis_of(op, dim, x.dim()), bool(descending)))


_SCANS: dict[str, Callable[..., Tensor]] = {
    "sum": torch.cumsum,
    "product": torch.cumprod,
    "min": lambda x, dim: torch.cummin(x, dim).values,
    "max": lambda x, dim: torch.cummax(x, dim).values,
}


@implements("coreai.scan")
def scan(op: EvaluatedOp, x: Tensor, axis: Tensor, reverse: Tensor) -> Tensor:
    combiner = op.attribute("scan_op")
    dim = axis_of(op, axis, x.dim())
    if combiner in ("min", "max"):
        values = _without_nan(ordered(x), torch.inf if combiner == "min" else -torch.inf)
        return unordered(_scanned(values, combiner, dim, bool(reverse)), op.element())
    values = _scanned(widen(x), combiner, dim, bool(reverse))
    element = op.element()
    if is_integer(element):
        estimate = _scanned(in_doubles(x), combiner, dim, bool(reverse)) if BIT_WIDTHS[element] == 64 else None
        if not fits(values, element, estimate):
            raise op.error(f"the scan overflows {element}, which aborts the runtime")
    return op.result(values)


def _scanned(values: Tensor, combiner: str, dim: int, reverse: bool) -> Tensor:
    if reverse:
        values = torch.flip(values, [dim])
    values = _SCANS[combiner](values, dim=dim)
    return torch.flip(values, [dim]) if reverse else values


@implements("coreai.non_zero")
def non_zero(op: EvaluatedOp, x: Tensor) -> Tensor:
    return op.result(torch.nonzero(widen(x)))


@implements("coreai.reduce")
def reduce(op: EvaluatedOp, x: Tensor, axes: Tensor, init: Tensor) -> Tensor:
    dims = _reduced_axes(op, x, axes)
    kept = [dim for dim in range(x.dim()) if dim not in dims]
    rows = x.permute(*kept, *dims).reshape(*(x.shape[dim] for dim in kept), -1).flatten(0, -2)
    folded = []
    for row in rows.unbind(0):
        value = init
        for item in row.unbind(0):
            value = op.region(0, [value, item])[0]
        folded.append(value)
    return torch.stack(folded).reshape([1 if dim in dims else size for dim, size in enumerate(x.shape)])


@implements("coreai.reduce_index")
def reduce_index(op: EvaluatedOp, x: Tensor, axis: Tensor, init: Tensor, init_index: Tensor) -> Tensor:
    dim = axis_of(op, axis, x.dim())
    rows = x.movedim(dim, -1)
    found = []
    for row in rows.reshape(-1, rows.shape[-1]).unbind(0):
        value, index = init, int(init_index)
        for position, item in enumerate(row.unbind(0)):
            if bool(op.region(0, [value, item])[0]):
                value, index = item, position
        found.append(index)
    return op.result(torch.tensor(found).reshape([1 if d == dim else size for d, size in enumerate(x.shape)]))
