"""Normalisation layers that models write out, or that PyTorch takes apart, as composites."""

from __future__ import annotations

from typing import Any

from patcomp.authoring import AtenSource, Composites, Targets, coreai
from patcomp.ir.value import Value
from patcomp.patterns import ANY, LAST, Attr, Const, FunctionTable, Rewrite, any_of, check, rule, tag
from patcomp.patterns.expressions import Expression
from patcomp.patterns.language import AnyOf
from patcomp.patterns.match import Match
from patterns_catalog.composites.normalization import affine, group_norm, instance_norm, layer_norm, rms_norm
from patterns_catalog.sizes import size_of

_TABLE = FunctionTable("norms")

# ---- parts of the formulas -------------------------------------------------------------------------


def _cast_or(a: AtenSource, x: Any) -> AnyOf:
    """x, or x cast to another type; conditions say which."""
    return any_of(a._to_copy(x, dtype=ANY), x)


def _mean(a: AtenSource, x: Any, axes: Any) -> Any:
    return a.op("mean.dim", x, dim=axes, keepdim=True, dtype=None)


def _square(a: AtenSource, x: Any) -> AnyOf:
    return any_of(a.pow(x, 2.0), x * x)


def _over_root(a: AtenSource, x: Any, square: Any) -> AnyOf:
    """x divided by the root of a square, in the ways in which models write it."""
    root = any_of(a.sqrt(square), a.pow(square, 0.5))
    # PyTorch computes 1.0 / root as reciprocal(root) * 1.0
    inverse = any_of(a.rsqrt(square), a.pow(square, -0.5), a.reciprocal(root), a.reciprocal(root) * 1.0, 1.0 / root)
    return any_of(x * inverse, x / root)


class _Standardized:
    """(x - mean) / sqrt(variance + eps) over axes, the variance divided by the count (correction 0).

    Each `_cast_or` is a node of its own, so that one cast for all and a cast for each use both match; so are the
    two means and differences, of which many models compute only one.
    """

    def __init__(self, a: AtenSource, x: Any, eps: Const, axes: Attr):
        centered = _cast_or(a, x) - _mean(a, _cast_or(a, x), axes)
        again = _cast_or(a, x) - _mean(a, _cast_or(a, x), axes)
        variance = any_of(
            _mean(a, _square(a, again), axes),
            a.op("var.correction", _cast_or(a, x), dim=axes, correction=0, keepdim=True),
        )
        self.value = _over_root(a, centered, variance + eps)
        self.where = [centered.dtype == "f32", variance.dtype == "f32", self.value.dtype == "f32", eps.rank == 0]


class _Affine:
    """normal * w + b, normal * w or normal, with a cast to x's type before the weight, at the end, or nowhere.

    The composites compute in float32 and round once, where some models round before the weight and after it.
    """

    def __init__(self, a: AtenSource, x: Any, normal: Any, w: Any, b: Any):
        rounded = _cast_or(a, normal)
        scaled = rounded * w
        self.value = _cast_or(a, any_of(scaled + b, scaled, normal, tag="weights", tags=("both", "one", "none")))
        self.where = [
            x.dtype.is_in("f32", "f16", "bf16"),
            self.value.dtype == x.dtype,
            (tag("weights") == "none") | rounded.dtype.is_in("f32", x.dtype),
        ]


def _trailing(x: Any, axes: Attr) -> Expression:
    def last(match: Match) -> bool:
        rank = match[x.name].rank
        return len(match["axes"]) > 0 and list(match["axes"]) == list(range(rank - len(match["axes"]), rank))

    return check("the axes are the last ones of x", last)


def _weights(match: Match) -> list[Value]:
    """The weight and the bias that a match has."""
    return [value for value in (match["w"], match["b"]) if value is not None]


# ---- rms_norm --------------------------------------------------------------------------------------


def _rms(a: AtenSource, x: Any, eps: Const) -> tuple[AnyOf, list[Expression]]:
    """x / sqrt(mean(x ** 2, -1) + eps), and when it is that."""
    square = _mean(a, _square(a, _cast_or(a, x)), [LAST])
    normal = _over_root(a, _cast_or(a, x), square + eps)
    where = [
        x.dtype.is_in("f32", "f16", "bf16"),
        square.dtype == "f32",
        normal.dtype == "f32",
        eps.rank == 0,
    ]
    return normal, where


@rule(name="rms_norm", example={"x": "2x3x8xf32", "w": "8xf32", "eps": 1e-6})
def recovered_rms_norm(a: AtenSource, c: Composites, x: Any, w: Any, eps: Const) -> Rewrite:
    """x * rsqrt(mean(x ** 2, -1) + eps) * w, in float32, or the same by a root and a division.

    Half precision is cast to float32 for the square, the product or both at once, and back before the weight
    (Llama, Mistral, Qwen, Phi, T5) or after it (Gemma, whose w is 1 + weight; OLMo2; PyTorch's RMSNorm), where w is
    float32. Models that stay in half precision throughout do not match: the composite computes in float32.
    """
    normal, where = _rms(a, x, eps)
    rounded = _cast_or(a, normal)
    result = _cast_or(a, rounded * w)
    return Rewrite(
        result,
        to=c.rms_norm(x, w, eps=eps.value, axes=-1),
        where=[
            *where,
            rounded.dtype.is_in("f32", x.dtype),
            result.dtype == x.dtype,
            w.dtype == rounded.dtype,
            w.rank == 1,
            w.shape[0] == x.shape[-1],
        ],
    )


@_TABLE.define
def rms_norm_without_scale(x: Value, *, eps: float, result_types: Any = None) -> Value:
    """An `rms_norm` whose scale is ones."""
    return rms_norm(x, affine(coreai, None, 1.0, [size_of(coreai, x, -1)], x.element_type), eps=eps, axes=-1)


@rule(target=_TABLE, name="rms_norm without scale", example={"x": "2x3x8xf32", "eps": 1e-6})
def recovered_rms_norm_without_scale(a: AtenSource, c: Targets, x: Any, eps: Const) -> Rewrite:
    """x * rsqrt(mean(x ** 2, -1) + eps) without weights, or with such as are none of the composite's
    (Llama 4's queries and keys, Gemma 3n's values, RMSNorm without elementwise_affine)."""
    normal, where = _rms(a, x, eps)
    result = _cast_or(a, normal)
    return Rewrite(
        result,
        to=c.rms_norm_without_scale(x, eps=eps.value),
        where=[*where, result.dtype == x.dtype, x.shape[-1] > 0],
    )


# ---- layer_norm ------------------------------------------------------------------------------------


@_TABLE.define
def affine_layer_norm(
    x: Value, w: Value | None, b: Value | None, *, axes: list[int], eps: float, result_types: Any = None
) -> Value:
    """A `layer_norm` with ones and zeros for the weights that there are not."""
    size = [size_of(coreai, x, axis) for axis in axes]
    weight, bias = (affine(coreai, value, fill, size, x.element_type) for value, fill in ((w, 1.0), (b, 0.0)))
    return layer_norm(x, weight, bias, axes=list(axes), eps=eps)


def _has_normalized_shape(match: Match) -> bool:
    size = match["x"].shape[-len(match["axes"]) :]
    return None not in size and all(value.shape == size for value in _weights(match))


@rule(
    target=_TABLE,
    name="layer_norm written out",
    example={"x": "2x3x8xf32", "w": "8xf32", "b": "8xf32", "eps": 1e-5, "axes": [2]},
)
def recovered_layer_norm(a: AtenSource, c: Targets, x: Any, w: Any, b: Any, eps: Const, axes: Attr) -> Rewrite:
    """(x - mean) / sqrt(var + eps) * w + b over the last axes, in float32 (DeBERTa, Cohere, OLMo, ConvNeXt, and
    PyTorch's decomposition).

    The variance is `var` with correction 0 or the mean of (x - mean) ** 2; the root is an `rsqrt`, or divides.
    """
    standardized = _Standardized(a, x, eps, axes)
    affine_ = _Affine(a, x, standardized.value, w, b)
    return Rewrite(
        affine_.value,
        to=c.affine_layer_norm(x, w, b, axes=axes, eps=eps.value),
        where=[
            _trailing(x, axes),
            *standardized.where,
            *affine_.where,
            check("w and b have the shape of the axes", _has_normalized_shape),
        ],
    )


# ---- instance_norm ---------------------------------------------------------------------------------


@_TABLE.define
def affine_instance_norm(x: Value, w: Value | None, b: Value | None, *, eps: float, result_types: Any = None) -> Value:
    """An `instance_norm` with weights of any shape of C elements, or none."""
    channels = size_of(coreai, x, 1)
    column = [channels, *([1] * (x.rank - 2))]
    weight, bias = (
        coreai.reshape(affine(coreai, value, fill, [channels], x.element_type), column)
        for value, fill in ((w, 1.0), (b, 0.0))
    )
    return instance_norm(x, weight, bias, eps=eps)


def _is_per_channel(match: Match) -> bool:
    """Whether weights are one number for each channel of x, which broadcasts over the positions."""
    x = match["x"]
    column = (x.shape[1], *([1] * (x.rank - 2)))
    return None not in column and all(
        value.shape[-len(column) :] == column and set(value.shape[: -len(column)]) <= {1} for value in _weights(match)
    )


@rule(
    target=_TABLE,
    name="instance_norm written out", priority=1,
    example={"x": "2x4x5x3xf32", "w": "4x1x1xf32", "b": "1x4x1x1xf32", "eps": 1e-5, "axes": [2, 3]},
)  # fmt: skip
def recovered_instance_norm(a: AtenSource, c: Targets, x: Any, w: Any, b: Any, eps: Const, axes: Attr) -> Rewrite:
    """(x - mean) / sqrt(var + eps) * w + b over the positions of each channel, with w and b for each channel
    (style transfer; StyleGAN's, without w and b).

    Without weights, a norm over one position axis is a layer norm. Before layer_norm, whose formula is the same.
    """
    standardized = _Standardized(a, x, eps, axes)
    affine_ = _Affine(a, x, standardized.value, w, b)
    return Rewrite(
        affine_.value,
        to=c.affine_instance_norm(x, w, b, eps=eps.value),
        where=[
            _trailing(x, axes),
            x.rank > 2,
            axes[0] == 2,
            (x.rank > 3) | (tag("weights") != "none"),
            *standardized.where,
            *affine_.where,
            check("w and b have a number for each channel", _is_per_channel),
        ],
    )


def _tiled(a: AtenSource, w: Any) -> AnyOf:
    """A vector repeated for each instance of a batch, which may be a single one."""
    return any_of(a.repeat(w, [ANY]), w)


@rule(
    target=_TABLE,
    name="instance_norm as batch_norm",
    example={
        "x": "1x4x5x3xf32", "w": "4xf32", "b": "4xf32", "eps": 1e-5, "flat": [1, 4, 5, 3], "shape": [1, 4, 5, 3],
    },
)  # fmt: skip
def instance_norm_of_batch(
    a: AtenSource, c: Targets, x: Any, w: Any, b: Any, eps: Attr, flat: Attr, shape: Attr
) -> Rewrite:
    """A batch norm with statistics of its own of x as one instance of N * C channels, which is how PyTorch's default
    table takes instance_norm apart."""
    source = any_of(a.view(x, size=flat), x)
    weight, bias = _tiled(a, w), _tiled(a, b)
    name = "_native_batch_norm_legit.no_stats"
    made = any_of(
        a.op(name, source, weight, bias, training=True, momentum=ANY, eps=eps)[0],
        a.op(name, source, None, None, training=True, momentum=ANY, eps=eps)[0],
        tag="weights",
        tags=("both", "none"),
    )
    result = any_of(a.view(made, size=shape), made)

    def one_instance(match: Match) -> bool:
        instances, channels, *positions = match["x"].shape
        flat_shape = match[source].shape
        return bool(positions) and flat_shape == (1, instances * channels, *positions)

    return Rewrite(
        result,
        to=c.affine_instance_norm(x, w, b, eps=eps),
        where=[
            x.is_static,
            x.rank > 2,
            x.dtype.is_in("f32", "f16", "bf16"),
            result.shape == x.shape,
            check("the batch norm has one instance, and the channels of all of x", one_instance),
            (tag("weights") == "none") | ((w.rank == 1) & (w.shape[0] == x.shape[1])),
            (tag("weights") == "none") | ((b.rank == 1) & (b.shape[0] == x.shape[1])),
            (tag("weights") == "none") | (weight.shape[0] == source.shape[1]),
            (tag("weights") == "none") | (bias.shape[0] == source.shape[1]),
        ],
    )


# ---- group_norm ------------------------------------------------------------------------------------


@_TABLE.define
def affine_group_norm(
    x: Value, w: Value | None, b: Value | None, *, groups: int, eps: float, result_types: Any = None
) -> Value:
    """A `group_norm` with weights of any shape of C elements, or none."""
    channels = x.static_shape[1]
    weight, bias = (
        coreai.reshape(affine(coreai, value, fill, [channels], x.element_type), [channels])
        for value, fill in ((w, 1.0), (b, 0.0))
    )
    return group_norm(x, weight, bias, num_groups=groups, num_channels=channels, eps=eps)


def _splits_channels(match: Match) -> bool:
    """Whether a view is [N, groups, ...] of [N, C, ...], and the axes are all after the groups."""
    x, view, axes = match["x"], match["grouped"], match["axes"]
    return (
        len(view) > 2
        and x.rank > 1
        and view[0] == x.shape[0]
        and view[1] > 0
        and x.shape[1] % view[1] == 0
        and list(axes) == list(range(2, len(view)))
    )


@rule(
    target=_TABLE,
    name="group_norm written out",
    example={
        "x": "2x4x5xf32", "w": "4x1xf32", "b": "1x4x1xf32", "eps": 1e-5, "grouped": [2, 2, 10], "axes": [2],
        "shape": [2, 4, 5],
    },
)  # fmt: skip
def recovered_group_norm(
    a: AtenSource, c: Targets, x: Any, w: Any, b: Any, eps: Const, grouped: Attr, axes: Attr, shape: Attr
) -> Rewrite:
    """view(normal(view(x, [N, groups, ...])), x.shape) * w + b, with w and b for each channel: hand-written group norms
    of diffusion models and vision transformers."""
    split = a.view(_cast_or(a, x), size=grouped)
    standardized = _Standardized(a, split, eps, axes)
    back = a.view(_cast_or(a, standardized.value), size=shape)
    affine_ = _Affine(a, x, back, w, b)
    return Rewrite(
        affine_.value,
        to=c.affine_group_norm(x, w, b, groups=grouped[1], eps=eps.value),
        where=[
            x.is_static,
            check("the view splits the channels into groups, and the axes are all after them", _splits_channels),
            back.shape == x.shape,
            back.dtype.is_in("f32", x.dtype),
            *standardized.where,
            *affine_.where,
            check("w and b have a number for each channel", _is_per_channel),
        ],
    )
