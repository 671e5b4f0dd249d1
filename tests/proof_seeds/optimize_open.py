"""Wrong rules of the stage `optimize` whose conditions do not hold for dynamic dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from patcomp.authoring import CoreaiSource, CoreaiTarget
from patcomp.ir import coreai
from patcomp.ir.types import Shape
from patcomp.ir.value import Value
from patcomp.patterns import Capture, Const, Rewrite, call
from patterns_catalog.sizes import END
from tests.proof_seeds.seeds import Ops, of_coreai, seed


def _moves_units(permutation: Sequence[int], shape: Shape) -> bool:
    kept = [axis for axis in permutation if (shape[axis] or 1) != 1]
    return kept == sorted(kept)


def _wide_sum(x: Value, y: Value, z: Value) -> Value:
    return coreai.broadcasting_add(x, coreai.broadcast_to(y, coreai.get_shape(z)))


def _end(start: np.ndarray, count: np.ndarray) -> np.ndarray:
    end = start + count
    return np.where(end < 0, end, END).astype(start.dtype)


ROW, FIVE = torch.tensor([1.0]), torch.arange(5.0)


@seed(
    "two dynamic sizes have one type, but a row of one element becomes as long as another tensor",
    Ops({"x": "?xf32", "z": "?xf32"}, lambda x, z: coreai.broadcast_to(x, coreai.get_shape(z)), {"x": ROW, "z": FIVE}),
)
@of_coreai("optimize", {"x": "2x3xf32", "shape": [2, 3]})
def broadcast_to_same_type(a: CoreaiSource, c: CoreaiTarget, x: Capture, shape: Capture) -> Rewrite:
    "broadcast_to(x, shape of x) -> x"
    y = a.broadcast_to(x, shape)
    return Rewrite(y, to=x, where=[y.type == x.type])


@seed(
    "a part of a dynamic dimension is a dynamic dimension, too",
    Ops({"x": "?x3xf32"}, lambda x: coreai.slice_(x, [1, 0], [END, END], [1, 1]), {"x": torch.arange(6.0).view(2, 3)}),
)
@of_coreai("optimize", {"x": "2x3xf32", "start": [0, 0], "end": [2, 9], "step": [1, 1]})
def slice_to_same_type(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, start: Capture, end: Capture, step: Const
) -> Rewrite:
    "x[:] -> x"
    y = a.slice(x, start, end, step)
    return Rewrite(y, to=x, where=[y.type == x.type, step.value == 1])


@seed(
    "a dynamic dimension counts as one of size 1, so that it seems to move freely",
    Ops(
        {"x": "?x3xf32"},
        lambda x: coreai.reshape(coreai.transpose(x, [1, 0]), [-1]),
        {"x": torch.arange(6.0).view(2, 3)},
    ),
)
@of_coreai("optimize", {"x": "2x1x3xf32", "p": [1, 0, 2], "t": [6]})
def units_and_unknown_sizes_moved(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const, t: Capture) -> Rewrite:
    "reshape(transpose(x, p), t) -> reshape(x, t) where p only moves dimensions of size 1"
    y = a.reshape(a.transpose(x, p), t)
    return Rewrite(y, to=c.reshape(x, t, result_type=y.type), where=[call(_moves_units, p.values, x.shape)])


@seed(
    "x has the type of the sum, but x may have one element, and the sum more",
    Ops({"x": "?xf32", "y": "1xf32", "z": "?xf32"}, _wide_sum, {"x": ROW, "y": ROW, "z": FIVE}),
)
@of_coreai("optimize", {"x": "2x3xf32", "y": "3xf32", "s": [2, 3]})
def addition_as_large_as_its_type(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, s: Capture) -> Rewrite:
    "x + broadcast_to(y, s) -> x + y where x is as large as the sum"
    z = x + a.broadcast_to(y, s)
    return Rewrite(z, to=c.broadcasting_add(x, y, result_type=z.type), where=[z.type == x.type, y.rank <= x.rank])


@seed(
    "x[-k:] of fewer than k elements starts at 0, so that the end counts from there and not from -k",
    Ops(
        {"x": "?xf32"},
        lambda x: coreai.slice_(coreai.slice_(x, [-4], [END], [1]), [0], [2], [1]),
        {"x": torch.arange(3.0)},
    ),
)
@of_coreai("optimize", {"x": "6xf32", "s": [-4], "end": [2147483647], "j": [2]})
def start_of_the_last_ones(a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Const, end: Const, j: Const) -> Rewrite:
    "x[-k:][:j] -> x[-k : j-k] of a vector"
    y = a.slice(a.slice(x, s, end, [1]), [0], j, [1])
    one = [x.rank == 1, end.value == END, s.values[0] < 0, j.values[0] > 0]
    return Rewrite(y, to=c.slice(x, s, call(_end, s.values, j.values), [1], result_type=y.type), where=one)


@seed(
    "the shapes are equal where both sizes are dynamic, though the sizes may differ",
    Ops({"x": "?xf32", "y": "?xf32"}, lambda x, y: coreai.get_shape(coreai.concat(0, [x, y])), {"x": ROW, "y": FIVE}),
)
@of_coreai("optimize", {"x": "3xf32", "y": "3xf32"})
def size_of_equal_parts(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture) -> Rewrite:
    "get_shape(concat(x, y)) -> get_shape(x) + get_shape(x) for vectors of one size"
    size = a.get_shape(a.escaping(a.concat(0, [x, y])))
    once = c.get_shape(x)
    return Rewrite(size, to=c.broadcasting_add(once, once), where=[x.rank == 1, x.type == y.type])
