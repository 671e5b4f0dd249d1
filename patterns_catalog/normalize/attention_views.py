"""What PyTorch takes apart around attention, put together again: batched products and repeated heads."""

from __future__ import annotations

from typing import Any

from patcomp.authoring import AtenSource, AtenTarget, Targets, aten, coreai
from patcomp.ir.extents import elements, extent, extents, extents_of
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import tensor
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import ANY, Attr, Const, FunctionTable, Rewrite, any_of, check, compute, rule, tag
from patcomp.patterns.match import Match
from patterns_catalog.sizes import Size
from patterns_catalog.views import known_sizes, permuted, viewed

_TABLE = FunctionTable("attention views")


def _batch_only(match: Match) -> bool:
    """Whether both views only join leading dimensions, and the outer one splits them again."""
    x, y, left, right, size = (match[name] for name in ("x", "y", "left", "right", "size"))
    if not (x.rank == y.rank == len(size) >= 4 and len(left) == len(right) == 3):
        return False
    left, right, size = (extents_of(sizes) for sizes in (left, right, size))
    wide, tall, count = extents(x), extents(y), elements(size[:-2])
    return (
        left == [count, *wide[-2:]]
        and right == [count, *tall[-2:]]
        and size[-2:] == [wide[-2], tall[-1]]
        and all({i, j} <= {1, n} and n in (i, j) for i, j, n in zip(wide[:-2], tall, size[:-2], strict=False))
    )


@rule(stage="normalize", target=aten_namespace, example={
    "x": "2x4x3x8xf32", "y": "2x4x8x5xf32", "wide": [2, 4, 3, 8], "tall": [2, 4, 8, 5],
    "left": [8, 3, 8], "right": [8, 8, 5], "size": [2, 4, 3, 5],
})  # fmt: skip
def batched_matmul(
    a: AtenSource, c: AtenTarget, x: Any, y: Any, wide: Attr, tall: Attr, left: Attr, right: Attr, size: Attr
) -> Rewrite:
    """view(bmm(view(expand(x)), view(expand(y)))) to matmul(x, y)

    PyTorch decomposes every product of more than three dimensions so, and models write it by hand (OPT, BART).
    """
    first = any_of(a.escaping(a.expand(x, size=wide, implicit=ANY)), x)
    second = any_of(a.escaping(a.expand(y, size=tall, implicit=ANY)), y)
    # the views may have other uses: DeBERTa-v2 multiplies its queries and keys twice
    product = a.bmm(a.escaping(a.view(first, size=left)), a.escaping(a.view(second, size=right)))
    return Rewrite(
        a.view(product, size=size),
        to=c.matmul(x, y),
        where=[check("the views join and split batch dimensions", _batch_only)],
    )


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


@rule(stage="normalize", target=aten_namespace, example={
    "x": "2x4x3x8xf32", "place": 2, "wide": [2, 4, 3, 3, 8], "size": [2, 12, 3, 8],
})  # fmt: skip
def repeated_heads(a: AtenSource, c: AtenTarget, x: Any, place: Attr, wide: Attr, size: Attr) -> Rewrite:
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


# ---- heads joined with the batch -----------------------------------------------------------------


def _joins_batch(x: Value, size: list[Size]) -> bool:
    """Whether a view joins all but the last two axes."""
    own = extents(x)
    return x.rank > 3 and extents_of(size) == [elements(own[:-2]), *own[-2:]]


@_TABLE.define
def joined_columns(x: Value, *, size: list[Size], result_types: list[Attribute]) -> Value:
    """view(permute(x))"""
    columns = permuted(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])
    return viewed(columns, [size[0], size[2], size[1]])


@rule(stage="normalize", target=_TABLE, example={"x": "2x4x3x8xf32", "size": [8, 3, 8]})
def join_columns_last(a: AtenSource, c: Targets, x: Any, size: Attr) -> Rewrite:
    "permute(view(x)) to view(permute(x)), where the view joins batch and heads (Bloom, DeBERTa-v2)"
    return Rewrite(
        a.permute(a.escaping(a.view(x, size=size)), dims=[0, 2, 1]),
        to=c.joined_columns(x, size=size),
        where=[check("the view joins batch and heads", lambda match: _joins_batch(match["x"], match["size"]))],
    )


@_TABLE.define
def joined_after(
    x: Value, factor: Value, *, divide: bool, size: list[Size], result_types: list[Attribute]
) -> Value:  # fmt: skip
    """view(x / number) or view(x * number)"""
    name = "aten.div.Tensor" if divide else "aten.mul.Tensor"
    return viewed(aten.build(name, x.type, self=x, other=factor), size)


@rule(stage="normalize", target=_TABLE, example={
    "before": "2x4x3x8xf32", "order": [0, 1, 3, 2], "size": [8, 8, 3], "factor": 2.0,
})  # fmt: skip
def scale_columns_first(a: AtenSource, c: Targets, before: Any, order: Attr, size: Attr, factor: Const) -> Rewrite:
    "view(permute(x)) / number to view(permute(x) / number), where the view joins batch and heads (DeBERTa-v2)"
    x = a.permute(before, dims=order)
    joined = a.view(x, size=size)
    return Rewrite(
        any_of(joined / factor, joined * factor, tag="op", tags=("divide", "multiply")),
        to=c.joined_after(x, factor, divide=tag("op") == "divide", size=size),
        where=[
            check("the view joins batch and heads", lambda match: _joins_batch(match[x], match["size"])),
            factor.rank == 0,
            joined.dtype.is_in("f32", "f16", "bf16"),
            factor.dtype == joined.dtype,
        ],
    )


def _splits_batch(size: list[Size], *terms: Value) -> bool:
    """Whether a view splits the first of three axes, for all terms alike; the first one has the full shape."""
    if len(size) < 4 or not all(term.rank == 3 for term in terms):
        return False
    *batch, length, width = extents_of(size)
    rows = elements(batch)
    return extents(terms[0]) == [rows, length, width] and all(extent(term, 0) == rows for term in terms)


def _broadcasts(size: list[Size], bias: Value) -> bool:
    """Whether rows and columns of a bias are one or all, with numbers or values for their sizes."""
    return all(own in (1, whole) for own, whole in zip(extents(bias)[-2:], extents_of(size[-2:]), strict=True))


@_TABLE.define
def split_sum(scores: Value, bias: Value, *, size: list[Size], result_types: list[Attribute]) -> Value:
    """view(scores) + view(bias)"""
    own = [1 if known == 1 else whole for known, whole in zip(bias.shape[-2:], size[-2:], strict=True)]
    right = viewed(bias, [*size[:-2], *own])
    return aten.add.Tensor(result_types[0], viewed(scores, size), right)


@rule(stage="normalize", target=_TABLE, example={
    "x": "8x3x8xf32", "y": "8x8x5xf32", "bias": "8x3x5xf32", "factor": 0.5, "size": [2, 4, 3, 5],
})  # fmt: skip
def split_sum_of_scores(a: AtenSource, c: Targets, x: Any, y: Any, bias: Any, factor: Const, size: Attr) -> Rewrite:
    "view(scores + bias) to view(scores) + view(bias), where the view parts batch and heads (Bloom, DeBERTa-v2)"
    batched = a.bmm(x, y)
    scores = any_of(batched * factor, batched, tag="scores", tags=("scaled", "plain"))
    return Rewrite(
        a.view(scores + bias, size=size),
        to=c.split_sum(scores, bias, size=size),
        where=[
            check(
                "the view parts batch and heads",
                lambda match: _splits_batch(match["size"], match[scores], match["bias"]),
            ),
            check("the bias broadcasts", lambda match: _broadcasts(match["size"], match["bias"])),
            (tag("scores") == "plain") | (factor.rank == 0),
        ],
    )


@_TABLE.define
def split_product(scores: Value, factor: Value, *, size: list[Size], result_types: list[Attribute]) -> Value:
    """view(scores) * number"""
    return aten.mul.Tensor(result_types[0], viewed(scores, size), factor)


@rule(stage="normalize", target=_TABLE, example={
    "x": "8x3x8xf32", "y": "8x8x5xf32", "factor": 0.5, "size": [2, 4, 3, 5],
})  # fmt: skip
def split_scaled_scores(a: AtenSource, c: Targets, x: Any, y: Any, factor: Const, size: Attr) -> Rewrite:
    "view(bmm(x, y) * number) to view(bmm(x, y)) * number, where the view parts batch and heads (Bloom)"
    batched = a.bmm(x, y)
    return Rewrite(
        a.view(batched * factor, size=size),
        to=c.split_product(batched, factor, size=size),
        where=[
            factor.rank == 0,
            check("the view parts batch and heads", lambda match: _splits_batch(match["size"], match[batched])),
        ],
    )


# ---- scores that PyTorch computes in float32 -----------------------------------------------------


@_TABLE.define
def softmax_of_half_scores(
    query: Value, columns: Value, bias: Value, factor: Value | None, mask: Value | None, *,
    left: list[Size], size: list[Size], axis: int, result_types: list[Attribute],
) -> Value:  # fmt: skip
    """softmax(view(bmm(view(query * number), columns) + bias) + mask)

    The number comes first: as in float32, products that are large before they are scaled do not overflow.
    """
    element = query.element_type
    if factor is not None:
        assert factor.constant is not None
        number = coreai.constant(float(factor.constant.reshape(-1)[0]), element)
        query = aten.mul.Tensor(query.type, query, number)
    rows = viewed(query, left)
    shape = (*rows.shape[:-1], columns.shape[-1])
    product = aten.bmm(tensor(shape, element), rows, columns)
    scores = viewed(aten.add.Tensor(product.type, product, bias), size)
    if mask is not None:
        scores = aten.add.Tensor(scores.type, scores, mask)
    result = ValueType(result_types[0])
    if result.element_type != element:
        wide = tensor(scores.shape, result.element_type)
        scores = aten._to_copy(wide, scores, dtype=result.element_type)
    return aten._softmax(result, scores, dim=axis, half_to_float=False)


@rule(stage="normalize", target=_TABLE, example={
    "query": "2x4x3x8xf16", "columns": "8x8x5xf16", "bias": "8x1x5xf16", "mask": "3x5xf16", "factor": 0.5,
    "left": [8, 3, 8], "size": [2, 4, 3, 5], "axis": -1, "wide": "f32", "half": "f16",
})  # fmt: skip
def scores_in_half(
    a: AtenSource, c: Targets, query: Any, columns: Any, bias: Any, mask: Any, factor: Const,
    left: Attr, size: Attr, axis: Attr, wide: Attr, half: Attr,
) -> Rewrite:  # fmt: skip
    """softmax(view(baddbmm(bias, view(query), columns, alpha=number)) + mask) in the half type (Bloom)

    PyTorch takes `baddbmm` of a half type apart in float32 and rounds the sum. The scores of other models, and those
    of PyTorch's own attention, are products in the half type.
    """
    joined = a.view(query, size=left)
    product = a.bmm(a._to_copy(joined, dtype=wide), a._to_copy(columns, dtype=wide))
    scaled = any_of(product * factor, product, tag="scores", tags=("scaled", "plain"))
    rounded = a._to_copy(a._to_copy(bias, dtype=wide) + scaled, dtype=half)
    scores = a.view(rounded, size=size)
    masked = any_of(scores + mask, scores, tag="mask", tags=("added", "none"))
    logits = any_of(a._to_copy(masked, dtype=wide), masked)
    softmax = a._softmax(logits, dim=axis, half_to_float=False)
    return Rewrite(
        softmax,
        to=c.softmax_of_half_scores(query, columns, bias, factor, mask, left=left, size=size, axis=axis),
        where=[
            query.dtype.is_in("f16", "bf16"),
            *(x.dtype == query.dtype for x in (columns, bias, rounded, masked)),
            product.dtype == "f32",
            (tag("scores") == "plain") | (factor.rank == 0),
            check("the view joins batch and heads", lambda match: _joins_batch(match["query"], match["left"])),
            check(
                "the view parts batch and heads",
                lambda match: _splits_batch(match["size"], match[rounded], match["bias"]),
            ),
            (tag("mask") == "none") | (masked.shape == scores.shape),
        ],
    )
