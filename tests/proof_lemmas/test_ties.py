"""Which places of equal numbers are right, and on which numbers programs are decided."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from patcomp.patterns import decomposition, example
from patcomp_lab.proof.calls import decomposed
from patcomp_lab.proof.deciding_numbers import FAR, DistanceBound, _bound
from patcomp_lab.proof.op_calls import examples_of_op
from patcomp_lab.proof.pairs import RulePair
from patcomp_lab.proof.ties import are_places_of_equal_numbers, decides, specifies_places

X = torch.tensor([[1.0, 1.0, 2.0], [3.0, math.nan, math.nan]])


def called(op: str, *arguments: Any, **keywords: Any) -> RulePair:
    """A call of an op, which is decomposed into itself."""
    namespace, name, *overload = op.split(".")
    function = getattr(getattr(torch.ops, namespace), name)
    function = getattr(function, overload[0]) if overload else function

    def itself(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    rule = decomposition(op, examples=[example("2x3xf32", *arguments, **keywords)], name=f"itself {op}")(itself)
    pair = decomposed(examples_of_op(rule)[0])
    assert pair is not None
    return pair


SORT = [[0, 1, 2], [0, 1, 2]]
PLACES: list[tuple[RulePair, Any, Any, bool | None]] = [
    (called("aten.sort", 1), SORT, SORT, True),
    (called("aten.sort", 1), SORT, [[1, 0, 2], [0, 2, 1]], True),
    (called("aten.sort", 1), SORT, [[0, 2, 1], [0, 1, 2]], False),
    (called("aten.sort", 1), SORT, [[0, 0, 2], [0, 1, 2]], False),
    (called("aten.sort", 1), SORT, [[0, 1, 3], [0, 1, 2]], False),
    (called("aten.sort", 1), SORT, [[0, 1, -1], [0, 1, 2]], False),
    (called("aten.sort", 1), SORT, [[1, 2, 0], [1, 0, 2]], False),
    (called("aten.sort", -1), SORT, [[1, 0, 2], [0, 2, 1]], True),
    (called("aten.sort.stable", stable=True, dim=1), SORT, [[1, 0, 2], [0, 1, 2]], False),
    (called("aten.sort.stable", stable=False, dim=1), SORT, [[1, 0, 2], [0, 1, 2]], True),
    (called("aten.sort", 1), SORT, [0, 1, 2], None),
    (called("aten.sort", 0), [[0, 0, 0], [1, 1, 1]], [[0, 0, 0], [1, 1, 1]], True),
    (called("aten.sort", 0), [[0, 0, 0], [1, 1, 1]], [[0, 0, 0], [1, 1, 0]], False),
    (called("aten.topk", 2), [[2, 0], [1, 2]], [[2, 1], [2, 1]], True),
    (called("aten.topk", 2), [[2, 0], [1, 2]], [[2, 2], [1, 2]], False),
    (called("aten.median.dim", 1), [0, 1], [1, 2], True),
    (called("aten.median.dim", 1, True), [[0], [1]], [[1], [2]], True),
    (called("aten.median.dim", 1), [0, 1], [2, 1], False),
    (called("aten.kthvalue", 1, 1), [0, 0], [1, 0], True),
    (called("aten.cummax", 1), [[0, 1, 2], [0, 1, 2]], [[0, 0, 2], [0, 1, 1]], True),
    (called("aten.max.dim", 1), [2, 1], [2, 1], None),
    (called("aten.argmax", 1), [2, 1], [2, 1], None),
]  # fmt: skip


@pytest.mark.parametrize(("pair", "expected", "actual", "are_right"), PLACES)
def test_places_of_equal_numbers(pair: RulePair, expected: Any, actual: Any, are_right: bool | None) -> None:
    found = are_places_of_equal_numbers(pair, torch.tensor(expected), torch.tensor(actual), {"x": X})
    assert found is are_right


def test_results_that_are_no_places() -> None:
    flags = torch.ones(2, 3, dtype=torch.bool)
    assert are_places_of_equal_numbers(called("aten.sort", 1), flags, flags, {"x": X}) is None
    assert (
        are_places_of_equal_numbers(called("aten.sort", 1), flags.int()[0, 0], flags.int()[0, 0], {"x": X[0, 0]})
        is None
    )


def test_which_ops_give_places_and_which_specify_them() -> None:
    ops = {
        "aten.argmax": (True, True), "aten.max.dim": (True, True), "aten.sort": (True, False),
        "aten.median.dim": (True, False), "aten.exp": (False, False), "aten.isnan": (False, False),
    }  # fmt: skip
    arguments = {"aten.argmax": (1,), "aten.max.dim": (1,), "aten.sort": (1,), "aten.median.dim": (1,)}
    pairs = {op: called(op, *arguments.get(op, ())) for op in ops}
    assert {op: (decides(pair), specifies_places(pair)) for op, pair in pairs.items()} == ops


EPS = 2.0**-23
BOUNDS: list[tuple[list[float], list[float], list[float], DistanceBound]] = [
    ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], DistanceBound(2, 0.0, (10.0,))),
    ([1.0, 4.0], [1.0, 4.0 + 8 * EPS], [1.0, 4.0], DistanceBound(2, 2.0, (20.0,))),
    ([0.25, 4.0], [0.25 + 3 * EPS, 4.0], [0.25, 4.0], DistanceBound(2, 3.0, (10.0,))),
    ([1.0, 4.0], [1.0, 5.0], [1.0, 5.0], DistanceBound(2, 0.0, (10.0,))),  # as PyTorch in this type
    ([1.0, 4.0], [1.0, 5.0], [1.0, 4.0], DistanceBound(2, 0.0, (10.0,), 1, (20.0,))),
    ([1.0, math.nan], [1.0, math.nan], [1.0, 0.0], DistanceBound(2, 0.0, (10.0,))),
    ([1.0, math.nan], [1.0, 2.0], [1.0, math.nan], DistanceBound(2, 0.0, (10.0,), 1, (20.0,))),
    ([1.0, math.inf], [1.0, 2.0], [1.0, math.inf], DistanceBound(2, 0.0, (10.0,), 1, (20.0,))),
    ([1.0, 1.0], [1.0, 1.0 + FAR * EPS], [1.0, 1.0], DistanceBound(2, 0.0, (10.0,), 1, (20.0,))),
    ([1.0, 1.0], [1.0, 1.0 + (FAR - 1) * EPS], [1.0, 1.0], DistanceBound(2, FAR - 1.0, (20.0,))),
]


@pytest.mark.parametrize(("truth", "given", "plain", "bound"), BOUNDS)
def test_the_bound_of_results(truth: list[float], given: list[float], plain: list[float], bound: DistanceBound) -> None:
    rows = (
        torch.tensor(truth, dtype=torch.float64)[:, None],
        torch.tensor(given)[:, None],
        torch.tensor(plain)[:, None],
    )
    assert _bound(*rows, [torch.tensor([10.0, 20.0])]) == bound


def test_few_exceptions_are_allowed() -> None:
    assert DistanceBound(100, exceptions=5).is_proof
    assert not DistanceBound(100, exceptions=6).is_proof
    assert str(DistanceBound(1000)) == "to the bit on 1,000 numbers"
    assert str(DistanceBound(1000, 1.25, (), 3, (0.5, 2.0))) == (
        "within 1.2 units in the last place on 1,000 numbers but 3, such as 0.5, 2"
    )
