"""Join what PyTorch decomposes around attention: batched products and repeated heads."""

from __future__ import annotations

import math
from typing import Any

from patcomp.authoring import Aten, AtenSource, AtenTarget, aten, coreai
from patcomp.ir.aten import AtenOp
from patcomp.ir.extents import elements, extent, extent_of, extents, extents_of
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.traits import Broadcasting
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.patterns import (
    ANY,
    LAST,
    Attr,
    Capture,
    OpView,
    Rewrite,
    any_of,
    build,
    check,
    compute,
    example,
    normalization,
    rule,
)
from patcomp.patterns.match import Match
from patterns_catalog.sizes import Size
from patterns_catalog.views import arguments_of, known_sizes, last_two_swapped, permuted, viewed

# ---- batched products ----------------------------------------------------------------------------


class _Split:
    """Values of shape [rows, m, n] computed as [*batch, m, n], from what views joined to rows.

    Args:
        op: the view that splits the rows.
    """

    def __init__(self, op: OpView):
        self.op, self.batch = op, op["size"][:-2]
        self.sizes = {extent_of(size): size for size in op["size"]}
        self.extents = extents_of(self.batch)
        self.has_product = False

    def value(self, x: Value) -> Value | None:
        """`x` with its rows split; None if it is not computed from joined values, or has several users."""
        maker = x.maker
        if not isinstance(maker, AtenOp) or x.rank != 3:
            return None
        given = maker.arguments_by_name()
        if maker.name == "aten.view":
            whole = given["self"]
            return whole if extents(whole) == [*self.extents, *extents(x)[1:]] else None
        self.op.cover(maker)
        if maker.name == "aten.permute":
            inner = self.value(given["self"]) if given["dims"] == [0, 2, 1] else None
            return None if inner is None else permuted(inner, last_two_swapped(inner.rank))
        if not x.is_read_once:
            return None
        if maker.name == "aten.bmm":
            left, right = self.value(given["self"]), self.value(given["mat2"])
            return None if left is None or right is None else self._product(x, left, right)
        by_rows = maker.has_trait(Broadcasting) or maker.name == "aten._softmax"
        return self._elementwise(x, maker.name, given) if by_rows else None

    def _product(self, x: Value, left: Value, right: Value) -> Value | None:
        """The product of two factors. `matmul` broadcasts the batch, so an `expand` of one factor is left out."""
        self.has_product = True
        for first in (_unexpanded(left), left):
            for second in (_unexpanded(right), right):
                pairs = zip(extents(first)[:-2], extents(second)[:-2], self.extents, strict=True)
                if all({i, j} <= {1, n} and n in (i, j) for i, j, n in pairs):
                    return self._built(x, "aten.matmul", {"self": first, "other": second})
        return None

    def _elementwise(self, x: Value, name: str, given: dict[str, Any]) -> Value | None:
        if name == "aten._softmax":
            if given["dim"] not in (-1, 2):
                return None
            given["dim"] = len(self.batch) + 1
        tensors = {key: argument for key, argument in given.items() if isinstance(argument, Value)}
        split = {key: self.value(argument) for key, argument in tensors.items()}
        if all(value is None for value in split.values()):
            return None
        for key, argument in tensors.items():
            split[key] = split[key] or self._broadcast(argument)
            if split[key] is None:
                return None
        return self._built(x, name, {**given, **split})

    def _broadcast(self, x: Value) -> Value | None:
        """An operand that no view joined: it broadcasts over the rows, or a new view splits it."""
        if x.rank < 3 or extent(x, 0) == 1:
            return x
        last: list[Any] = [self.sizes.get(extent(x, axis), x.shape[axis]) for axis in (1, 2)]
        if None in last or extent(x, 0) != elements(self.extents):
            return None
        return viewed(x, [*self.batch, *last])

    def _built(self, x: Value, name: str, arguments: dict[str, Any]) -> Value:
        """The op that computed `x`, with its batch in place of the rows."""
        shape = (*(size if isinstance(size, int) else None for size in self.batch), *x.shape[1:])
        made: Value = aten.build(name, tensor(shape, x.element_type), **arguments)
        return made


def _unexpanded(x: Value) -> Value:
    """A value before an `expand` that repeats batches; the value itself if there is none."""
    expanded = arguments_of(x, "expand")
    if expanded is None or expanded["self"].rank != x.rank or extents(expanded["self"])[-2:] != extents(x)[-2:]:
        return x
    inner: Value = expanded["self"]
    return inner


def _product(torch: Any, x: Any, y: Any) -> Any:
    return torch.bmm(x.expand(2, 4, 3, 8).reshape(8, 3, 8), y.reshape(8, 8, 5)).view(2, 4, 3, 5)


def _biased_scores(torch: Any, query: Any, key: Any, bias: Any) -> Any:
    scores = torch.bmm(query.reshape(8, 3, 8), key.reshape(8, 5, 8).transpose(1, 2) / 2.0) * 0.7
    return (scores + bias).softmax(-1).view(2, 4, 3, 5)


@normalization("aten.view", name="batched_matmul", examples=[
    example("2x1x3x8xf32", "2x4x8x5xf32", program=_product),
    example("2x4x3x8xf32", "2x4x5x8xf32", "8x1x5xf32", program=_biased_scores),
])  # fmt: skip
def batched_matmul(op: OpView, aten: Aten) -> Value | None:
    """view(bmm(view(x), view(y))) -> matmul(x, y), where the views join the batch dimensions and split them again

    PyTorch decomposes every product of more than three dimensions so, and models write it by hand (OPT, BART). Between
    the product and the views may be scales, sums, masks and the softmax (Bloom, DeBERTa-v2).
    """
    x, size = op["self"], op["size"]
    if len(size) < 4 or extents(x) != [elements(extents_of(size[:-2])), *extents_of(size[-2:])]:
        return None
    split = _Split(op)
    made = split.value(x)
    return made if made is not None and split.has_product and made.type == op.result else None


def _splits_rows(match: Match) -> bool:
    """Whether the second view has the batch dimensions that the first one joins."""
    joined, size = extents_of(match["joined"]), extents_of(match["size"])
    return len(joined) == 3 and len(size) > 3 and [elements(size[:-2]), size[-1], size[-2]] == joined


def _transposed(x: Value, size: list[Size]) -> Value:
    """view(x), with the last two dimensions swapped to have a size."""
    return permuted(viewed(x, [*size[:-2], size[-1], size[-2]]), last_two_swapped(len(size)))


@rule(stage="normalize", into=aten_namespace, example={
    "x": "2x4x3x8xf32", "joined": [8, 3, 8], "size": [2, 4, 8, 3],
})  # fmt: skip
def batched_transpose(a: AtenSource, c: AtenTarget, x: Capture, joined: Attr, size: Attr) -> Rewrite:
    """view(permute(view(x, [rows, m, n]), [0, 2, 1]), [*batch, n, m]) -> permute(view(x, [*batch, m, n]))

    `torch.onnx.export` transposes the keys of attention so.
    """
    return Rewrite(
        a.view(a.permute(a.view(x, size=joined), dims=[0, 2, 1]), size=size),
        to=build(_transposed, x, size),
        where=[check("the second view splits what the first one joins", _splits_rows)],
    )


def _joins_batch(match: Match) -> bool:
    """Whether both views join all but the last two axes, which are the same."""
    x, y = extents(match["scores"]), extents(match["y"])
    rows, left, right = elements(x[:-2]), extents_of(match["left"]), extents_of(match["right"])
    return len(x) > 3 and x[:-2] == y[:-2] and left == [rows, *x[-2:]] and right == [rows, *y[-2:]]


def _joined_product(x: Value, y: Value, left: list[Size], right: list[Size]) -> Value:
    """view(matmul(x, y))"""
    product = aten.matmul(tensor((*x.shape[:-1], y.shape[-1]), x.element_type), x, y)
    return viewed(product, [*left[:2], right[2]])


@rule(stage="normalize", into=aten_namespace, example={
    "scores": "2x4x3x5xf32", "y": "2x4x5x8xf32", "left": [8, 3, 5], "right": [8, 5, 8],
})  # fmt: skip
def joined_product_of_weights(
    a: AtenSource, c: AtenTarget, scores: Capture, y: Capture, left: Attr, right: Attr
) -> Rewrite:
    """bmm(view(softmax(x)), view(y)) -> view(matmul(softmax(x), y)), where the views join batch and heads

    For the result of attention that is used as it is, with batch and heads as one dimension.
    """
    softmax = a._softmax(scores, dim=LAST, half_to_float=False)
    weights = any_of(a._to_copy(softmax, dtype=ANY), softmax)
    return Rewrite(
        a.bmm(a.view(weights, size=left), a.view(y, size=right)),
        to=build(_joined_product, weights, y, left, right),
        where=[check("the views join the same axes", _joins_batch)],
    )


# ---- rows without keys ---------------------------------------------------------------------------


def _zero_in_empty_rows(x: Value, softmax: Value) -> Value:
    """where(all of a row of x is -inf, 0, softmax(x))"""
    each, of_rows = tensor(x.shape, "i1"), tensor((*x.shape[:-1], 1), "i1")
    hidden = aten.eq.Tensor(each, x, coreai.constant(-math.inf, x.element_type))
    some = aten.any.dim(of_rows, aten.logical_not(each, hidden), dim=x.rank - 1, keepdim=True)
    weights = aten._softmax(softmax.type, x, dim=x.rank - 1, half_to_float=False)
    zero = coreai.constant(0.0, softmax.element_type)
    return aten.where.self(softmax.type, aten.logical_not(of_rows, some), zero, other=weights)


@rule(
    stage="normalize", into=aten_namespace, example={"x": "2x4x3x5xf32"}, unspecified=dict.fromkeys(
        ("infinities and zeros", "NaN"), "PyTorch's attention is exported so, whose kernels differ in rows with NaN",
    ),
)  # fmt: skip
def softmax_without_nan(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    """where(isnan(softmax(x)), 0, softmax(x)) -> where(all of a row of x is -inf, 0, softmax(x))

    `torch.onnx.export` writes attention so; the result is how PyTorch itself decomposes it.
    """
    softmax = a._softmax(x, dim=LAST, half_to_float=False)
    return Rewrite(
        a.op("where.self", a.op("ne.Tensor", softmax, softmax), 0.0, softmax),
        to=build(_zero_in_empty_rows, x, softmax),
        where=[x.rank > 0],
    )


# ---- repeated heads ------------------------------------------------------------------------------


def _repeats_heads(match: Match) -> bool:
    """Whether a new axis after the heads is filled with copies and joined with the heads."""
    x, place, wide, size = (match[name] for name in ("x", "place", "wide", "size"))
    if x.rank < 3 or len(wide) != x.rank + 1 or place % (x.rank + 1) != x.rank - 2:
        return False
    copies, kept = wide[place], [*wide[:place], *wide[place + 1 :]]
    heads = x.shape[-3]
    if (
        heads is None
        or not known_sizes([copies])
        or any(n not in (None, m) for n, m in zip(x.shape, kept, strict=True))
    ):
        return False
    return size == [*kept[:-3], heads * copies, *kept[-2:]]


@rule(stage="normalize", into=aten_namespace, example={
    "x": "2x4x3x8xf32", "place": 2, "wide": [2, 4, 3, 3, 8], "size": [2, 12, 3, 8],
})  # fmt: skip
def repeated_heads(a: AtenSource, c: AtenTarget, x: Capture, place: Attr, wide: Attr, size: Attr) -> Rewrite:
    """view(expand(unsqueeze(x))) to repeat_interleave(x), for the heads of grouped queries

    `repeat_kv` of Llama, Mistral, Qwen, Gemma and Phi, and what PyTorch makes of `repeat_interleave`.
    """
    return Rewrite(
        a.view(a.expand(a.unsqueeze(x, dim=place), size=wide, implicit=ANY), size=size),
        to=c.op(
            "repeat_interleave.self_int",
            x,
            repeats=compute("copies", lambda match: match["wide"][match["x"].rank - 2]),
            dim=compute("the axis of the heads", lambda match: match["x"].rank - 3),
            output_size=None,
        ),
        where=[check("the new axis repeats heads", _repeats_heads)],
    )
