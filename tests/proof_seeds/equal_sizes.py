"""Wrong rules that are right where sizes differ, or where two axes are exchanged, but not for a cycle of equal axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from patcomp.authoring import AtenSource, AtenTarget, CoreaiSource, CoreaiTarget
from patcomp.ir import coreai
from patcomp.ir.types import Shape
from patcomp.patterns import Attr, Capture, Const, Rewrite, call
from tests.proof_seeds.normalize import of_aten
from tests.proof_seeds.seeds import Function, Ops, of_coreai, seed

CUBE = {"x": "2x2x2xf32"}
ONCE = [1, 2, 0]


def _fits(shape: Shape, permutation: Sequence[int], other: Shape) -> bool:
    return [shape[axis] for axis in permutation] == list(other)


def _place_of(permutation: np.ndarray, axis: int) -> int:
    return int(np.argsort(permutation)[axis])


def _first_of_size(shape: Shape, axes: np.ndarray) -> np.ndarray:
    return np.array([shape.index(shape[int(axis)]) for axis in axes], axes.dtype)


@seed(
    "a cycle of three axes is not its own inverse",
    Ops(CUBE, lambda x: coreai.transpose(coreai.transpose(x, ONCE), ONCE)),
)
@of_coreai("optimize", {"x": "2x3xf32", "p": [1, 0]}, priority=9)
def transposed_twice(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const) -> Rewrite:
    "transpose(transpose(x, p), p) -> x where the types are equal"
    y = a.transpose(a.transpose(x, p), p)
    return Rewrite(y, to=x, where=[y.type == x.type])


@seed("axes of one size are exchanged", Ops(CUBE, lambda x: coreai.transpose(x, ONCE)))
@of_coreai("optimize", {"x": "1x3xf32", "p": [0, 1]}, priority=9)
def transposed_to_same_type(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const) -> Rewrite:
    "transpose(x, p) -> x where the types are equal"
    y = a.transpose(x, p)
    return Rewrite(y, to=x, where=[y.type == x.type])


@seed(
    "permutations do not commute",
    Ops(CUBE, lambda x: coreai.transpose(coreai.transpose(x, ONCE), [1, 0, 2])),
)
@of_coreai("optimize", {"x": "1x2x3xf32", "p": [0, 2, 1], "q": [0, 2, 1]}, priority=9)
def transposes_in_one(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, q: Const) -> Rewrite:
    "transpose(transpose(x, p), q) -> transpose(x, q[p])"
    y = a.transpose(a.transpose(x, p), q)
    return Rewrite(y, to=c.transpose(x, q.values[p.values]), where=[x.is_static])


@seed(
    "y must be moved by the inverse permutation",
    Ops({**CUBE, "y": "2x2x2xf32"}, lambda x, y: coreai.broadcasting_sub(coreai.transpose(x, ONCE), y)),
)
@of_coreai("optimize", {"x": "2x3xf32", "y": "3x2xf32", "p": [1, 0]}, priority=9)
def difference_moved_behind(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, p: Const) -> Rewrite:
    "transpose(x, p) - y -> transpose(x - transpose(y, p), p)"
    z = a.transpose(x, p) - y
    moved = c.transpose(y, p)
    fits = [z.type == y.type, y.is_static, call(_fits, y.shape, p.values, x.shape)]
    return Rewrite(z, to=c.transpose(c.broadcasting_sub(x, moved), p), where=fits)


@seed(
    "the axis of the operand is p[axis], not the place of axis in p",
    Ops(CUBE, lambda x: coreai.softmax(coreai.transpose(x, ONCE), 0)),
)
@of_coreai("optimize", {"x": "2x3xf32", "p": [1, 0], "axis": 1}, priority=9)
def softmax_before_transpose(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, axis: Const) -> Rewrite:
    "softmax(transpose(x, p), axis) -> transpose(softmax(x, p^-1[axis]), p)"
    y = a.softmax(a.transpose(x, p), axis)
    before = call(_place_of, p.values, axis.value)
    return Rewrite(y, to=c.transpose(c.softmax(x, before), p), where=[x.is_static])


@seed(
    "several axes have the size of the result",
    Ops(CUBE, lambda x: coreai.reverse(coreai.reverse(coreai.reverse(x, [1]), [1]), [1])),
)
@of_coreai("optimize", {"x": "2x3x4xf32", "axes": [1]}, priority=9)
def axis_found_by_size(a: CoreaiSource, c: CoreaiTarget, x: Capture, axes: Const) -> Rewrite:
    "reverse of reverse of reverse(x, axes) -> reverse(x, the first axes of these sizes)"
    y = a.reverse(a.reverse(a.reverse(x, axes), axes), axes)
    return Rewrite(y, to=c.reverse(x, call(_first_of_size, x.shape, axes.values)), where=[x.is_static])


@seed(
    "the elements of a transposed tensor have another order",
    Function(lambda x: x.permute(1, 2, 0).reshape(8), [torch.arange(8.0).view(2, 2, 2)]),
)
@of_aten({"x": "1x3xf32", "p": [0, 1], "s": [3]})
def flattened_without_permute(a: AtenSource, c: AtenTarget, x: Capture, p: Attr, s: Attr) -> Rewrite:
    "reshape(permute(x, p), s) -> reshape(x, s) where the types are equal"
    moved = a.permute(x, dims=p)
    return Rewrite(a.reshape(moved, shape=s), to=c.reshape(x, shape=s), where=[moved.type == x.type])


@seed(
    "a reshape to the same sizes does not undo a transpose",
    Function(lambda x: x.permute(1, 2, 0).reshape(2, 2, 2), [torch.arange(8.0).view(2, 2, 2)]),
)
@of_aten({"x": "1x2x3xf32", "p": [1, 0, 2], "s": [1, 2, 3]})
def view_of_same_sizes(a: AtenSource, c: AtenTarget, x: Capture, p: Attr, s: Attr) -> Rewrite:
    "reshape(permute(x, p), shape of x) -> x"
    y = a.reshape(a.permute(x, dims=p), shape=s)
    return Rewrite(y, to=x, where=[y.type == x.type])


@seed(
    "the inverse of a permutation undoes it, and the permutation itself does not",
    Function(lambda x: x.permute(1, 2, 0).relu().permute(1, 2, 0), [torch.arange(8.0).view(2, 2, 2)]),
)
@of_aten({"x": "2x3xf32", "p": [1, 0]})
def permuted_around_an_op(a: AtenSource, c: AtenTarget, x: Capture, p: Attr) -> Rewrite:
    "permute(relu(permute(x, p)), p) -> relu(x) where the types are equal"
    y = a.permute(a.relu(a.permute(x, dims=p)), dims=p)
    return Rewrite(y, to=c.relu(x), where=[y.type == x.type])


@seed(
    "sums over axes of one size differ",
    Function(lambda x: x.transpose(0, 1).sum(0), [torch.arange(4.0).view(2, 2)]),
)
@of_aten({"x": "2x3xf32", "p": [0, 1], "axis": 0})
def sum_of_same_size(a: AtenSource, c: AtenTarget, x: Capture, p: Attr, axis: Attr) -> Rewrite:
    "sum(permute(x, p), axis) -> sum(x, axis) where the types are equal"
    moved = a.permute(x, dims=p)
    y = a.op("sum.dim_IntList", moved, dim=[axis], keepdim=False, dtype=None)
    to = c.op("sum.dim_IntList", x, dim=[axis], keepdim=False, dtype=None)
    return Rewrite(y, to=to, where=[moved.type == x.type])
