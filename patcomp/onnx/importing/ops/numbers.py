"""What ops give of known numbers: how files compute sizes."""

from __future__ import annotations

import math
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import torch

from patcomp.onnx.importing.rows import on_numbers
from patcomp.onnx.importing.values import MOST_KNOWN, KnownArray, known_array, objects


def _numbers(x: Any) -> list[Any]:
    return objects(x).reshape(-1).tolist()


def _whole(x: Any) -> list[int]:
    """Whole numbers: places and sizes in an array of known numbers.

    Raises:
        NotImplementedError: one is open, so the op is one of tensors.
    """
    numbers = _numbers(x)
    if not all(isinstance(number, int) for number in numbers):
        raise NotImplementedError
    return numbers


def _pairs(function: Any, x: Any, y: Any) -> np.ndarray:
    """The results on pairs of numbers of arrays that broadcast."""
    x, y = np.broadcast_arrays(x, y)
    made = np.empty(x.size, dtype=object)
    for index, pair in enumerate(zip(x.reshape(-1), y.reshape(-1), strict=True)):
        made[index] = function(*pair)
    return made.reshape(x.shape)


def _quotient(x: Any, y: Any) -> Any:
    """Of integers, rounded to zero; sizes are not negative."""
    if isinstance(x, int) and isinstance(y, int):
        return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return x / y if isinstance(x, float) or isinstance(y, float) else x // y


for _name, _function in {
    "Add": lambda x, y: x + y, "Sub": lambda x, y: x - y, "Mul": lambda x, y: x * y, "Div": _quotient,
    "Mod": lambda x, y: x % y, "Pow": lambda x, y: x**y,
}.items():  # fmt: skip
    on_numbers(_name)(lambda x, y, function=_function, **attributes: _pairs(function, x, y))

for _name, _function in {
    "Equal": lambda x, y: bool(x == y), "Greater": lambda x, y: bool(x > y), "Less": lambda x, y: bool(x < y),
    "GreaterOrEqual": lambda x, y: bool(x >= y), "LessOrEqual": lambda x, y: bool(x <= y),
    "And": lambda x, y: bool(x and y), "Or": lambda x, y: bool(x or y),
}.items():  # fmt: skip
    on_numbers(_name)(lambda x, y, function=_function: known_array(_pairs(function, x, y), torch.bool))

_OF_ONE: dict[str, Any] = {"Neg": lambda x: -x, "Abs": abs, "Not": lambda x: not x}
for _name, _of_one in _OF_ONE.items():
    on_numbers(_name)(lambda x, function=_of_one: _pairs(lambda n, _: function(n), x, x))


@on_numbers("Sqrt")
def sqrt(x: Any) -> Any:
    if not all(isinstance(number, float) and number >= 0 for number in _numbers(x)):
        raise NotImplementedError
    return _pairs(lambda n, _: math.sqrt(n), x, x)


@on_numbers("Reciprocal")
def reciprocal(x: Any) -> Any:
    return _pairs(lambda n, _: 1.0 / n, x, x)


@on_numbers("Max")
def _max_(*x: Any) -> Any:
    return reduce(lambda a, b: _pairs(torch.sym_max, a, b), x)


@on_numbers("Min")
def _min_(*x: Any) -> Any:
    return reduce(lambda a, b: _pairs(torch.sym_min, a, b), x)


@on_numbers("Gather")
def _gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    return np.take(x, np.array(_whole(indices), dtype=int).reshape(indices.shape), axis)


@on_numbers("Concat")
def _concat(*x: Any, axis: int) -> Any:
    return np.concatenate(x, axis)


@on_numbers("Slice")
def _slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    first, last = _whole(starts), _whole(ends)
    places = list(range(len(first))) if axes is None else _whole(axes)
    strides = [1] * len(first) if steps is None else _whole(steps)
    where = [slice(None)] * x.ndim
    for start, end, axis, step in zip(first, last, places, strides, strict=True):
        where[axis] = slice(start, None if step < 0 and end < -x.shape[axis] else end, step)
    return x[tuple(where)]


@on_numbers("Unsqueeze")
def _unsqueeze(x: Any, axes: Any) -> Any:
    return np.expand_dims(x, tuple(_whole(axes)))


@on_numbers("Squeeze")
def _squeeze(x: Any, axes: Any = None) -> Any:
    return np.squeeze(x, None if axes is None else tuple(_whole(axes)))


@on_numbers("Reshape")
def _reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    return x.reshape([x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(_whole(shape))])


@on_numbers("Transpose")
def _transpose(x: Any, *, perm: Any = None) -> Any:
    return np.transpose(x, perm)


@on_numbers("Expand")
def _expand(x: Any, shape: Any) -> Any:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, _small(_numbers(shape))))


@on_numbers("Tile")
def _tile(x: Any, repeats: Any) -> Any:
    _small([*x.shape, *_numbers(repeats)])
    return np.tile(x, _numbers(repeats))


@on_numbers("ConstantOfShape")
def _constant_of_shape(shape: Any, *, value: KnownArray | None = None) -> KnownArray:
    made = np.empty(_small(_numbers(shape)), dtype=object)
    made[...] = 0.0 if value is None else value.number
    return known_array(made, torch.float32 if value is None else value.dtype)


@on_numbers("Range")
def _range_(start: Any, limit: Any, delta: Any, **attributes: Any) -> Any:
    first, last, step = (_numbers(each)[0] for each in (start, limit, delta))
    if not all(isinstance(each, int) for each in (first, last, step)):
        raise NotImplementedError
    numbers = range(first, last, step)
    _small([len(numbers)])
    return objects(list(numbers))


@on_numbers("Where")
def _where(condition: Any, x: Any, y: Any) -> Any:
    condition, x, y = np.broadcast_arrays(condition, x, y)
    return np.where(condition.astype(bool), x, y)


@on_numbers("ReduceProd")
def product(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
    if x.ndim != 1:
        raise NotImplementedError
    return objects([prod(x.tolist())] if keepdims else prod(x.tolist()))


@on_numbers("Split")
def _split(x: Any, split: Any = None, *, axis: int = 0, num_outputs: int = 0) -> Any:
    if split is None:
        raise NotImplementedError
    return tuple(np.split(x, np.cumsum(_whole(split))[:-1].astype(int), axis))


def _small(shape: list[Any]) -> tuple[int, ...]:
    """A shape of few elements.

    Raises:
        NotImplementedError: it is open or large, so the op is one of tensors.
    """
    if prod(_whole(shape)) > MOST_KNOWN:
        raise NotImplementedError
    return tuple(shape)
