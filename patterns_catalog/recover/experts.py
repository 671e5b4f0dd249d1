"""Products with matrices that are chosen by index, as Mixture-of-Experts layers compute them, as the composite."""

from __future__ import annotations

from typing import Any

from patcomp.authoring import AtenSource, Composites, coreai
from patcomp.ir.aten import define
from patcomp.ir.types import Shape
from patcomp.ir.value import Value
from patcomp.patterns import ANY, Attr, Capture, Rejected, Rewrite, any_of, build, check, compute, rule, tag
from patcomp.patterns.match import Match
from patterns_catalog.composites.experts import gather_mm
from patterns_catalog.sizes import as_index, positions, size_of
from patterns_catalog.views import last_two_swapped

# ---- from products of gathered stacks ----------------------------------------------------------------


def _gathered_product(
    lhs: Value, rhs: Value, lhs_indices: Value | None, rhs_indices: Value | None, axis: int, chosen: Shape
) -> Value:
    """`gather_mm` whose indices get the shape that the gathered matrices have in the product.

    Args:
        lhs, rhs: the operands, of which one or both are stacks of matrices.
        lhs_indices, rhs_indices: which matrices of a stack are taken.
        axis: the indexed axis.
        chosen: the dimensions of the gathered operand before its matrices.
    """
    left, right = _reshaped(lhs_indices, lhs.rank, axis, chosen), _reshaped(rhs_indices, rhs.rank, axis, chosen)
    return gather_mm(lhs, rhs, left, right, num_batch_axes=axis)  # type: ignore[no-any-return]


def _transposed_product(x: Value, stack: Value, indices: Value, axis: int, chosen: Shape) -> Value:
    """x @ w^T as (w @ x^T)^T, which transposes a few activations and not the matrices of all experts."""
    columns = coreai.transpose(x, last_two_swapped(x.rank))
    product = _gathered_product(stack, columns, indices, None, axis, chosen)
    return coreai.transpose(product, last_two_swapped(product.rank))


def _reshaped(indices: Value | None, rank: int, axis: int, chosen: Shape) -> Value | None:
    """The indices of a stack of some rank, with the dimensions in `chosen` that come from them."""
    shape = chosen[axis : len(chosen) - (rank - 3 - axis)]
    if indices is None or indices.shape == shape:
        return indices
    sizes = [size for size in shape if size is not None]
    if len(sizes) < len(shape):
        raise Rejected("gather_mm needs a static shape of the gathered matrices")
    return coreai.reshape(indices, sizes)


def _chosen(a: AtenSource, stack: Any, indices: Any, axis: Any, sizes: Any, name: str) -> tuple[Any, Any, list[Any]]:
    """The pattern of stack[indices], the indexed axis, and conditions. Views may change the shape of the indices."""
    taken = any_of(
        a.op("index.Tensor", stack, indices=[indices]),
        a.index_select(stack, dim=axis, index=indices),
        tag=name,
        tags=["first axis", "given axis"],
    )
    again = a.view(a.view(taken, size=ANY), size=sizes)
    shaped = any_of(taken, a.view(taken, size=sizes), again)

    def indexed_axis(match: Match) -> Any:
        return match.attribute_of(axis) if match.tags[name] == "given axis" else 0

    def keeps_the_stack(match: Match) -> bool:
        before, after, whole = match.value_of(taken), match.value_of(shaped), match.value_of(stack)
        assert before is not None and after is not None and whole is not None  # noqa: PT018
        if before.shape == after.shape:
            return True
        rank = whole.rank
        at = indexed_axis(match)
        last = rank - 3 - at  # dimensions of the stack between the indexed one and the matrices
        count = len(after.shape) - 2 - last
        return (
            before.is_static
            and count >= at
            and before.shape[:at] == after.shape[:at]
            and before.shape[len(before.shape) - 2 - last :] == after.shape[count:]
        )

    return (
        shaped,
        compute("the indexed axis", indexed_axis),
        [
            indices.dtype.is_in("si64", "si32"),  # masks choose too
            stack.dtype.is_in("f32", "f16", "bf16"),
            stack.rank >= 3,
            (tag(name) == "first axis") | ((axis >= 0) & (axis < stack.rank - 2)),
            check("views change only the shape of the indices", keeps_the_stack),
        ],
    )


def _product(a: AtenSource, left: Any, right: Any) -> Any:
    return any_of(a.bmm(left, right), a.matmul(left, right))


_STACK = {"w": "3x4x5xf32", "i": "3xsi64[0,2]", "axis": 0, "sizes": [3, 4, 5]}


@rule(name="gather_mm of right", example=_STACK | {"x": "3x2x4xf32"})
def chosen_right(a: AtenSource, c: Composites, x: Capture, w: Capture, i: Capture, axis: Attr, sizes: Attr) -> Rewrite:
    "x @ w[i], where w is a stack of matrices (experts with transposed weights, such as GPT-OSS)"
    matrices, at, conditions = _chosen(a, w, i, axis, sizes, "right")
    to = build(_gathered_product, x, w, None, i, at, matrices.shape[:-2])
    return Rewrite(_product(a, x, matrices), to=to, where=[*conditions, x.rank >= 2])


@rule(name="gather_mm of left", example=_STACK | {"x": "3x5x1xf32"})
def chosen_left(a: AtenSource, c: Composites, x: Capture, w: Capture, i: Capture, axis: Attr, sizes: Attr) -> Rewrite:
    "w[i] @ x, where w is a stack of matrices (Mixtral, Qwen-MoE)"
    matrices, at, conditions = _chosen(a, w, i, axis, sizes, "left")
    to = build(_gathered_product, w, x, i, None, at, matrices.shape[:-2])
    return Rewrite(_product(a, matrices, x), to=to, where=[*conditions, x.rank >= 2])


@rule(name="gather_mm of transposed right", example=_STACK | {"x": "3x2x5xf32", "dims": [0, 2, 1]})
def chosen_transposed_right(
    a: AtenSource, c: Composites, x: Capture, w: Capture, i: Capture, axis: Attr, sizes: Attr, dims: Attr
) -> Rewrite:
    "x @ w[i]^T as (w[i] @ x^T)^T"
    matrices, at, conditions = _chosen(a, w, i, axis, sizes, "right")
    swapped = check(
        "only the last two dimensions of w[i] change places",
        lambda match: match.attribute_of(dims) == last_two_swapped(len(match.attribute_of(dims))),
    )
    to = build(_transposed_product, x, w, i, at, matrices.shape[:-2])
    product = _product(a, x, a.permute(matrices, dims=dims))
    return Rewrite(product, to=to, where=[*conditions, swapped, x.rank >= 2])


@rule(
    name="gather_mm of both",
    example=_STACK | {"v": "3x2x4xf32", "j": "3xsi64[0,2]", "other": 0, "left_sizes": [3, 2, 4]},
)
def chosen_both(
    a: AtenSource, c: Composites, v: Capture, j: Capture, other: Attr, left_sizes: Attr, w: Capture, i: Capture,
    axis: Attr, sizes: Attr,
) -> Rewrite:  # fmt: skip
    "v[j] @ w[i], where both are stacks of matrices"
    left, _, conditions = _chosen(a, v, j, other, left_sizes, "left")
    right, at, more = _chosen(a, w, i, axis, sizes, "right")
    first_left, first_right = tag("left") == "first axis", tag("right") == "first axis"
    same_axis = (first_left & first_right) | (first_left & (axis == 0)) | (first_right & (other == 0)) | (axis == other)
    return Rewrite(
        _product(a, left, right),
        to=build(_gathered_product, v, w, j, i, at, right.shape[:-2]),
        where=[*conditions, *more, same_axis, left.shape[:-2] == right.shape[:-2]],
    )


# ---- from products of groups of rows -----------------------------------------------------------------

define("transformers::grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")


def _grouped_mm(a: AtenSource, x: Any, w: Any, ends: Any) -> tuple[Any, list[Any]]:
    """The pattern of a product of groups, by the op of transformers or of PyTorch, and its conditions."""
    matrices = any_of(a.permute(w, dims=[0, 2, 1]), w, tag="stored", tags=["transposed", "plain"])
    fallback = a.op("transformers.grouped_mm_fallback", x, matrices, ends)
    product = any_of(fallback, a.op("_grouped_mm", x, matrices, ends, bias=None, out_dtype=None))
    return product, [x.rank == 2, w.rank == 3, x.dtype.is_in("f32", "f16", "bf16"), x.dtype == w.dtype]


def grouped_product(x: Value, w: Value, expert_of_row: Value, stored: str) -> Value:
    """Row r of `x`, `[rows, k]`, times the matrix `w[expert_of_row[r]]`, or its transpose."""
    rows, chosen = coreai.expand_dims(x, [1]), expert_of_row.shape
    if stored == "transposed":
        product = _transposed_product(rows, w, expert_of_row, 0, chosen)
    else:
        product = _gathered_product(rows, w, None, expert_of_row, 0, chosen)
    return coreai.shrink_dims(product, [1])


@rule(name="gather_mm of groups", example={
    "x": "6x4xf32", "w": "3x5x4xf32", "scores": "2x3xf32", "flat": [6], "count": 3, "bins": 3, "last": 2,
})  # fmt: skip
def grouped(
    a: AtenSource,
    c: Composites,
    x: Capture,
    w: Capture,
    scores: Capture,
    flat: Attr,
    count: Attr,
    bins: Attr,
    last: Attr,
) -> Rewrite:
    """x[r] @ w[expert of row r], where the rows are sorted by expert and `ends` says where each group ends

    transformers exports this by default (`experts_implementation="grouped_mm"`): the experts of the rows are those
    of the largest scores of each token, sorted; the ends of the groups are their cumulated histogram.
    """
    chosen = a.escaping(a.topk(scores, k=count, dim=-1, largest=True, sorted=ANY)[1])
    experts = a.escaping(a.op("sort", a.escaping(a.view(chosen, size=flat)), dim=-1, descending=False)[0])
    counts = a.escaping(a.histc(a.escaping(a._to_copy(experts, dtype=ANY)), bins=bins, min=0, max=last))
    product, conditions = _grouped_mm(a, x, w, a.escaping(a.cumsum(counts, dim=0, dtype="si32")))
    return Rewrite(
        product,
        to=build(grouped_product, x, w, experts, tag("stored")),
        where=[
            *conditions,
            experts.rank == 1,
            experts.shape[0] == x.shape[0],
            scores.shape[-1] == w.shape[0],  # so that every expert that is chosen has a matrix
            bins == w.shape[0],
            counts.dtype == "f32",  # half precision would not tell all experts apart
            last == bins - 1,
        ],
    )


def _product_of_groups(x: Value, w: Value, ends: Value, stored: str) -> Value:
    """Row r of `x` times the matrix of the group that r is in: `w[g]` for `ends[g - 1] <= r < ends[g]`, or its
    transpose. A row after the last group is zero."""
    count = w.shape[0]
    assert count is not None
    row = coreai.expand_dims(positions(coreai, size_of(coreai, x, 0)), [1])
    ended = coreai.not_(coreai.broadcasting_greater(coreai.expand_dims(as_index(coreai, ends), [0]), row))
    group = coreai.shrink_dims(coreai.reduce_sum(coreai.cast(ended, "si32"), [1]), [1])
    product = grouped_product(x, w, coreai.broadcasting_minimum(group, count - 1), stored)
    inside = coreai.expand_dims(coreai.broadcasting_greater(count, group), [1])
    return coreai.broadcasting_where(inside, product, coreai.constant(0.0, x.element_type))


@rule(name="gather_mm of groups by their ends", example={
    "x": "6x4xf32", "w": "3x5x4xf32", "ends": "3xsi32[6,6]",  # equal ends, because ends must not decrease
})  # fmt: skip
def grouped_by_ends(a: AtenSource, c: Composites, x: Capture, w: Capture, ends: Capture) -> Rewrite:
    """x[r] @ w[g] for ends[g - 1] <= r < ends[g]

    The experts of transformers by default, if "gather_mm of groups" does not know the expert of each row, because sizes
    are dynamic or experts are chosen in another way. The ends must not decrease, as both ops demand; rows after the
    last end are zero (`_grouped_mm` leaves them undefined).
    """
    product, conditions = _grouped_mm(a, x, w, ends)
    return Rewrite(
        product,
        to=build(_product_of_groups, x, w, ends, tag("stored")),
        where=[
            *conditions,
            w.shape[0] > 0,
            ends.rank == 1,
            ends.shape[0] == w.shape[0],
            ends.dtype.is_in("si32", "si64"),
        ],
    )


def _inverse_permutation(permutation: Value) -> Value:
    """The positions that sort a permutation."""
    order = coreai.argsort(coreai.cast(permutation, "si32"), 0, False, True)
    return coreai.cast(order, permutation.element_type)


@rule(name="inverse permutation", example={"x": "6xf32", "size": 6, "descending": False})
def inverse(a: AtenSource, c: Composites, x: Capture, size: Attr, descending: Attr) -> Rewrite:
    """inverse = empty(n); inverse[p] = arange(n) -> argsort(p), where p is the order of a sort

    The inverse brings the rows of experts back into the order of the tokens.
    """
    permutation = a.escaping(a.op("sort", x, dim=ANY, descending=descending)[1])
    empty = a.empty_permuted([size], [0], dtype=ANY)
    positions = a.op("arange.start_step", 0, size, 1, dtype=ANY)
    put = a.op("index_put", empty, indices=[permutation], values=positions, accumulate=False)
    return Rewrite(
        put, to=build(_inverse_permutation, permutation), where=[x.rank == 1, put.dtype == permutation.dtype]
    )
