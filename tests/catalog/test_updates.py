"""The rules that make one update of writes through views: what is left of the ops, and the numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from patcomp.emit.native import Native
from patcomp.evaluate.machine import evaluate
from patcomp.ir import coreai
from patcomp.ir.module import IRModule
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.verify import verify
from patcomp.rewrites import Options
from patcomp.rewrites.optimize import optimize
from patterns_catalog import default_rules
from tests.helpers.programs import program

RULES = default_rules().stage("optimize")
END = 2**31 - 1
Body = Callable[..., Value]


def cut(x: Value, *bounds: tuple[object, ...], result_type: object = None) -> Value:
    """`x[...]`, with `(start, end)` or `(start, end, step)` for each dimension, `()` for all of it."""
    starts, ends, steps = zip(*((*bound, 1)[:3] if bound else (0, END, 1) for bound in bounds), strict=True)
    return coreai.slice_(x, list(starts), list(ends), list(steps), result_type=result_type)


def put(x: Value, value: Value, *bounds: tuple[object, ...]) -> Value:
    """`x` with `x[...] = value`, bounds as for `cut`."""
    starts, ends, steps = zip(*((*bound, 1)[:3] if bound else (0, END, 1) for bound in bounds), strict=True)
    return coreai.slice_update(x, list(starts), list(ends), list(steps), value)


def twice(x: Value) -> Value:
    return coreai.concat(0, [x, coreai.abs_(x)])


def rows_of_layer(x: Value, v: Value, o: Value) -> Value:
    return put(x, put(cut(x, (1, 2), (), ()), v, (), (2, 4), ()), (1, 2), (), ())


def open_rows_of_open_layer(x: Value, v: Value, o: Value) -> Value:
    layer, row = cut(o, (0, 1)), cut(o, (1, 2))
    bounds = (layer, coreai.broadcasting_add(layer, 1)), (), ()
    rows = (), (row, coreai.broadcasting_add(row, 2)), ()
    return put(x, put(cut(x, *bounds, result_type=tensor((1, 6, 5), "f32")), v, *rows), *bounds)


def rows_of_open_rows(x: Value, v: Value, o: Value) -> Value:
    start = cut(o, (0, 1))
    rows = (), (start, coreai.broadcasting_add(start, 4)), ()
    part = cut(x, *rows, result_type=tensor((4, 4, 5), "f32"))
    return put(x, put(part, v, (1, 2), (1, 3), ()), *rows)


def through_select(x: Value, v: Value, o: Value) -> Value:
    layer = coreai.shrink_dims(cut(x, (1, 2), (), ()), [0])
    written = put(layer, coreai.shrink_dims(v, [0]), (2, 4), ())
    return put(x, coreai.expand_dims(written, [0]), (1, 2), (), ())


def flattened(x: Value, v: Value, o: Value) -> Value:
    layer = coreai.reshape(coreai.abs_(cut(x, (0, 1), (), ())), [6, 5])
    written = put(coreai.reshape(x, [24, 5]), layer, (6, 12), ())
    return coreai.reshape(written, [4, 6, 5])


def split(x: Value, v: Value, o: Value) -> Value:
    written = put(coreai.reshape(x, [4, 3, 2, 5]), coreai.reshape(v, [1, 1, 2, 5]), (1, 2), (1, 2), (), ())
    return coreai.reshape(written, [4, 6, 5])


def transposed(x: Value, v: Value, o: Value) -> Value:
    written = put(coreai.transpose(x, [1, 2, 0]), coreai.transpose(v, [1, 2, 0]), (2, 4), (), (-1, END))
    return coreai.transpose(written, [2, 0, 1])


FIRES: dict[str, tuple[str, Body, list[str]]] = {
    "rows of a layer": ("merge_updates", rows_of_layer, ["slice_update"]),
    "rows of a layer, places known to the run": ("merge_updates", open_rows_of_open_layer, [
        "slice", "slice", "decomposable.broadcasting_add", "decomposable.broadcasting_add", "concat", "concat",
        "slice_update",
    ]),
    "rows of rows known to the run": ("merge_updates", rows_of_open_rows, [
        "slice", "decomposable.broadcasting_add", "decomposable.broadcasting_add", "concat", "concat", "slice_update",
    ]),
    "every other of every other": (
        "merge_updates",
        lambda x, v, o: put(x, put(cut(x, (1, 4, 2), (), ()), v, (1, 2), (2, 4), ()), (1, 4, 2), (), ()),
        ["slice_update"],
    ),
    "three deep": (
        "merge_updates",
        lambda x, v, o: put(x, put(cut(x, (0, 3), (), ()), put(
            cut(cut(x, (0, 3), (), ()), (), (1, 6), ()), v, (1, 2), (2, 4), ()
        ), (), (1, 6), ()), (0, 3), (), ()),
        ["slice_update"],
    ),
    "every third of one": ("update_of_everything", lambda x, v, o: put(v, coreai.abs_(v), (0, 1, 3), (), ()), ["abs"]),
    "everything": ("update_of_everything", lambda x, v, o: put(x, coreai.abs_(x), (), (0, 6), (0, END)), ["abs"]),
    "the same rows again": (
        "drop_overwritten_update",
        lambda x, v, o: put(put(x, coreai.abs_(v), (1, 2), (2, 4), ()), v, (-3, -2), (-4, 4), (0, 5)), ["slice_update"],
    ),
    "the rows just written": (
        "slice_of_update", lambda x, v, o: cut(put(x, v, (1, 2), (2, 4), ()), (1, 2), (2, 4), ()), [],
    ),
    "a slice of a slice": (
        "merge_slices", lambda x, v, o: cut(cut(x, (1, 4), (1, 6, 2), ()), (1, 2), (-2, END), ()), ["slice"],
    ),
    "a slice of one layer": (
        "merge_slices_around_view", lambda x, v, o: cut(coreai.shrink_dims(cut(x, (1, 2), (), ()), [0]), (2, 4), ()),
        ["slice", "reshape"],
    ),
    "through a select": ("reshape_of_update", through_select, ["slice_update"]),
    "of the flattened tensor": ("reshape_of_update", flattened, ["slice", "abs", "slice_update"]),
    "of a dimension that is split": ("reshape_of_update", split, ["slice_update"]),
    "of the transposed tensor": ("transpose_of_update", transposed, ["slice_update"]),
    "the first of two parts": ("slice_of_concat", lambda x, v, o: cut(twice(x), (0, 4), (), ()), []),
    "the last of two parts": ("slice_of_concat", lambda x, v, o: cut(twice(x), (-4, END), (), ()), ["abs"]),
}  # fmt: skip
"""By name: the rule, the program, and the ops left beside constants. %x is 4x6x5, %v 1x2x5, %o [1, 2]."""


def another_layer(x: Value, v: Value, o: Value) -> Value:
    return put(x, put(cut(x, (1, 2), (), ()), v, (), (2, 4), ()), (2, 3), (), ())


def rows_by_position_in_rows(x: Value, v: Value, o: Value) -> Value:
    start = cut(o, (0, 1))  # may count from the end, which is not that of x
    rows = (), (start, coreai.broadcasting_add(start, 2)), ()
    return put(x, put(cut(x, (1, 2), (1, 5), ()), v, *rows), (1, 2), (1, 5), ())


def across_rows(x: Value, v: Value, o: Value) -> Value:
    written = put(coreai.reshape(x, [4, 30]), coreai.reshape(v, [1, 10]), (1, 2), (7, 17))
    return coreai.reshape(written, [4, 6, 5])


def turned(x: Value, v: Value, o: Value) -> Value:
    written = put(coreai.transpose(x, [1, 2, 0]), coreai.transpose(v, [1, 2, 0]), (2, 4), (), (1, 2))
    return coreai.transpose(written, [1, 0, 2])


STAYS: dict[str, tuple[str, Body, list[str]]] = {
    "all but a layer": (
        "update_of_everything", lambda x, v, o: put(x, coreai.abs_(cut(x, (0, 3), (), ())), (0, 3), (), ()),
        ["slice", "abs", "slice_update"],
    ),
    "read of one layer, written to another": ("merge_updates", another_layer, [
        "slice", "slice_update", "slice_update",
    ]),
    "a place in known rows": ("merge_updates", rows_by_position_in_rows, [
        "slice", "decomposable.broadcasting_add", "slice", "concat", "concat", "slice_update", "slice_update",
    ]),
    "of another tensor": (
        "merge_updates",
        lambda x, v, o: put(x, put(cut(coreai.abs_(x), (1, 2), (), ()), v, (), (2, 4), ()), (1, 2), (), ()),
        ["abs", "slice", "slice_update", "slice_update"],
    ),
    "other rows": (
        "drop_overwritten_update",
        lambda x, v, o: put(put(x, coreai.abs_(v), (1, 2), (2, 4), ()), v, (1, 2), (3, 5), ()),
        ["abs", "slice_update", "slice_update"],
    ),
    "more than was written": (
        "slice_of_update", lambda x, v, o: cut(put(x, v, (1, 2), (2, 4), ()), (1, 2), (2, 5), ()),
        ["slice_update", "slice"],
    ),
    "a part and a half": ("slice_of_concat", lambda x, v, o: cut(twice(x), (2, 8), (), ()), ["abs", "concat", "slice"]),
    "every other row of a part": (
        "slice_of_concat", lambda x, v, o: cut(twice(x), (4, 8, 2), (), ()), ["abs", "concat", "slice"],
    ),
    "columns of a part": (
        "slice_of_concat", lambda x, v, o: cut(twice(x), (4, 8), (0, 3), ()), ["abs", "concat", "slice"],
    ),
    "a slice backwards": (
        "merge_slices", lambda x, v, o: cut(cut(x, (1, 4), (), ()), (2, 0, -1), (), ()), ["slice", "slice"],
    ),
    "a slice across rows": (
        "merge_slices_around_view",
        lambda x, v, o: cut(coreai.reshape(cut(x, (1, 4), (), ()), [3, 30]), (), (7, 17)),
        ["slice", "reshape", "slice"],
    ),
    "an update across rows": (
        "reshape_of_update", across_rows, ["reshape", "reshape", "slice_update", "reshape"],
    ),
    "transposed back in another order": (
        "transpose_of_update", turned, ["transpose", "reshape", "slice_update", "transpose"],
    ),
}  # fmt: skip


def _module(body: Body) -> IRModule:
    module = program({"x": "4x6x5xf32", "v": "1x2x5xf32", "o": "2xsi32"}, body)
    verify(module)
    return module


def _inputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(4, 6, 5, generator=generator), "v": torch.randn(1, 2, 5, generator=generator),
        "o": torch.tensor([1, 2], dtype=torch.int32),
    }  # fmt: skip


def _optimized(body: Body, native: Native) -> tuple[list[str], dict[str, int]]:
    """The ops of the optimized program, which computes what it did before, and what fired."""
    before, after = _module(body), _module(body)
    fired = optimize(after, RULES, Options()).fired
    verify(after, runtime=True)
    expected = evaluate(before, _inputs())["y0"]
    assert torch.equal(evaluate(after, _inputs())["y0"], expected)
    assert torch.equal(torch.tensor(native.run(after, _inputs())["y0"]), expected)
    names = [op.name.removeprefix("coreai.") for op in after.graph("main").regions[0].block.ops]
    return [name for name in names if name not in ("constant", "output")], fired


@pytest.mark.parametrize(("rule", "body", "left"), FIRES.values(), ids=FIRES)
def test_rule_fires(rule: str, body: Body, left: list[str], native: Native) -> None:
    ops, fired = _optimized(body, native)
    assert fired.get(rule, 0) >= 1
    assert ops == left


@pytest.mark.parametrize(("rule", "body", "left"), STAYS.values(), ids=STAYS)
def test_near_miss_stays(rule: str, body: Body, left: list[str], native: Native) -> None:
    ops, fired = _optimized(body, native)
    assert rule not in fired
    assert ops == left


def test_every_rule_has_a_case_and_a_near_miss() -> None:
    names = {rule.name for rule in RULES if rule.source.startswith("optimize/updates.py")}
    assert {rule for rule, *_ in FIRES.values()} == names
    assert {rule for rule, *_ in STAYS.values()} == names
