"""Norms that models write out, or that PyTorch decomposes, as composites.

    rms_norm       x / sqrt(mean(x ** 2) + eps) * w             over the last axis
    layer_norm     (x - mean) / sqrt(variance + eps) * w + b    over the last axes
    instance_norm  the same over the positions of each channel
    group_norm     the same over groups of channels and their positions

The composites compute in float32 and round once. Models of half precision cast to float32 for the statistics, the
product or both, and cast back before the weight or after it. A norm that is computed in half precision does not match.
"""

from __future__ import annotations

from typing import Any

from patcomp.authoring import AtenSource, Composites, coreai
from patcomp.ir.value import Value
from patcomp.patterns import ANY, LAST, Attr, Capture, Const, Rewrite, any_of, build, call, check, rule, tag
from patcomp.patterns.language import AnyOf
from patcomp.patterns.match import Match
from patterns_catalog.composites.norms import eps_of_batch, group_norm, instance_norm, layer_norm, rms_norm
from patterns_catalog.recover.normalization import affine, filled
from patterns_catalog.sizes import size_of

# ---- parts of the formulas -------------------------------------------------------------------------


def _cast_or(a: AtenSource, x: Any) -> AnyOf:
    """x, or x cast to another type. Each call is a node of its own: one cast for all uses and a cast for each match."""
    return any_of(a._to_copy(x, dtype=ANY), x)


def _mean(a: AtenSource, x: Any, axes: Any) -> Any:
    return a.op("mean.dim", x, dim=axes, keepdim=True, dtype=None)


def _square(a: AtenSource, x: Any) -> AnyOf:
    return any_of(a.pow(x, 2.0), x * x)


def _over_root(a: AtenSource, x: Any, square: Any) -> AnyOf:
    """x / sqrt(square)"""
    root = any_of(a.sqrt(square), a.pow(square, 0.5))
    # PyTorch computes 1.0 / root as reciprocal(root) * 1.0
    inverse = any_of(a.rsqrt(square), a.pow(square, -0.5), a.reciprocal(root), a.reciprocal(root) * 1.0, 1.0 / root)
    return any_of(x * inverse, x / root)


def _standardized(a: AtenSource, x: Any, eps: Const, axes: Attr) -> AnyOf:
    """(x - mean) / sqrt(variance + eps); the variance is divided by the count (correction 0)."""
    # many models compute one mean and one difference, others two of them
    centered, again = (_cast_or(a, x) - _mean(a, _cast_or(a, x), axes) for _ in range(2))
    variance = a.op("var.correction", _cast_or(a, x), dim=axes, correction=0, keepdim=True)
    return _over_root(a, centered, any_of(_mean(a, _square(a, again), axes), variance) + eps)


def _norm(
    a: AtenSource, x: Any, normal: Any, w: Any, b: Any, eps: Const, *, to: Any, where: list[Any], back: Any = None
) -> Rewrite:
    """normal * w + b, normal * w or normal, where `normal` is float32, and the result has the type of x.

    Args:
        back: the normalised value in the shape of x, if `normal` has another shape.
    """
    before = normal if back is None else back
    rounded = _cast_or(a, before)
    ways: dict[str, Any] = {"both": rounded * w + b} if b is not None else {}
    ways |= {"one": rounded * w, "none": before}
    result = _cast_or(a, any_of(*ways.values(), tag="weights", tags=tuple(ways)))
    is_rounded_once = (tag("weights") == "none") | rounded.dtype.is_in("f32", x.dtype)
    types = [x.dtype.is_in("f32", "f16", "bf16"), normal.dtype == "f32", result.dtype == x.dtype, is_rounded_once]
    return Rewrite(result, to=to, where=[eps.rank == 0, *types, *where])


# ---- rms_norm --------------------------------------------------------------------------------------


def _rms_norm(x: Value, w: Value | None, eps: float) -> Value:
    """An `rms_norm`; a missing weight defaults to ones."""
    return rms_norm(x, filled(coreai, w, 1.0, [size_of(coreai, x, -1)], x.element_type), eps=eps, axes=-1)


@rule(name="rms_norm", example={"x": "2x3x8xf32", "w": "8xf32", "eps": 1e-6})
def recovered_rms_norm(a: AtenSource, c: Composites, x: Capture, w: Capture, eps: Const) -> Rewrite:
    """x / sqrt(mean(x ** 2, -1) + eps) * w

    Half precision is cast back before the weight (Llama, Mistral, Qwen, Phi, T5) or after it (Gemma, whose w is
    1 + weight; OLMo2; PyTorch's RMSNorm), where w is float32. Without a weight: Llama 4's queries and keys, Gemma 3n's
    values, RMSNorm without elementwise_affine.
    """
    normal = _over_root(a, _cast_or(a, x), _mean(a, _square(a, _cast_or(a, x)), [LAST]) + eps)
    own_shape = (tag("weights") == "none") | (w.shape == x.shape[-1:])
    to = build(_rms_norm, x, w, eps.value)
    return _norm(a, x, normal, w, None, eps, to=to, where=[x.shape[-1] > 0, own_shape])


# ---- layer_norm ------------------------------------------------------------------------------------


def _layer_norm(x: Value, w: Value | None, b: Value | None, axes: list[int], eps: float) -> Value:
    """A `layer_norm`; a missing weight defaults to ones, a missing bias to zeros."""
    gamma, beta = affine(coreai, w, b, [size_of(coreai, x, axis) for axis in axes], x.element_type)
    return layer_norm(x, gamma, beta, axes=list(axes), eps=eps)


def _weights(match: Match) -> list[Value]:
    """The weight and the bias that a match has."""
    return [value for value in (match["w"], match["b"]) if value is not None]


def _normalizes_last_axes(match: Match) -> bool:
    """Whether the axes are the last ones of x, and weights have their shape."""
    x, axes = match["x"], list(match["axes"])
    size = tuple(x.shape[axis] for axis in axes)
    last = len(axes) > 0 and axes == list(range(x.rank - len(axes), x.rank))
    return last and None not in size and all(value.shape == size for value in _weights(match))


@rule(
    name="layer_norm written out",
    example={"x": "2x3x8xf32", "w": "8xf32", "b": "8xf32", "eps": 1e-5, "axes": [2]},
)
def recovered_layer_norm(
    a: AtenSource, c: Composites, x: Capture, w: Capture, b: Capture, eps: Const, axes: Attr
) -> Rewrite:
    """(x - mean) / sqrt(variance + eps) * w + b over the last axes

    DeBERTa, Cohere, OLMo, ConvNeXt, and PyTorch's decomposition.
    """
    return _norm(
        a, x, _standardized(a, x, eps, axes), w, b, eps,
        to=build(_layer_norm, x, w, b, axes, eps.value),
        where=[check("the axes are the last ones of x, and w and b have their shape", _normalizes_last_axes)],
    )  # fmt: skip


# ---- instance_norm ---------------------------------------------------------------------------------


def _instance_norm(x: Value, w: Value | None, b: Value | None, eps: float) -> Value:
    """An `instance_norm`; weight and bias have C elements in any shape and default to ones and zeros."""
    channels = size_of(coreai, x, 1)
    column = [channels, *([1] * (x.rank - 2))]
    gamma, beta = affine(coreai, w, b, [channels], x.element_type)
    return instance_norm(x, coreai.reshape(gamma, column), coreai.reshape(beta, column), eps=eps)


def _are_positions(match: Match) -> bool:
    return list(match["axes"]) == list(range(2, match["x"].rank))


def _is_per_channel(match: Match) -> bool:
    """Whether weights are one number for each channel of x, which broadcasts over the positions."""
    x = match["x"]
    column = (x.shape[1], *([1] * (x.rank - 2)))
    return None not in column and all(
        value.rank <= x.rank and value.shape[-len(column) :] == column and set(value.shape[: -len(column)]) <= {1}
        for value in _weights(match)
    )


@rule(
    name="instance_norm written out", priority=1,
    example={"x": "2x4x5x3xf32", "w": "4x1x1xf32", "b": "1x4x1x1xf32", "eps": 1e-5, "axes": [2, 3]},
)  # fmt: skip
def recovered_instance_norm(
    a: AtenSource, c: Composites, x: Capture, w: Capture, b: Capture, eps: Const, axes: Attr
) -> Rewrite:
    """(x - mean) / sqrt(variance + eps) * w + b over the positions of each channel

    Style transfer; StyleGAN without w and b. The formula is that of layer_norm, so this rule is tried first; without
    weights, a norm over one position axis is a layer norm.
    """
    return _norm(
        a, x, _standardized(a, x, eps, axes), w, b, eps,
        to=build(_instance_norm, x, w, b, eps.value),
        where=[
            x.rank > 2,
            check("the axes are those after the channels", _are_positions),
            (x.rank > 3) | (tag("weights") != "none"),
            check("w and b have a number for each channel", _is_per_channel),
        ],
    )  # fmt: skip


def _tiled(a: AtenSource, w: Any) -> AnyOf:
    """A vector repeated for each instance of a batch, which may be a single one."""
    return any_of(a.repeat(w, [ANY]), w)


@rule(
    name="instance_norm as batch_norm",
    example={
        "x": "1x4x5x3xf32", "w": "4xf32", "b": "4xf32", "eps": 1e-5, "flat": [1, 4, 5, 3], "shape": [1, 4, 5, 3],
    },
)  # fmt: skip
def instance_norm_of_batch(
    a: AtenSource, c: Composites, x: Capture, w: Capture, b: Capture, eps: Attr, flat: Attr, shape: Attr
) -> Rewrite:
    """batch_norm(view(x, [1, N * C, ...]), repeat(w), repeat(b)) with its own statistics

    PyTorch's default table decomposes instance_norm so.
    """
    source = any_of(a.view(x, size=flat), x)
    name = "_native_batch_norm_legit.no_stats"
    made = any_of(
        a.op(name, source, _tiled(a, w), _tiled(a, b), training=True, momentum=ANY, eps=eps)[0],
        a.op(name, source, None, None, training=True, momentum=ANY, eps=eps)[0],
    )
    result = any_of(a.view(made, size=shape), made)

    def one_instance(match: Match) -> bool:
        instances, channels, *positions = match["x"].shape
        whole = (1, instances * channels, *positions)
        return match[source].shape == whole and all(value.shape == (channels,) for value in _weights(match))

    return Rewrite(
        result,
        to=build(_instance_norm, x, w, b, call(eps_of_batch, eps)),
        where=[
            x.is_static,
            x.rank > 2,
            x.dtype.is_in("f32", "f16", "bf16"),
            result.shape == x.shape,
            check("the batch norm has one instance, and the channels of all of x", one_instance),
        ],
    )


# ---- batch_norm ------------------------------------------------------------------------------------


def _are_columns(match: Match) -> bool:
    """Whether the vectors have a number for each channel of x, along which the views lay them."""
    x, column = match["x"], list(match["column"])
    channels = x.shape[1] if x.rank > 1 else None
    names = ("w", "b", "mean", "variance")
    return (
        channels is not None
        and column in ([1, channels, *[1] * (x.rank - 2)], [channels, *[1] * (x.rank - 2)])
        and all(match[name].shape == (channels,) for name in names)
    )


@rule(
    name="batch_norm written out",
    example={
        "x": "2x4x5x3xf32", "w": "4xf32", "b": "4xf32", "mean": "4xf32", "variance": "4xf32[0.5,2]", "eps": 1e-5,
        "column": [1, 4, 1, 1],
    },
)  # fmt: skip
def recovered_batch_norm(
    a: AtenSource, c: Composites, x: Capture, w: Capture, b: Capture, mean: Capture, variance: Capture, eps: Const,
    column: Attr,
) -> Rewrite:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * w + b for each channel, as other formats spell a batch norm"""
    mean_column, w_column, b_column = (a.view(each, size=column) for each in (mean, w, b))
    square = any_of(a.view(variance + eps, size=column), a.view(variance, size=column) + eps)
    result = _over_root(a, x - mean_column, square) * w_column + b_column
    return Rewrite(
        result,
        to=c.batch_norm(x, w, b, mean, variance, eps=eps.value),
        where=[
            eps.rank == 0,
            *(each.dtype == "f32" for each in (x, w, b, mean, variance)),
            check("the vectors have a number for each channel", _are_columns),
        ],
    )


# ---- group_norm ------------------------------------------------------------------------------------


def _group_norm(x: Value, w: Value | None, b: Value | None, groups: int, eps: float) -> Value:
    """A `group_norm`; weight and bias have C elements in any shape and default to ones and zeros."""
    channels = x.static_shape[1]
    weight, bias = (coreai.reshape(v, [channels]) for v in affine(coreai, w, b, [channels], x.element_type))
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
    name="group_norm written out",
    example={
        "x": "2x4x5xf32", "w": "4x1xf32", "b": "1x4x1xf32", "eps": 1e-5, "grouped": [2, 2, 10], "axes": [2],
        "shape": [2, 4, 5],
    },
)  # fmt: skip
def recovered_group_norm(
    a: AtenSource, c: Composites, x: Capture, w: Capture, b: Capture, eps: Const, grouped: Attr, axes: Attr, shape: Attr
) -> Rewrite:
    """view((y - mean) / sqrt(variance + eps), x.shape) * w + b, where y is view(x, [N, groups, ...])

    Diffusion models and vision transformers; w and b have a number for each channel.
    """
    normal = _standardized(a, a.view(_cast_or(a, x), size=grouped), eps, axes)
    back = a.view(_cast_or(a, normal), size=shape)
    return _norm(
        a, x, normal, w, b, eps, back=back,
        to=build(_group_norm, x, w, b, grouped[1], eps.value),
        where=[
            x.is_static,
            check("the view splits the channels into groups, and the axes are all after them", _splits_channels),
            back.shape == x.shape,
            back.dtype.is_in("f32", x.dtype),
            check("w and b have a number for each channel", _is_per_channel),
        ],
    )  # fmt: skip
