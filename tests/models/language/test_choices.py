"""Tokens where rounding decides between two experts."""

from __future__ import annotations

import warnings

import pytest
import torch

from patcomp_models.language import LanguageModelError
from patcomp_models.language.checking import TOLERANCE, check_tokens
from patcomp_models.language.choices import CloseChoices

EXACT = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
"""Logits of four tokens; the second word is the most probable one."""


def close(scores: torch.Tensor, chosen: int = 1) -> list[bool]:
    with CloseChoices(2, torch.float16) as choices:
        scores.topk(chosen)
    return choices.is_close.tolist()


def test_which_choices_are_close() -> None:
    step = torch.finfo(torch.float16).eps
    scores = torch.tensor([[8.0, 8.0 - 30 * step, 0.0], [8.0, 8.0 - 34 * step, 0.0]])
    assert close(scores) == [True, False]
    assert close(scores, 2) == [False, False]  # both are chosen, in any order
    assert close(scores, 3) == [False, False]  # all are chosen
    assert close(scores[:1]) == [False, False]  # not of these tokens
    assert close(torch.zeros(2, 2)) == [True, True]
    assert close(torch.tensor([[1.0, -torch.inf], [-torch.inf, 2.0]])) == [False, False]


def test_close_choices_are_counted_and_left_out() -> None:
    made = EXACT.clone()
    made[1] = made[1].flip(0)
    with pytest.raises(LanguageModelError, match="the model's own logits of the two are 1 apart, which rounding does"):
        check_tokens(made, EXACT, TOLERANCE[torch.float16])
    with pytest.raises(LanguageModelError, match="are 1 apart"):
        check_tokens(made, EXACT, TOLERANCE[torch.float16], torch.tensor([True, False, False, True]))
    with pytest.raises(LanguageModelError, match="are 1 apart"):  # nearly all tokens would be left out
        check_tokens(made, EXACT, TOLERANCE[torch.float16], torch.tensor([True, True, True, False]))
    is_close = torch.tensor([True, True, False, False])
    with pytest.warns(match="after 1 of 4 tokens .* two experts have the same score up to the rounding"):
        check_tokens(made, EXACT, TOLERANCE[torch.float16], is_close)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_tokens(EXACT, EXACT, TOLERANCE[torch.float16], is_close)
