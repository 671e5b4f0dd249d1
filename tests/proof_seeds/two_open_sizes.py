"""Wrong rules that take two dimensions for equal because both are dynamic."""

from __future__ import annotations

import torch

from patcomp.authoring import CoreaiSource, CoreaiTarget
from patcomp.ir import coreai
from patcomp.ir.value import Value
from patcomp.patterns import Capture, Const, Rewrite
from tests.proof_seeds.seeds import Ops, of_coreai, seed

SIX = torch.arange(6.0)
FLAT, TALL = SIX.view(2, 3), SIX.view(3, 2)
INTO = torch.tensor([3, 2], dtype=torch.int32)


def _larger_shape(x: Value, y: Value) -> Value:
    return coreai.broadcasting_maximum(coreai.get_shape(x), coreai.get_shape(y))


@seed(
    "a tensor of two dynamic sizes becomes another one of two dynamic sizes",
    Ops({"x": "?x?xf32", "s": "2xsi32"}, lambda x, s: coreai.reshape(x, s), {"x": FLAT, "s": INTO}),
)
@of_coreai("optimize", {"x": "2x3xf32", "shape": [2, 3]})
def reshaped_to_same_type(a: CoreaiSource, c: CoreaiTarget, x: Capture, shape: Capture) -> Rewrite:
    "reshape(x, shape) -> x where the types are equal"
    y = a.reshape(x, shape)
    return Rewrite(y, to=x, where=[y.type == x.type])


@seed(
    "two dynamic sizes are exchanged",
    Ops({"x": "?x?xf32"}, lambda x: coreai.transpose(x, [1, 0]), {"x": FLAT}),
)
@of_coreai("optimize", {"x": "2x3xf32", "p": [0, 1]}, priority=9)
def transposed_dynamic_sizes(a: CoreaiSource, c: CoreaiTarget, x: Capture, p: Const) -> Rewrite:
    "transpose(x, p) -> x where the types are equal, and not all sizes are static"
    y = a.transpose(x, p)
    return Rewrite(y, to=x, where=[y.type == x.type, ~x.is_static | (p.values[0] == 0)])


@seed(
    "two tensors of dynamic sizes have one type, and different shapes",
    Ops({"x": "?x?xf32", "y": "?x?xf32"}, lambda x, y: coreai.reshape(x, coreai.get_shape(y)), {"x": FLAT, "y": TALL}),
)
@of_coreai("optimize", {"x": "2x3xf32", "y": "2x3xf32"})
def reshaped_like_same_type(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture) -> Rewrite:
    "reshape(x, shape of y) -> x where x and y have one type"
    z = a.reshape(x, a.get_shape(y))
    return Rewrite(z, to=x, where=[x.type == y.type, z.type == x.type])


@seed(
    "the shape of y is not that of x because both are unknown",
    Ops({"x": "?x?xf32", "y": "?x?xf32"}, _larger_shape, {"x": FLAT, "y": TALL}),
)
@of_coreai("optimize", {"x": "2x3xf32", "y": "2x3xf32"})
def shapes_of_same_type(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture) -> Rewrite:
    "maximum(shape of x, shape of y) -> shape of x where x and y have one type"
    one, other = a.get_shape(x), a.get_shape(y)
    return Rewrite(a.broadcasting_maximum(one, other), to=c.get_shape(x), where=[x.type == y.type])


@seed(
    "the second reshape has other sizes than x, which are not known either",
    Ops(
        {"x": "?x?xf32", "s": "1xsi32", "t": "2xsi32"},
        lambda x, s, t: coreai.reshape(coreai.reshape(x, s), t),
        {"x": FLAT, "s": torch.tensor([6], dtype=torch.int32), "t": INTO},
    ),
)
@of_coreai("optimize", {"x": "2x3xf32", "s": [6], "t": [2, 3]})
def reshaped_there_and_back(a: CoreaiSource, c: CoreaiTarget, x: Capture, s: Capture, t: Capture) -> Rewrite:
    "reshape(reshape(x, s), t) -> x where the types are equal"
    y = a.reshape(a.reshape(x, s), t)
    return Rewrite(y, to=x, where=[y.type == x.type])


@seed(
    "a tensor that is repeated along a dynamic size is as dynamic as before",
    Ops(
        {"x": "?x?xf32", "n": "2xui32"},
        lambda x, n: coreai.tile(x, n),
        {"x": FLAT, "n": torch.tensor([2, 1], dtype=torch.uint32)},
    ),
)
@of_coreai("optimize", {"x": "2x3xf32", "n": [1, 1]})
def repeated_to_same_type(a: CoreaiSource, c: CoreaiTarget, x: Capture, n: Capture) -> Rewrite:
    "tile(x, n) -> x where the types are equal"
    y = a.tile(x, n)
    return Rewrite(y, to=x, where=[y.type == x.type])


@seed(
    "x may have the size 1 where the sum has another one",
    Ops(
        {"x": "?x?xf32", "y": "?x?xf32"},
        lambda x, y: coreai.get_shape(coreai.broadcasting_add(x, y)),
        {"x": SIX.view(1, 6), "y": SIX.view(6, 1)},
    ),
)
@of_coreai("optimize", {"x": "2x3xf32", "y": "2x3xf32"})
def shape_of_a_sum(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture) -> Rewrite:
    "shape of x + y -> shape of x where x has the type of the sum"
    z = x + y
    return Rewrite(a.get_shape(a.escaping(z)), to=c.get_shape(x), where=[z.type == x.type])
