"""Composites that earlier rules have recovered, in the patterns of later ones; and the last axis, by name."""

from __future__ import annotations

from typing import Any

import pytest

from patcomp.errors import RuleError
from patcomp.ir.builder import Builder
from patcomp.ir.composite import Composite, composite
from patcomp.ir.region import RegionOp
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import IntegerAttr, IntegerType
from patcomp.patterns import ANY, LAST, Attr, Rewrite, composites, run
from patcomp.patterns.catalog import RuleSet
from patcomp.patterns.index import Index
from patterns_catalog import default_rules
from patterns_catalog.composites.attention import scaled_dot_product_attention
from patterns_catalog.composites.norms import rms_norm
from tests.patterns.graphs import CALLS, MATRIX, Graph, declare, match

WEIGHTS = tensor((8,), "f32")
HEADS = tensor((1, 2, 3, 4), "f32")


@declare
def doubled(a: Any, c: Any, x: Any, w: Any, eps: Attr) -> Rewrite:
    return Rewrite(a.rms_norm(x, w, axes=-1, eps=eps) * 2.0, to=c.made(x, w, eps=eps))


def recovered(g: Graph, made: Composite, *operands: Value | None, **attributes: Any) -> Value:
    """A call of a composite, as the recover stage places it."""
    with Builder(g.block):
        value = made(*operands, **attributes)
    assert isinstance(value, Value)
    return value


def norm_of(g: Graph, made: Composite = rms_norm, axes: Any = -1, eps: float = 1e-5) -> Value:
    return recovered(g, made, *g.inputs, axes=axes, eps=eps)


def twice(g: Graph, value: Value) -> Value:
    return g.mul(value, 2.0)


def test_a_pattern_names_inputs_and_attributes() -> None:
    g = Graph([MATRIX, WEIGHTS])
    found = match(doubled, twice(g, norm_of(g)))
    assert found is not None
    assert [found["x"], found["w"], found["eps"]] == [*g.inputs, 1e-5]


def test_another_attribute_does_not_match() -> None:
    g = Graph([MATRIX, WEIGHTS])
    assert match(doubled, twice(g, norm_of(g, axes=1))) is None


def test_the_driver_tells_calls_apart_by_their_attributes() -> None:
    """The index remembers states of ops, which must not mix up calls that differ in an attribute only."""
    g = Graph([MATRIX, WEIGHTS])
    g.use(*(twice(g, norm_of(g, axes=axes, eps=eps)) for axes, eps in ((1, 1e-5), (-1, 1e-5), (1, 1e-6), (-1, 1e-6))))
    CALLS.clear()
    run(g.block, Index(RuleSet([doubled])))
    assert [call["eps"] for call in CALLS] == [1e-6, 1e-5]
    assert sum(isinstance(op, RegionOp) for op in g.block.ops) == 2


def test_a_call_that_is_used_elsewhere_stays() -> None:
    g = Graph([MATRIX, WEIGHTS])
    norm = norm_of(g)
    g.use(norm)
    assert match(doubled, twice(g, norm)) is None


def _with_another_bias(c: Any, x: Value, scale: Value, **others: Any) -> Value:
    return x


STRANGERS = {
    "another attribute": composite("rms_norm", inputs=("input", "scale"), attributes=("axes", "eps", "bias")),
    "another input": composite("rms_norm", inputs=("input", "gamma"), attributes=("axes", "eps")),
    "another output": composite("rms_norm", inputs=("input", "scale"), attributes=("axes", "eps"), outputs=("normal",)),
    "another version": composite("rms_norm", inputs=("input", "scale"), attributes=("axes", "eps"), version=2),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_what_the_composite_does_not_declare_does_not_match(what: str) -> None:
    """Another composite of the same name, which somebody else declares."""
    g = Graph([MATRIX, WEIGHTS])
    stranger = STRANGERS[what](_with_another_bias)
    further = {"bias": 1.0} if "bias" in stranger.attributes else {}
    value = recovered(g, stranger, *g.inputs, axes=-1, eps=1e-5, **further)
    assert match(doubled, twice(g, value)) is None


def test_an_externalized_module_of_the_same_name_does_not_match() -> None:
    g = Graph([MATRIX, WEIGHTS])
    norm = norm_of(g)
    region = norm.ssa.owner
    assert isinstance(region, RegionOp)
    region.properties["recover"] = IntegerAttr(1, IntegerType(1))
    assert match(doubled, twice(g, norm)) is None


def attention(g: Graph, **options: Any) -> Value:
    operands = [*g.inputs, None, None]
    return recovered(g, scaled_dot_product_attention, *operands, scale=None, is_causal=False, window_size=0, **options)


@declare
def without_mask(a: Any, c: Any, q: Any, k: Any, v: Any, written_out: Attr) -> Rewrite:
    made = a.scaled_dot_product_attention(
        q, k, v, None, None, scale=None, is_causal=False, window_size=0, written_out=written_out
    )
    return Rewrite(-made, to=c.made(q, k, v, written_out=written_out))


@pytest.mark.parametrize("options", [{}, {"written_out": False}, {"written_out": True}])
def test_what_shapes_the_body_alone_is_an_argument_too(options: dict[str, bool]) -> None:
    """Rows without a key are NaN or 0: a rule that rebuilds the composite must know which."""
    g = Graph([HEADS] * 3)
    found = match(without_mask, g.neg(attention(g, **options), types=[HEADS]))
    assert found is not None
    assert found["written_out"] is options.get("written_out", False)


def test_an_option_that_the_region_cannot_hold_prevents_a_match() -> None:
    @composite("rms_norm", inputs=("input", "scale"), attributes=("axes", "eps"))
    def with_callback(c: Any, x: Value, scale: Value, *, axes: int, eps: float, callback: Any) -> Value:
        return x

    g = Graph([MATRIX, WEIGHTS])
    value = recovered(g, with_callback, *g.inputs, axes=-1, eps=1e-5, callback=print)
    assert match(doubled, twice(g, value)) is None


def test_every_argument_is_mentioned() -> None:
    with pytest.raises(RuleError, match=r"rms_norm.* does not mention eps"):
        declare(lambda a, c, x, w: Rewrite(a.rms_norm(x, w, axes=-1), to=c.made(x)), name="overlooks eps")
    with pytest.raises(RuleError, match="does not mention written_out"):
        declare(
            lambda a, c, q, k, v: Rewrite(
                a.scaled_dot_product_attention(q, k, v, ANY, ANY, scale=ANY, is_causal=ANY, window_size=ANY),
                to=c.made(q),
            ),
            name="overlooks an option",
        )


def test_attributes_are_keywords() -> None:
    with pytest.raises(RuleError, match=r"composite\.rope takes 5 inputs, got 6; its attributes are keywords"):
        declare(lambda a, c, x, y, z: Rewrite(a.rope(x, y, z, y, z, 1.0), to=c.made(x)), name="positional")


def test_an_op_of_the_same_name_comes_first() -> None:
    shuffle = composites.spec("pixel_shuffle")
    assert isinstance(shuffle, Composite)
    kept = declare(lambda a, c, x: Rewrite(a.pixel_shuffle(x, upscale_factor=2), to=c.made(x)), name="kept")
    made = declare(
        lambda a, c, x: Rewrite(a.op("composite.pixel_shuffle", x, upscale_factor=2), to=c.made(x)), name="m"
    )
    g = Graph([tensor((1, 8, 2, 2), "f32")])
    value = recovered(g, shuffle, *g.inputs, upscale_factor=2)
    assert match(made, value) is not None
    assert match(kept, value) is None
    assert match(kept, g.pixel_shuffle(*g.inputs, 2)) is not None


def test_an_unknown_composite_is_an_error() -> None:
    with pytest.raises(RuleError, match=r"aten has no op 'composite\.rms_norms'; did you mean rms_norm"):
        declare(lambda a, c, x: Rewrite(a.op("composite.rms_norms", x), to=c.made(x)), name="misspelt")


# ---- LAST ------------------------------------------------------------------------------------------


@declare
def of_last(a: Any, c: Any, x: Any) -> Rewrite:
    return Rewrite(a.op("mean.dim", x, dim=[LAST], keepdim=True, dtype=None), to=c.made(x))


@pytest.mark.parametrize(("axes", "matches"), [([-1], True), ([1], True), ([0], False), ([-2], False), ([0, 1], False)])
def test_the_last_axis_counts_from_either_end(axes: list[int], matches: bool) -> None:
    g = Graph([MATRIX])
    value = g.op("mean.dim", *g.inputs, dim=axes, keepdim=True, types=[tensor((2, 1), "f32")])
    assert (match(of_last, value) is not None) is matches


def test_the_last_axis_is_that_of_the_result() -> None:
    added = declare(lambda a, c, x: Rewrite(a.unsqueeze(x, dim=LAST), to=c.made(x)), name="added")
    g = Graph([MATRIX])
    for dim, matches in ((2, True), (-1, True), (1, False)):
        value = g.unsqueeze(*g.inputs, dim=dim, types=[tensor((2, 8, 1) if dim != 1 else (2, 1, 8), "f32")])
        assert (match(added, value) is not None) is matches


def test_partial_rope_is_a_rule_over_rope() -> None:
    catalog = default_rules()
    assert "composite.rope" in RuleSet([catalog["rope of some dimensions"]]).pattern_ops
