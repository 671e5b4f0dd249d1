"""Ops that devices have computed wrongly, in forms that do not depend on them."""

from __future__ import annotations

from patcomp.authoring import Coreai, CoreaiSource, CoreaiTarget, coreai
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.rounding import is_corrected, is_of_floor, is_only_tested
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import Capture, Rewrite, build, condition, example, formula, rule
from patcomp.patterns.aspects import SPECIAL
from patcomp.patterns.conditions import is_constant, is_floating
from patterns_catalog.sizes import plus, positions, size_of


@condition("{y} is only used to test whether {x} is whole")
def _is_only_tested(y: Value, x: Value) -> bool:
    return is_only_tested(y, x)


@condition("{y} is part of a floor of {x}, which is right for either neighbour")
def _is_of_floor(y: Value, x: Value) -> bool:
    return is_of_floor(y, x)


@condition("a user of {y} corrects halves to even numbers")
def _is_corrected_by_user(y: Value, x: Value) -> bool:
    return is_corrected(y, x)


def _even_at_halves(x: Value) -> Value:
    c = coreai
    whole, doubled = c.round_(x), c.broadcasting_mul(x, 2.0)
    halved = c.broadcasting_mul(whole, 0.5)
    is_half = c.broadcasting_and(c.broadcasting_equal(c.round_(doubled), doubled), c.broadcasting_not_equal(whole, x))
    is_odd = c.broadcasting_not_equal(c.round_(halved), halved)
    even = c.broadcasting_where(c.broadcasting_and(is_half, is_odd), c.broadcasting_sub(doubled, whole), whole)
    return c.broadcasting_where(c.broadcasting_equal(even, 0.0), c.broadcasting_mul(x, 0.0), even)  # -0.5 gives -0


@rule(
    stage="target", source=coreai_namespace, into=coreai_namespace, name="halves to even numbers", targets=("gpu",),
    examples=[
        example("2x9xf32[-4,4]", program=lambda torch, x: torch.round(x)),
        example("2x9xsi32[-9,9]", program=lambda torch, x: torch.round(x.float() / 2)),
    ],
)  # fmt: skip
def halves_to_even(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    """round(x) -> the other neighbour, 2x - round(x), where round(x) is odd and half away

    Exact, whichever neighbour of a half the device's `round` gives.
    """
    y = a.round(x)
    used = [~_is_only_tested(y, x), ~_is_of_floor(y, x), ~_is_corrected_by_user(y, x)]
    return Rewrite(y, to=build(_even_at_halves, x), where=[is_floating(x), *used])


@formula("target", "coreai.argmax", name="argmax by comparison", targets=("gpu", "neural_engine"), examples=[
    example("2x5xf32", program=lambda torch, x: x.argmax(1)),
    example("3x2x9xsi32[0,3]", program=lambda torch, x: x.argmax(-1, keepdim=True)),
    example("3x7xf32", program=lambda torch, x: x.max(0)),
], unspecified=dict.fromkeys(SPECIAL, "of NaN alone there is no position"),
   where=lambda axis: [is_constant(axis).says("the axis of argmax is not a constant")])  # fmt: skip
def argmax_by_comparison(c: Coreai, input: Value, axis: Value, result: ValueType) -> Value:
    "argmax(x) -> the least position whose value equals the maximum; exact"
    assert axis.constant is not None
    along = int(axis.constant) % input.rank
    size = size_of(c, input, along)
    place = c.reshape(positions(c, size), [*[1] * along, -1, *[1] * (input.rank - along - 1)])
    last = plus(c, size, -1)
    best = c.broadcasting_where(c.broadcasting_equal(input, c.reduce_max(input, [along])), place, last)
    return c.cast(c.reduce_min(best, [along]), result.element_type)
