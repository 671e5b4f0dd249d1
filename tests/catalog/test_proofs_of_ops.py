"""Proofs of rules of single ops: lowerings and decompositions, on symbols and on numbers that decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, Rule, decomposition, example, lowering
from patcomp_lab.proof.calls import decomposed
from patcomp_lab.proof.deciding_numbers import (
    DistanceBound,
    bound_on_every_number,
    equal_on_whole_numbers,
    every_number,
)
from patcomp_lab.proof.lemmas import LEMMAS
from patcomp_lab.proof.op_calls import examples_of_op
from patcomp_lab.proof.symbols import Symbols, UnreachedError
from patcomp_lab.proof.verdict import Strength, prove_rule
from patcomp_lab.proof.worlds import CodeKind, World
from patterns_catalog import all_rules, default_rules

CATALOG = default_rules()

SAMPLE = {
    "unsqueeze": Strength.BITS,
    "addmm": Strength.REALS,
    "ceil": Strength.EVERY,
    "decompose complex flip": Strength.WHOLE,
    "decompose frexp": Strength.EVERY,
    "decompose kthvalue": Strength.WHOLE,
}


@pytest.mark.parametrize("name", SAMPLE)
def test_rules_of_each_strength(name: str) -> None:
    assert prove_rule(all_rules()[name], CATALOG, programs=1).strength is SAMPLE[name]


# ---- whole numbers -------------------------------------------------------------------------------


def wrong(op: str, *arguments: Any, **options: Any) -> Callable[[Callable[..., Any]], Rule]:
    return decomposition(op, examples=[example(*arguments)], name=f"a wrong {op}", **options)


@wrong("aten.addcmul", "2x3xf32", "2x3xf32", "2x3xf32")
def another_factor(self: Any, tensor1: Any, tensor2: Any, value: float = 1) -> Any:
    return self + value * 0.99999 * tensor1 * tensor2


@wrong("aten.cumsum", "2x3xf32", 1)
def rounded_weights(self: Any, dim: int, dtype: Any = None) -> Any:
    weights = torch.triu(torch.ones(self.shape[dim], self.shape[dim], dtype=self.dtype)) * (1 + 1e-9)
    return (self.movedim(dim, -1) @ weights).movedim(-1, dim)


@wrong("aten.max.dim", "2x3xf32", 1)
def last_of_equal(self: Any, dim: int, keepdim: bool = False) -> Any:
    values, places = self.flip(dim).max(dim, keepdim)
    return values, self.shape[dim] - 1 - places


@wrong("aten.median.dim", "2x3xf32", 1)
def other_of_equal(self: Any, dim: int, keepdim: bool = False) -> Any:
    values, places = self.flip(dim).median(dim, keepdim)
    return values, self.shape[dim] - 1 - places


@wrong("aten.amax", "2x3xf32", [1])
def not_below_zero(self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    return torch.amax(self, dim, keepdim).clamp(min=0)


WHOLE = {
    another_factor: False,
    rounded_weights: False,
    last_of_equal: False,
    other_of_equal: True,
    not_below_zero: False,
}


@pytest.mark.parametrize(("rule", "is_equal"), WHOLE.items(), ids=[rule.name for rule in WHOLE])
def test_whole_numbers(rule: Rule, is_equal: bool) -> None:
    """Which of equal numbers is the median is left open; of the largest ones, PyTorch gives the first."""
    pair = decomposed(examples_of_op(rule)[0])
    assert pair is not None
    assert equal_on_whole_numbers(pair) == is_equal


# ---- every number --------------------------------------------------------------------------------


def bound_of(rule: Rule) -> DistanceBound | None:
    pair = decomposed(examples_of_op(rule)[0])
    assert pair is not None
    inputs = every_number([each.type for each in pair.runs[0].values()])
    assert inputs is not None
    return bound_on_every_number(pair, dict(zip(pair.runs[0], inputs, strict=True)))


@wrong("aten.expm1", "4xf32")
def cancelled(self: Any) -> Any:
    return self.exp() - 1


@wrong("aten.round", "4xf32")
def halves_up(self: Any) -> Any:
    return (self + 0.5).floor()


@wrong("aten.atan", "4xf32")
def not_at_infinity(self: Any) -> Any:
    return (self / (1 + self * self).sqrt()).asin()


@wrong("aten.erf", "4xf32")
def few_terms(self: Any) -> Any:
    return torch.tanh(1.1283791670955126 * (self + 0.08943 * self**3))


def test_the_bound_on_every_number() -> None:
    exact = bound_of(all_rules()["decompose frexp"])
    assert exact is not None
    assert (exact.units, exact.exceptions, exact.numbers) == (0.0, 0, 2**17)
    near = bound_of(cancelled)
    assert near is not None
    assert near.is_proof
    assert 0 < near.units <= 1.5  # of 1: what is lost near zero is not seen
    halves = bound_of(halves_up)
    assert halves is not None
    assert halves.exceptions > 1000
    infinite = bound_of(not_at_infinity)
    assert infinite is not None
    assert infinite.exceptions > 0
    assert not infinite.is_proof or str(infinite.exceptions) in str(infinite).replace(",", "")
    crude = bound_of(few_terms)
    assert crude is not None
    assert not crude.is_proof


def test_every_number_of_small_types() -> None:
    one = {
        element: every_number([f"4x{element}"])
        for element in ("f16", "bf16", "f32", "si8", "ui8", "si16", "i1", "si32")
    }
    counts = {element: None if made is None else made[0].unique().numel() for element, made in one.items()}
    assert counts["si8"] == counts["ui8"] == 2**8
    assert (counts["si16"], counts["i1"], counts["si32"]) == (2**16, 2, None)
    assert counts["f16"] == 2**16 - 1  # zeros of both signs are equal, and each NaN is unique
    pairs = every_number(["4xsi8", "4xsi8"])
    assert pairs is not None
    assert len({*zip(*(column.tolist() for column in pairs), strict=True)}) == 2**16
    assert every_number(["4xsi16", "4xsi16"]) is None
    assert every_number(["4xf32", "4xf16"]) is None
    assert every_number(["4xf32"] * 3) is None
    complex_ = every_number(["4xcomplex<f32>"])
    assert complex_ is not None
    assert complex_[0].is_complex()


# ---- a lowering of integers, and symbols that are lost ---------------------------------------------


@lowering("aten.bitwise_and.Tensor", name="a wrong and", examples=[example("2x3xsi8", "2x3xsi8")])
def product(op: OpView, c: Coreai) -> Value:
    return c.broadcasting_mul(op["self"], op.other)


def test_a_wrong_lowering_of_integers_is_refuted() -> None:
    assert prove_rule(product, CATALOG, programs=1).strength is Strength.REFUTED


def test_symbols_are_not_written_into_numbers() -> None:
    world = World(CodeKind.REALS)
    symbols = Symbols(world.symbols("x", (2,)), torch.float32, world)
    with pytest.raises(UnreachedError, match="written into a tensor of numbers"):
        torch.zeros(2).copy_(symbols)


# ---- the same code -----------------------------------------------------------------------------------


@decomposition("aten.gru_cell", examples=[example("2x3xf32", "2x4xf32", "12x3xf32", "12x4xf32")])
def the_op_itself(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    return torch.gru_cell(input, hx, w_ih, w_hh, b_ih, b_hh)


@decomposition("quantized_decomposed.choose_qparams_per_token_asymmetric", examples=[example("2x3x4xf32", "si8")])
def the_kernel(input: Any, dtype: Any) -> Any:
    return torch.ops.quantized_decomposed._choose_qparams_per_token_asymmetric_impl(input, dtype)


@pytest.mark.parametrize("rule", [the_op_itself, the_kernel], ids=lambda rule: rule.name)
def test_a_rule_is_not_proved_by_its_own_code(rule: Rule) -> None:
    """The numbers agree, and say nothing: both sides are one function."""
    verdict = prove_rule(rule, CATALOG, programs=1)
    assert verdict.strength is Strength.NUMBERS
    assert verdict.reason == "the same code on both sides"


def test_pytorch_decomposition_of_an_op_is_compared_with_the_kernel_only() -> None:
    """On symbols, the op means what its decomposition says."""
    verdict = prove_rule(all_rules()["decompose rnn_tanh"], CATALOG, programs=1)
    assert set(verdict.decided) == {Strength.WHOLE}


# ---- lemmas ----------------------------------------------------------------------------------------

NAMED = {
    "times_one": {"x * 1 = x"},
    "divided_by_one": {"x / 1 = x"},
    "plus_zero": {"x + -0 = x"},
    "minus_zero": {"x - 0 = x"},
    "plus_negated": {"x * -1 = -x", "x + -y = x - y"},
    "cast_of_cast": {"a wider type has every number"},
}


@pytest.mark.parametrize("name", NAMED)
def test_a_proof_names_the_lemmas_that_it_needs(name: str) -> None:
    verdict = prove_rule(CATALOG[name], CATALOG, programs=1)
    assert verdict.strength is Strength.LEMMA
    assert set(verdict.reason.split(", ")) == NAMED[name]
    assert set(LEMMAS) >= NAMED[name]
