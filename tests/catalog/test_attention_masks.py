"""Masks of attention that is written out: recovered where every row stays what it is, also rows without a key."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from patcomp.rewrites.recover import _known_assumptions
from patterns_catalog import default_rules
from patterns_catalog.assumptions import MASKED_ROWS_ARE_NOT_READ
from tests.catalog.attention_masks import assert_equal
from tests.catalog.recovering import Calling
from tests.helpers.thorough import drawn

RULE = "attention written out"
NOT_READ = MASKED_ROWS_ARE_NOT_READ.name
TYPES = [torch.float32, torch.float16, torch.bfloat16]
LARGE = {torch.float32: 131072.0, torch.float16: 32768.0, torch.bfloat16: 131072.0}
"""Scores that are below -1e4, and in float32 and bfloat16 those of which float16 has no number."""
KEEP = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]]) > 0
"""Which keys each query keeps; the second one keeps none."""
PAD = torch.tensor([[0, 0, 1, 1]]) > 0
"""Which keys all queries keep."""

each_type = pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
Masking = Callable[[Tensor, Tensor], Tensor]
"""What is done to the scores, with a bias."""


def lowest(x: Tensor) -> float:
    return torch.finfo(x.dtype).min


def attention(masking: Masking, *, wide: bool = False) -> Calling:
    """Attention whose scores are its queries, because its keys are the identity: no product rounds them.

    Args:
        wide: the scores are cast to float32 before they are masked.
    """

    def function(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        scores = query @ key.mT
        scores = masking(scores.float() if wide else scores, bias)
        return scores.softmax(-1, dtype=torch.float32).to(value.dtype) @ value

    return Calling(function)


def tensors(dtype: torch.dtype, largest: float = 8.0, bias: Tensor | None = None) -> tuple[Tensor, ...]:
    """Scores that are multiples of an eighth of the largest, keys, values and a bias."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randint(-8, 9, (1, 2, 4, 4), generator=generator) * (largest / 8)
    value = torch.randint(-8, 9, (1, 2, 4, 3), generator=generator) / 4.0
    key = torch.eye(4).expand(1, 2, 4, 4).contiguous()
    bias = torch.randint(-8, 9, (4, 4), generator=generator) / 4.0 if bias is None else bias
    return tuple(x.to(dtype) for x in (query, key, value, bias))


def convert(module: Calling, inputs: tuple[Tensor, ...], assume: Sequence[str] = ()) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(module, inputs)).to_coreai(assume=assume)


def is_recovered(program: AIProgram) -> bool:
    return program.composites == {"scaled_dot_product_attention": 1}


# ---- masks that are recovered, with the rows of eager ------------------------------------------------


def _minus_infinity(scores: Tensor, bias: Tensor) -> Tensor:
    return scores.masked_fill(~KEEP, -math.inf)


def _minus_infinity_by_where(scores: Tensor, bias: Tensor) -> Tensor:
    return torch.where(KEEP, scores, -math.inf)


def _lowest(scores: Tensor, bias: Tensor) -> Tensor:
    return scores.masked_fill(~KEEP, lowest(scores))


def _lowest_by_where(scores: Tensor, bias: Tensor) -> Tensor:
    """GPT-2, GPT-Neo and CodeGen."""
    return torch.where(KEEP, scores, torch.full([], lowest(scores), dtype=scores.dtype))


def _added_lowest(scores: Tensor, bias: Tensor) -> Tensor:
    """Llama and BERT."""
    return scores + torch.where(KEEP, 0.0, lowest(scores)).to(scores.dtype)


def _added_minus_infinity(scores: Tensor, bias: Tensor) -> Tensor:
    return scores + torch.where(KEEP, 0.0, -math.inf).to(scores.dtype)


def _added_finite(scores: Tensor, bias: Tensor) -> Tensor:
    """Bloom and early versions of BERT."""
    return scores + (1.0 - KEEP.to(scores.dtype)) * -1e4


def _added_then_minus_infinity(scores: Tensor, bias: Tensor) -> Tensor:
    return (scores + bias).masked_fill(~KEEP, -math.inf)


def _minus_infinity_then_added(scores: Tensor, bias: Tensor) -> Tensor:
    return torch.where(KEEP, scores, -math.inf) + bias


def _added_twice(scores: Tensor, bias: Tensor) -> Tensor:
    return scores + bias + (1.0 - KEEP.to(scores.dtype)) * -1e4


def _lowest_twice(scores: Tensor, bias: Tensor) -> Tensor:
    return torch.where(PAD, scores.masked_fill(~KEEP, lowest(scores)), lowest(scores))


def _minus_infinity_then_lowest(scores: Tensor, bias: Tensor) -> Tensor:
    return scores.masked_fill(~KEEP, -math.inf).masked_fill(~PAD, lowest(scores))


def _less_the_largest(scores: Tensor, bias: Tensor) -> Tensor:
    masked = scores.masked_fill(~KEEP, -math.inf)
    return masked - masked.max(-1, keepdim=True).values


EXACT = [
    _minus_infinity, _minus_infinity_by_where, _lowest, _lowest_by_where, _added_lowest, _added_minus_infinity,
    _added_finite, _added_then_minus_infinity, _minus_infinity_then_added, _added_twice, _lowest_twice,
    _minus_infinity_then_lowest, _less_the_largest,
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("dtype", "wide"),
    [(torch.float32, False), *((dtype, wide) for dtype in TYPES[1:] for wide in (False, True))],
    ids=["float32", "float16", "float16 masked in float32", "bfloat16", "bfloat16 masked in float32"],
)
@pytest.mark.parametrize("masking", EXACT)
def test_recovered_with_every_row(masking: Masking, dtype: torch.dtype, wide: bool, native: Native) -> None:
    module, inputs = attention(masking, wide=wide), tensors(dtype)
    program = convert(module, inputs)
    assert is_recovered(program), program.why_not(RULE)
    assert_equal(program, module, inputs, native)
    assert_equal(program, module, tensors(dtype, largest=LARGE[dtype]), native)


def _lowest_then_added(scores: Tensor, bias: Tensor) -> Tensor:
    return scores.masked_fill(~KEEP, lowest(scores)) + bias


def _added_then_lowest(scores: Tensor, bias: Tensor) -> Tensor:
    return torch.where(KEEP, scores + bias, lowest(scores))


def _lowest_and_added_lowest(scores: Tensor, bias: Tensor) -> Tensor:
    """A causal mask in place of scores, and a mask of the padding that is added: keys that both hide have none."""
    return torch.where(KEEP, scores, lowest(scores)) + torch.where(PAD, 0.0, lowest(scores)).to(scores.dtype)


@each_type
@pytest.mark.parametrize("masking", [_lowest_then_added, _added_then_lowest, _lowest_and_added_lowest])
def test_the_smallest_number_and_a_bias(masking: Masking, dtype: torch.dtype, native: Native) -> None:
    """In float16 scores and biases are not lost in the smallest number, so that a row without a key would change."""
    module, inputs = attention(masking), tensors(dtype)
    program = convert(module, inputs)
    assert is_recovered(program) == (dtype != torch.float16), program.why_not(RULE)
    assert_equal(program, module, inputs, native)


@pytest.mark.parametrize("number", [-1e9, torch.finfo(torch.float16).min, torch.finfo(torch.float32).min])
def test_scores_of_float16_are_above_a_number_of_float32(number: float, native: Native) -> None:
    module, inputs = attention(lambda scores, bias: scores.masked_fill(~KEEP, number), wide=True), tensors(torch.half)
    program = convert(module, inputs)
    assert is_recovered(program), program.why_not(RULE)
    assert_equal(program, module, inputs, native)


@pytest.mark.parametrize("number", [-1e9, torch.finfo(torch.float32).min])
def test_numbers_that_are_added_in_float32_stay_float32(number: float, native: Native) -> None:
    """As float16 they were minus infinity."""
    module = attention(lambda scores, bias: scores + (~KEEP).float() * number, wide=True)
    inputs = tensors(torch.half)
    program = convert(module, inputs)
    assert is_recovered(program), program.why_not(RULE)
    assert_equal(program, module, inputs, native)


def test_rows_of_a_mask_that_is_an_input(native: Native) -> None:
    mask = torch.where(KEEP, 0.0, -math.inf)
    module, inputs = attention(lambda scores, bias: scores + bias), tensors(torch.float32, bias=mask)
    program = convert(module, inputs)
    assert is_recovered(program), program.why_not(RULE)
    assert_equal(program, module, inputs, native)
    assert module(*inputs)[0, 0, 1].isnan().all()


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("of_numbers", [False, True])
def test_rows_without_a_key_of_the_fused_op_stay_zero(of_numbers: bool, decompose: bool, native: Native) -> None:
    def function(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, bias if of_numbers else KEEP)

    inputs = tensors(torch.float32, bias=torch.where(KEEP, 0.0, -math.inf))
    module = Calling(function)
    exported = torch.export.export(module, inputs)
    exported = exported.run_decompositions() if decompose else exported
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert is_recovered(program)
    assert_equal(program, module, inputs, native)
    assert (module(*inputs)[0, 0, 1] == 0).all()


# ---- masks that are refused --------------------------------------------------------------------------

BELOW = "no score can be below a number that takes the place of scores"
CHANGED = "rows without a key keep the weights that the masks give them"


def _finite(scores: Tensor, bias: Tensor) -> Tensor:
    return torch.where(KEEP, scores, -1e4)


def _finite_by_masked_fill(scores: Tensor, bias: Tensor) -> Tensor:
    return scores.masked_fill(~KEEP, -3e4)


def _finite_then_added(scores: Tensor, bias: Tensor) -> Tensor:
    return scores.masked_fill(~KEEP, -1e4) + bias


def _added_then_finite(scores: Tensor, bias: Tensor) -> Tensor:
    return torch.where(~KEEP, -1e4, scores + bias)


def _finite_twice(scores: Tensor, bias: Tensor) -> Tensor:
    return torch.where(KEEP, scores, -1e4) + (1 - PAD.to(scores.dtype)) * -1e4


def _other_numbers(scores: Tensor, bias: Tensor) -> Tensor:
    return torch.where(KEEP, scores, -2e4).masked_fill(~PAD, -1e4)


REFUSED = [_finite, _finite_by_masked_fill, _finite_then_added, _added_then_finite, _finite_twice, _other_numbers]


@pytest.mark.sampled(2)
@each_type
@pytest.mark.parametrize("masking", REFUSED)
def test_refused_unless_masked_rows_are_not_read(masking: Masking, dtype: torch.dtype) -> None:
    module, inputs = attention(masking), tensors(dtype)
    program = convert(module, inputs)
    assert program.composites == {}
    assert f'assume=["{NOT_READ}"] | {BELOW}' in program.why_not(RULE)
    assert_equal(program, module, inputs)
    assert_equal(program, module, tensors(dtype, largest=LARGE[dtype]))
    assumed = convert(module, inputs, [NOT_READ])
    assert is_recovered(assumed)
    assert assumed.why_not(RULE).startswith(f"{RULE} matches")
    assert_equal(assumed, module, inputs, rows=[2, 3])


@pytest.mark.parametrize("masking", [_finite_then_added, _finite_twice, _other_numbers])
def test_rows_that_would_change_are_a_reason(masking: Masking) -> None:
    """The scores of float16 are above all these numbers of float32."""
    module, inputs = attention(lambda scores, bias: masking(scores * 2.0**-6, bias), wide=True), tensors(torch.half)
    program = convert(module, inputs)
    assert program.composites == {}
    assert f'assume=["{NOT_READ}"] | {CHANGED}' in program.why_not(RULE)
    assert_equal(program, module, inputs)


def test_which_assumptions_there_are() -> None:
    module, inputs = attention(_finite), tensors(torch.float32)
    with pytest.raises(ValueError, match=re.escape(f"there is no assumption 'no NaN'; there are '{NOT_READ}'")):
        convert(module, inputs, ["no NaN"])
    with pytest.raises(TypeError, match="must be a list"):
        convert(module, inputs, NOT_READ)
    assert _known_assumptions(default_rules()) == (NOT_READ,)
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
    assert f"| `{NOT_READ}` | {MASKED_ROWS_ARE_NOT_READ.meaning} |" in guide


# ---- random stacks of masks ----------------------------------------------------------------------------

NUMBERS = ("lowest", -math.inf, -1e9, -1e4, 2.0)
STAGES = st.tuples(st.sampled_from(["where", "masked_fill", "added"]), st.sampled_from(NUMBERS), st.booleans())


def _stack(stages: Sequence[tuple[str, Any, bool]]) -> Masking:
    def masking(scores: Tensor, bias: Tensor) -> Tensor:
        for kind, number, by_row in stages:
            keep = KEEP if by_row else PAD
            number = lowest(scores) if number == "lowest" else max(number, lowest(scores)) if number > -1e10 else number
            if kind == "added":
                scores = scores + torch.where(keep, 0.0, number).to(scores.dtype)
            else:
                scores = torch.where(keep, scores, number) if kind == "where" else scores.masked_fill(~keep, number)
        return scores

    return masking


@drawn(25)
@given(st.lists(STAGES, min_size=1, max_size=3), st.sampled_from(TYPES), st.sampled_from([8.0, 8192.0]), st.booleans())
def test_any_stack_of_masks(stages: list[Any], dtype: torch.dtype, largest: float, wide: bool) -> None:
    module, inputs = attention(_stack(stages), wide=wide), tensors(dtype, largest)
    assert_equal(convert(module, inputs), module, inputs)
