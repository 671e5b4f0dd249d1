"""Programs of nested loops and branches around every op that reads an element elsewhere than it writes it.

Drawn on the level of Core AI ops, where a hundred take the runtime a few seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from patcomp.defects.known.conditions_in_place import carry_conditions
from patcomp.defects.known.moved_copies import choose_outside_values
from patcomp.defects.known.repeated_in_loops import compute_before_loops
from patcomp.ir import IRModule, Value
from patcomp.ir import coreai as c
from patcomp.ir.cleanup import merge_equal_ops, remove_dead_ops
from patcomp.patterns.statistics import Statistics
from tests.helpers.defects import own_values
from tests.helpers.programs import program

N = 4
"""Values are square matrices of that size."""
ELEMENTS = {"f32": np.float32, "f16": np.float16, "si32": np.int32}
_ORDER = np.array([3, 0, 2, 1], np.int32)
_ALONG = np.tile(_ORDER, (N, 1))
_ROWS = _ORDER[:, None]


def _constant(values: object, like: Value | None = None) -> Value:
    return c.constant(np.array(values), "si32" if like is None else like.element_type)


def _cut(x: Value, start: Sequence[int], end: Sequence[int]) -> Value:
    return c.slice_(x, start, end, [1] * len(start))


def _image(x: Value) -> Value:
    """A matrix as an image with a border of zeros, for windows of 3."""
    border = c.pad(c.reshape(x, [1, 1, N, N]), [0, 0, 0, 0, 1, 1, 1, 1], _constant(0, x), padding_mode="constant")
    return border  # type: ignore[no-any-return]


def _matrix(x: Value) -> Value:
    return c.reshape(x, [N, N])


def _update(x: Value, rows: Value) -> Value:
    first = int(rows.shape[0] == 1) + 1
    return c.slice_update(
        x, _constant([N - rows.shape[0] - first + 1, 0]), _constant([N - first + 1, N]), _constant([1, 1]), rows
    )


def _ones(x: Value, *shape: int) -> Value:
    return _constant(np.ones(shape), x)


MOVES: dict[str, Callable[[Value], Value]] = {
    "reverse rows": lambda x: c.reverse(x, [0]),
    "reverse columns": lambda x: c.reverse(x, [1]),
    "reverse all": lambda x: _matrix(c.reverse(c.reshape(x, [N * N]), [0])),
    "transpose": lambda x: c.transpose(x, [1, 0]),
    "transpose in halves": lambda x: _matrix(c.transpose(c.reshape(x, [2, N // 2, N]), [1, 0, 2])),
    "roll": lambda x: c.concat(0, [_cut(x, [1, 0], [N, N]), _cut(x, [0, 0], [1, N])]),
    "split": lambda x: c.concat(0, list(reversed(c.split(x, [1, N - 1], 0)))),
    "strides": lambda x: c.concat(0, [c.slice_(x, [1, 0], [N, N], [2, 1]), c.slice_(x, [0, 0], [N, N], [2, 1])]),
    "gather_along_axis": lambda x: c.gather_along_axis(x, _constant(_ALONG), 1),
    "gather_nd": lambda x: c.gather_nd(x, _constant(_ROWS)),
    "slice_update of itself": lambda x: _update(x, _cut(x, [0, 0], [N - 1, N])),
    "slice_update": lambda x: _update(x, _ones(x, 1, N)),
    "scatter_along_axis of itself": lambda x: c.scatter_along_axis(x, _constant(_ALONG), x, 1),
    "scatter_along_axis max": lambda x: c.scatter_along_axis(x, _constant(_ALONG), x, 1, scatter_mode="max"),
    "scatter_nd of itself": lambda x: c.scatter_nd(x, _constant(_ROWS), x),
    "scatter_nd of a row": lambda x: c.scatter_nd(x, _constant([[2]]), _cut(x, [0, 0], [1, N])),
    "scatter_nd": lambda x: c.scatter_nd(x, _constant([[1]]), _ones(x, 1, N)),
    "sort": lambda x: c.sort(x, 0, True, True),
    "argsort": lambda x: c.cast(c.argsort(x, 0, True, True), x.element_type),
    "argmax": lambda x: c.broadcasting_sub(x, c.cast(c.argmax(x, 0), x.element_type)),
    "scan": lambda x: c.scan(x, 0, False, scan_op="max"),
    "scan from the end": lambda x: c.scan(x, 1, True, scan_op="min"),
    "tile": lambda x: _cut(c.tile(x, [2, 1]), [1, 0], [N + 1, N]),
    "tile columns": lambda x: _cut(c.tile(x, [1, 2]), [0, 1], [N, N + 1]),
    "broadcast_to": lambda x: c.broadcast_to(_cut(x, [N - 1, 0], [N, N]), [N, N]),
    "broadcast_to of all": lambda x: _cut(
        c.reshape(c.broadcast_to(c.expand_dims(x, [0]), [2, N, N]), [2 * N, N]), [1, 0], [N + 1, N]
    ),
    "broadcast_in_dims": lambda x: _cut(
        c.reshape(c.broadcast_in_dims(c.expand_dims(x, [1]), [2], [1]), [2 * N, N]), [1, 0], [N + 1, N]
    ),
    "shrink_dims": lambda x: c.shrink_dims(c.transpose(c.expand_dims(x, [0]), [0, 2, 1]), [0]),
    "pad": lambda x: _cut(c.pad(x, [1, 0, 0, 0], _constant(0, x), padding_mode="constant"), [0, 0], [N, N]),
    "pad by reflection": lambda x: _cut(
        c.pad(x, [2, 0, 0, 0], _constant(0, x), padding_mode="reflect"), [0, 0], [N, N]
    ),
    "reduce_max": lambda x: c.broadcasting_minimum(x, c.reduce_max(x, [1])),
    "reduce_min": lambda x: c.broadcasting_sub(c.reduce_min(x, [0]), x),
    "max_pool": lambda x: _matrix(c.maxpool2d(_image(x), [3, 3], [1, 1], [1, 1], False)),
    "complement": lambda x: c.broadcasting_sub(_constant(1, x), x),
    "relu": lambda x: c.relu(x),
}  # fmt: skip
"""Functions of a matrix of any element type."""

FLOAT_MOVES: dict[str, Callable[[Value], Value]] = {
    "softmax": lambda x: c.softmax(x, 1),
    "tanh": lambda x: c.tanh(x),
    "batch_matmul with itself": lambda x: c.softmax(c.batch_matmul(x, x), 0),
    "batch_matmul": lambda x: c.batch_matmul(x, _constant(np.eye(N, k=1), x)),
    "broadcasting_batch_matmul": lambda x: c.broadcasting_batch_matmul(_constant(np.eye(N, k=1), x), x),
    "reduce_mean": lambda x: c.broadcasting_sub(x, c.reduce_mean(x, [1])),
    "conv2d": lambda x: _matrix(
        c.conv2d(_image(x), _constant(np.arange(9).reshape(1, 1, 3, 3) / 36, x), [1, 1], [1, 1], 1)
    ),
    "sum_pool": lambda x: c.broadcasting_mul(
        _matrix(c.sumpool2d(_image(x), [3, 3], [1, 1], [1, 1])), _constant(0.125, x)
    ),
    "interpolate": lambda x: c.interpolate(
        x, [N, N], c.constant([1.0, 1.0]), c.constant([0.5, 0.0]), interpolation_mode="linear"
    ),
}  # fmt: skip

PAIRS: dict[str, Callable[[Value, Value], Value]] = {
    "maximum": lambda x, y: c.broadcasting_maximum(x, y),
    "minimum": lambda x, y: c.broadcasting_minimum(x, y),
    "where": lambda x, y: c.broadcasting_where(c.broadcasting_greater(x, y), y, x),
    "where of a flip": lambda x, y: c.broadcasting_where(
        c.broadcasting_greater(x, _constant(0, x)), c.reverse(y, [0]), x
    ),
    "scatter_nd": lambda x, y: c.scatter_nd(x, _constant(_ROWS), y),
    "slice_update": lambda x, y: _update(x, _cut(y, [2, 0], [3, N])),
    "concat": lambda x, y: c.concat(0, [_cut(x, [N // 2, 0], [N, N]), _cut(y, [0, 0], [N // 2, N])]),
    "difference to rows": lambda x, y: c.broadcasting_sub(x, c.gather_nd(y, _constant(_ROWS))),
}  # fmt: skip


def loop(times: int, inits: Sequence[Value], body: Callable[..., Sequence[Value]]) -> list[Value]:
    """`body(*values)` some times; the first carried value counts."""
    return c.while_(
        [c.constant(0), *inits],
        lambda i, *values: c.broadcasting_greater(c.constant(times), i),
        lambda i, *values: [c.broadcasting_add(i, 1), *body(*values)],
    )[1:]


class Draw:
    """Draws a program whose inputs are two matrices.

    Args:
        seed: programs of one seed, element type and depth are the same.
        element: a key of `ELEMENTS`.
        depth: how many levels of loops and branches are in the outermost loop.
    """

    def __init__(self, seed: int, element: str, depth: int = 1):
        self.random, self.element, self.depth = random.Random(f"{seed} {element}"), element, depth
        self.moves = list((MOVES | ({} if element == "si32" else FLOAT_MOVES)).values())
        self.pairs = list(PAIRS.values())

    def program(self) -> IRModule:
        type_ = f"{N}x{N}x{self.element}"
        return program({"x": type_, "y": type_}, self._body)

    def _body(self, x: Value, y: Value) -> list[Value]:
        values = self._ops([x, y], 2, 0) if self.random.random() < 0.5 else [x, y]
        return self._loop(values, self.depth)

    def _ops(self, values: Sequence[Value], count: int, depth: int) -> list[Value]:
        values, choose = list(values), self.random.choice
        for _ in range(count):
            kind = self.random.random()
            if kind < 0.55:
                values.append(choose(self.moves)(choose(values[-3:])))
            elif kind < 0.8:
                values.append(choose(self.pairs)(choose(values[-3:]), choose(values)))
            elif depth and kind < 0.9:
                values += self._branches(values, depth - 1)
            elif depth:
                values += self._loop(values, depth - 1)
        return values

    def _branches(self, values: list[Value], depth: int) -> list[Value]:
        flag = self._is_over(self.random.choice(values), self.random.choice([0, 1, -5]))
        results = self.random.randint(1, 2)

        def branch() -> list[Value]:
            return self._some(self._ops(values, self.random.randint(0, 3), depth), results)

        return c.if_(flag, branch, branch)

    def _loop(self, values: list[Value], depth: int) -> list[Value]:
        captures, times, is_computed = self.random.random() < 0.3, self.random.randint(0, 3), self.random.random() < 0.3

        def condition(i: Value, *carried: Value) -> Value:
            goes_on = c.broadcasting_greater(c.constant(times), i)
            if not is_computed:
                return goes_on  # type: ignore[no-any-return]
            computed = self._ops(carried, self.random.randint(1, 3), 0)[-1]
            return c.and_(goes_on, c.not_(self._is_over(computed, 1000)))  # type: ignore[no-any-return]

        def body(i: Value, *carried: Value) -> list[Value]:
            given = [*(values if captures else ()), *carried]
            made = self._ops(given, self.random.randint(0, 4), depth)
            return [c.broadcasting_add(i, 1), *self._some(made, len(carried))]

        inits = [self.random.choice(values) for _ in range(self.random.randint(1, 3))]
        return c.while_([c.constant(0), *inits], condition, body)[1:]

    def _some(self, values: list[Value], count: int) -> list[Value]:
        return [self.random.choice(values[-4:]) for _ in range(count)]

    def _is_over(self, x: Value, limit: int) -> Value:
        return c.broadcasting_greater(c.reshape(c.reduce_max(x, [0, 1]), []), _constant(limit, x))  # type: ignore[no-any-return]


def finished(module: IRModule) -> IRModule:
    """A program after what the optimize stage does to loops and branches for the runtime."""
    for graph in module.graphs:
        remove_dead_ops(graph)
        merge_equal_ops(graph)
        remove_dead_ops(graph)
    for rewrite in (carry_conditions, choose_outside_values, compute_before_loops, own_values):
        rewrite(module, Statistics())
    return module
