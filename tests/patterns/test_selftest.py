"""The tests that a rule's declaration implies, and that they find what is wrong with a rule."""

from __future__ import annotations

import pytest

from patcomp.errors import RuleError
from patcomp.ir.namespaces import coreai_namespace
from patcomp.patterns import ANY, Attr, Const, Rewrite, any_of, rule
from patcomp.patterns.example_types import parse_type
from patcomp_lab.proof.near_misses import self_tests
from patcomp_lab.proof.variants import node_name, sample, variants
from tests.patterns.graphs import TABLE, declare


def _norm(a, c, x, w, eps: Const):
    f = any_of(a._to_copy(x, dtype=ANY), x)
    n = f * a.rsqrt(a.mean(a.pow(f, 2.0), dim=[-1], keepdim=True, dtype=None) + eps)
    return Rewrite(any_of(a._to_copy(n, dtype=ANY), n) * w, to=c.made(x, w), where=[w.shape[0] == x.shape[-1]])


norm = declare(_norm, name="norm", example={"x": "2x8xf32", "w": "8xf32", "eps": 1e-5})


def _rope(a, c, x, cos, sin, half: Attr, dim: Attr, end: Attr):
    low = a.slice(x, dim=dim, start=0, end=half, step=1)
    high = a.slice(x, dim=dim, start=half, end=end, step=1)
    rotated = a.cat([-high, low], dim=dim)
    return Rewrite(x * cos + rotated * sin, to=c.made(x), where=[half * 2 == end, end == x.shape[dim]])


ROPE = {"x": "2x8xf32", "half": 4, "dim": 1, "end": 8, "cos": "2x8xf32", "sin": "2x8xf32"}
rope = declare(_rope, name="rope", example=ROPE)


@rule(into=TABLE, example={"x": "2x8xf32", "order": [1, 0]})
def loose(a, c, x, order: Attr):
    mean = a.op("mean.dim", a.permute(x, dims=order), dim=[ANY], keepdim=ANY, dtype=ANY)
    return Rewrite(a.native_layer_norm(mean, ANY, None, ANY, ANY)[0], to=c.made(x))


@rule(
    into=TABLE,
    source=coreai_namespace,
    stage="optimize",
    example={"x": "2x8xf32", "y": "2x8xf32", "axes": [1, 0]},
)
def transposed_sum(s, c, x, y, axes: Const):
    return Rewrite(s.transpose(s.broadcasting_add(x, s.exp(y)), axes), to=c.made(x, y))


@pytest.mark.parametrize(
    "test", [*self_tests(norm), *self_tests(rope), *self_tests(loose), *self_tests(transposed_sum)], ids=str
)
def test_implied(test):
    test.run()


def test_what_is_checked():
    names = [test.name for test in self_tests(norm)]
    assert len(names) == len(set(names))
    assert "norm: matches with any_of #1 = 0, any_of #2 = 1, aten.mul.Tensor #1 swapped" in names
    assert "norm: aten.pow.Tensor_Tensor exponent changed to 3.0" in names
    assert "norm: aten.mean.dim dim changed to [0]" in names
    assert "norm: aten.mean.dim dtype changed to 'f64'" in names
    assert "norm: aten.rsqrt used outside" in names
    assert len(variants(norm)) == 4 * 2**3


def test_many_variants_are_sampled_with_every_single_choice():
    @rule(into=TABLE, example={"x": "4xf32", "y": "4xf32"})
    def wide(a, c, x, y):
        node = x
        for _ in range(9):
            node = any_of(a.exp(node), a.sin(node), a.cos(node)) * y
        return Rewrite(node, to=c.made(x))

    made = variants(wide)
    assert 40 < len(made) <= 256
    assert {pick for variant in made for pick in variant.choices.values()} == {0, 1, 2}
    built = sample(wide, made[-1])
    assert len(list(built.block.ops)) == 18
    assert node_name(wide, wide.graph.root) == "aten.mul.Tensor #1"
    assert any(variant.swapped for variant in made)


def test_a_rule_without_example_has_no_tests():
    with pytest.raises(RuleError, match="has no example="):
        self_tests(declare(_rope))


def test_an_example_that_breaks_a_condition_is_found():
    broken = declare(_norm, name="broken", example={"x": "2x4xf32", "w": "8xf32", "eps": 1e-5})
    with pytest.raises(AssertionError, match=r"does not match its own source .*`w.shape\[0\] == x.shape\[-1\]`"):
        self_tests(broken)[0].run()


def test_types_in_text():
    assert str(parse_type("2x?xf16")) == "tensor<2x?xf16>"
    assert str(parse_type("f32")) == "tensor<f32>"
