"""Mistakes in rules that only numbers show are found, and the counterexample can be read."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from patcomp.authoring import AtenSource, AtenTarget, Composites, CoreaiSource, CoreaiTarget, Targets
from patcomp.evaluate.machine import evaluate
from patcomp.ir.namespaces import aten_namespace, coreai_namespace
from patcomp.patterns import ANY, Attr, Const, Rewrite, Rule, rule
from patcomp_lab.proof.counterexample import WrongRuleError
from patcomp_lab.proof.examination import check_compiled
from patcomp_lab.proof.programs import Programs
from patcomp_lab.proof.verdict import Strength, prove_rule
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


@rule(stage="normalize", into=aten_namespace, example={"x": "2x5xf32", "factor": 1.0})
def any_factor(a: AtenSource, c: AtenTarget, x: Any, factor: Const) -> Rewrite:
    return Rewrite(x * a.sigmoid(x * factor), to=c.silu(x))


@rule(stage="normalize", into=aten_namespace, example={"x": "2x5xf32", "y": "2x5xf32"})
def swapped_difference(a: AtenSource, c: AtenTarget, x: Any, y: Any) -> Rewrite:
    return Rewrite(x - y, to=c.add(c.neg(x), y))


@rule(
    stage="optimize",
    source=coreai_namespace,
    into=coreai_namespace,
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


PROGRAMS = 2


def test_a_right_rule_passes() -> None:
    assert prove_rule(right, default_rules(), programs=1).strength.is_proof


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_a_wrong_rule_is_found(wrong: Rule) -> None:
    assert prove_rule(wrong, default_rules(), programs=PROGRAMS).strength is Strength.REFUTED


def test_the_counterexample() -> None:
    error = prove_rule(swapped_difference, default_rules(), programs=PROGRAMS).counterexample
    assert error is not None
    assert "aten.sub" in error.source_ir
    assert error.rewritten_ir is not None
    assert "aten.neg" in error.rewritten_ir
    given, expected, actual = (error.tensors[name] for name in ("input x", "expected y0", "actual y0"))
    assert expected.shape == actual.shape == given.shape
    assert not torch.allclose(expected.double(), actual.double(), atol=1e-2)
    for part in (
        "rule swapped_difference",
        "drawn: ",
        error.source_ir,
        error.rewritten_ir,
        "-- input x\ntensor(",
        "expected",
    ):
        assert part in str(error)


def test_a_counterexample_is_small() -> None:
    error = prove_rule(any_axis, default_rules(), programs=PROGRAMS).counterexample
    assert error is not None
    assert all(value.numel() <= 4 for value in error.tensors.values())


def test_the_same_counterexample_every_time() -> None:
    messages = {str(prove_rule(any_axis, default_rules(), programs=PROGRAMS).counterexample) for _ in range(2)}
    assert len(messages) == 1


def test_a_wrong_runtime_is_told_from_a_wrong_rule() -> None:
    def broken(module: Any, inputs: Any) -> Any:
        return {name: value + 1 for name, value in evaluate(module, dict(inputs)).items()}

    listed = Programs(right, default_rules(), 1)
    pair = listed.pair_of(listed.examples()[0])
    assert pair is not None
    check_compiled(pair, listed.catalog)
    with pytest.raises(WrongRuleError) as caught:
        check_compiled(pair, listed.catalog, broken, "runtime")
    assert re.search("on the runtime(.|\n)*does not give the expected numbers either", str(caught.value))


def test_a_rule_that_never_matches() -> None:
    @rule(example={"x": "2x5xf32"})
    def never(a: AtenSource, c: Targets, x: Any) -> Rewrite:
        return Rewrite(a.sigmoid(x), to=c.silu(x), where=[x.rank == 7])

    verdict = prove_rule(never, default_rules(), programs=2)
    assert (verdict.strength, verdict.reason) == (Strength.UNREACHED, "no program was found that the rule matches")
