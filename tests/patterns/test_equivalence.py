"""Mistakes in rules that only numbers show are found, and the counterexample can be read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from patcomp.authoring import AtenSource, AtenTarget, Composites, CoreaiSource, CoreaiTarget, Targets
from patcomp.errors import RuleError
from patcomp.evaluate import evaluate
from patcomp.ir.namespaces import aten_namespace, coreai_namespace
from patcomp.patterns import ANY, Attr, Const, Rewrite, Rule, rule
from patcomp.proof.equivalence import NotEquivalentError, check_equivalence
from patterns_catalog import default_rules

NORM = {"x": "2x3x8xf32", "w": "8xf32", "eps": 1e-6}


def _rms_norm(a: AtenSource, c: Composites, x: Any, w: Any, mean: Any, eps: Any, where: Any = ()) -> Rewrite:
    return Rewrite(x * a.rsqrt(mean + eps) * w, to=c.rms_norm(x, w, eps=eps.value, axes=-1), where=where)


@rule(example=NORM | {"axis": 2})
def right(a: AtenSource, c: Composites, x: Any, w: Any, eps: Const, axis: Attr) -> Rewrite:
    mean = a.op("mean.dim", a.pow(x, 2.0), dim=[axis], keepdim=True, dtype=None)
    return _rms_norm(a, c, x, w, mean, eps, [axis % x.rank == x.rank - 1])


@rule(example=NORM)
def any_axis(a: AtenSource, c: Composites, x: Any, w: Any, eps: Const) -> Rewrite:
    mean = a.op("mean.dim", a.pow(x, 2.0), dim=[ANY], keepdim=True, dtype=None)
    return _rms_norm(a, c, x, w, mean, eps)


@rule(example=NORM | {"axis": 2})
def captured_axis_without_condition(a: AtenSource, c: Composites, x: Any, w: Any, eps: Const, axis: Attr) -> Rewrite:
    mean = a.op("mean.dim", a.pow(x, 2.0), dim=[axis], keepdim=True, dtype=None)
    return _rms_norm(a, c, x, w, mean, eps)


@rule(example=NORM | {"axis": 2})
def eps_outside_the_root(a: AtenSource, c: Composites, x: Any, w: Any, eps: Const, axis: Attr) -> Rewrite:
    root = a.sqrt(a.op("mean.dim", a.pow(x, 2.0), dim=[axis], keepdim=True, dtype=None))
    return Rewrite(x / (root + eps) * w, to=c.rms_norm(x, w, eps=eps.value, axes=-1), where=[axis == x.rank - 1])


@rule(stage="normalize", target=aten_namespace, example={"x": "2x5xf32", "factor": 1.0})
def any_factor(a: AtenSource, c: AtenTarget, x: Any, factor: Const) -> Rewrite:
    return Rewrite(x * a.sigmoid(x * factor), to=c.silu(x))


@rule(stage="normalize", target=aten_namespace, example={"x": "2x5xf32", "y": "2x5xf32"})
def swapped_difference(a: AtenSource, c: AtenTarget, x: Any, y: Any) -> Rewrite:
    return Rewrite(x - y, to=c.add(c.neg(x), y))


@rule(
    stage="optimize",
    source=coreai_namespace,
    target=coreai_namespace,
    example={"x": "2x3xf32", "y": "2x3xf32"},
)
def quotient_for_product(a: CoreaiSource, c: CoreaiTarget, x: Any, y: Any) -> Rewrite:
    return Rewrite(a.exp(x) * a.exp(y), to=c.exp(c.broadcasting_sub(x, y)))


WRONG = [
    any_axis,
    captured_axis_without_condition,
    eps_outside_the_root,
    any_factor,
    swapped_difference,
    quotient_for_product,
]


def test_a_right_rule_passes() -> None:
    assert check_equivalence(right, default_rules()) > 30


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_wrong_rule_is_found(wrong: Rule, seed: int) -> None:
    with pytest.raises(NotEquivalentError, match="The source gives the expected numbers"):
        check_equivalence(wrong, default_rules(), seed=seed)


def test_the_counterexample() -> None:
    with pytest.raises(NotEquivalentError) as caught:
        check_equivalence(any_factor, default_rules())
    error = caught.value
    assert "aten.sigmoid" in error.source_ir
    assert "aten.silu" in error.rewritten_ir
    assert set(error.inputs) == {"x"}
    assert error.expected.shape == error.actual.shape == error.inputs["x"].shape
    assert not torch.allclose(error.expected.double(), error.actual.double(), atol=1e-2)
    for part in (
        "rule any_factor",
        "drawn: ",
        error.source_ir,
        error.rewritten_ir,
        "-- input x\ntensor(",
        "expected",
        "actual",
    ):
        assert part in str(error)


def test_the_same_draws_every_time() -> None:
    messages = set()
    for _ in range(2):
        with pytest.raises(NotEquivalentError) as caught:
            check_equivalence(any_axis, default_rules(), seed=3)
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_a_wrong_runtime_is_told_from_a_wrong_rule() -> None:
    def broken(module: Any, inputs: Any) -> Any:
        return {name: value + 1 for name, value in evaluate(module, dict(inputs)).items()}

    with pytest.raises(NotEquivalentError, match=r"on the runtime(.|\n)*does not give the expected numbers either"):
        check_equivalence(right, default_rules(), draws=1, runtime=broken)


def test_a_rule_that_never_matches() -> None:
    @rule(example={"x": "2x5xf32"})
    def never(a: AtenSource, c: Targets, x: Any) -> Rewrite:
        return Rewrite(a.sigmoid(x), to=c.silu(x), where=[x.rank == 7])

    with pytest.raises(RuleError, match="matches no program that runs of its example, in the spelling"):
        check_equivalence(never, default_rules(), draws=2)
