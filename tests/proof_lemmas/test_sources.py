"""The programs that are made of a rule's pattern: constants, and values that no capture names."""

from __future__ import annotations

import pytest
import torch

from patcomp.authoring import AtenSource, AtenTarget
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import element_name
from patcomp.patterns import ANY, Capture, Rewrite, Rule, rule
from patcomp_lab.proof.programs import Programs
from patcomp_lab.proof.variants import sample, variants
from patcomp_lab.proof.verdict import Strength, prove_rule
from patterns_catalog import default_rules


def times(number: float, example: str) -> Rule:
    @rule(stage="normalize", into=aten_namespace, example={"x": example}, name=f"times {number} of {example}")
    def found(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
        "x * number -> number * x"
        return Rewrite(a.mul(x, number), to=c.mul(x, number))

    return found


@pytest.mark.parametrize(
    ("number", "example", "element"),
    [
        (0.5, "2x3xf32", "f32"),
        (0.5, "2x3xf16", "f16"),
        (2, "2x3xsi32", "si32"),
        (2.0, "2x3xsi32", "si32"),
        (0.5, "2x3xsi32", "f32"),
    ],
)
def test_the_element_type_of_a_constant(number: float, example: str, element: str) -> None:
    """That of the first input; a fraction beside integers is a float."""
    found = times(number, example)
    built = sample(found, variants(found)[0])
    (constant,) = (op for op in built.block.ops if "constant" in op.name)
    assert element_name(constant.results[0].type.element_type) == element  # type: ignore[attr-defined]


@rule(stage="normalize", into=aten_namespace, example={"x": "2x3xf32"})
def copied(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "copy(anything, x) -> x"
    y = a.op("copy", ANY, x)
    return Rewrite(y, to=x, where=[y.type == x.type])


def test_a_value_that_no_capture_names_is_an_input() -> None:
    listed = Programs(copied, default_rules(), 1)
    pair = listed.pair_of(listed.examples()[0])
    assert pair is not None
    assert sorted((name, each.type) for name, each in pair.runs[0].items()) == [("any_1", "2x3xf32"), ("x", "2x3xf32")]
    given = {name: torch.full((2, 3), float(index)) for index, name in enumerate(pair.runs[0])}
    assert torch.equal(pair.before(given)[0], given["x"])
    assert prove_rule(copied, default_rules(), programs=2).strength is Strength.BITS
