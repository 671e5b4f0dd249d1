"""Activations that models write out, recovered; and what differs from them by a constant, sign or operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from patcomp import AIProgram
from patcomp.emit.native import Native
from tests.catalog.recovering import convert
from tests.helpers.thorough import examples

RULES = (
    "gelu of erf", "gelu of tanh", "gelu of sigmoid", "silu of sigmoid", "hard_sigmoid of clamp",
    "hard_sigmoid of hardswish by clamp",
)  # fmt: skip


def found(program: AIProgram) -> dict[str, int]:
    """The activation ops, by approximation, and the hard sigmoids of a program."""
    text = program.text()
    names = {
        "gelu none": text.count("coreai.gelu") - text.count("approximate = <"), "gelu tanh": text.count("<tanh>"),
        "gelu sigmoid": text.count("<sigmoid>"), "silu": text.count("coreai.silu"),
        "hard_sigmoid": program.composites.get("hard_sigmoid", 0),
    }  # fmt: skip
    return {name: count for name, count in names.items() if count}


_ROOT = math.sqrt(2.0 / math.pi)

FORMS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "gelu_python": ("gelu none", lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))),
    "gelu_cdf": ("gelu none", lambda x: x * (0.5 * (torch.erf(x * 0.7071067811865476) + 1))),
    "gelu_halved_last": ("gelu none", lambda x: (1.0 + torch.erf(x / math.sqrt(2.0))) * x / 2),
    "gelu_new": (
        "gelu tanh",
        lambda x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
    ),
    "gelu_of_products": ("gelu tanh", lambda x: 0.5 * (x * (1 + torch.tanh(_ROOT * (x + 0.044715 * x * x * x))))),
    "gelu_fast": ("gelu tanh", lambda x: 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))),
    "bloom": ("gelu tanh", lambda x: x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))),
    "quick_gelu": ("gelu sigmoid", lambda x: x * torch.sigmoid(1.702 * x)),
    "silu": ("silu", functional.silu),
    "swish": ("silu", lambda x: torch.sigmoid(x) * x),
    "hard_sigmoid": ("hard_sigmoid", functional.hardsigmoid),
    "relu6": ("hard_sigmoid", lambda x: functional.relu6(x + 3.0) / 6.0),
    "clamp": ("hard_sigmoid", lambda x: torch.clamp(3 + x, 0, 6) * (1 / 6)),
    "clamp_twice": ("hard_sigmoid", lambda x: (x + 3).clamp(min=0).clamp(max=6) / 6),
    "clamp_last": ("hard_sigmoid", lambda x: torch.clamp(x / 6 + 0.5, 0, 1)),
    "hard_swish": ("hard_sigmoid", functional.hardswish),
    "hard_swish_of_relu6": ("hard_sigmoid", lambda x: x * functional.relu6(x + 3) / 6),
    "hard_swish_of_a_sixth": ("hard_sigmoid", lambda x: x * (functional.relu6(x + 3) / 6)),
}


def values(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.linspace(-9.0, 9.0, 45).reshape(5, 9).to(dtype)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("default_table", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_form(name: str, default_table: bool, native: Native) -> None:
    expected, function = FORMS[name]
    assert found(convert(function, values(), default_table=default_table, native=native)) == {expected: 1}


@pytest.mark.parametrize("name", sorted(set(FORMS) - {"hard_sigmoid", "hard_swish", "silu"}))
def test_without_the_rules(name: str) -> None:
    assert found(convert(FORMS[name][1], values(), without=RULES)) == {}


@settings(max_examples=examples(8), deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(FORMS)),
    shape=st.lists(st.integers(1, 4), max_size=3),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    seed=st.integers(0, 99),
)
def test_any_shape_and_type(name: str, shape: list[int], dtype: torch.dtype, seed: int) -> None:
    expected, function = FORMS[name]
    x = (4 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(dtype)
    assert found(convert(function, x)) == {expected: 1}


def used_inside(x: torch.Tensor) -> Any:
    inner = torch.sigmoid(1.702 * x)
    return x * inner, inner


NEAR_MISSES: dict[str, Callable[[torch.Tensor], Any]] = {
    "another cubic constant": lambda x: 0.5 * x * (1.0 + torch.tanh(_ROOT * (x + 0.044714 * torch.pow(x, 3.0)))),
    "another power": lambda x: 0.5 * x * (1.0 + torch.tanh(_ROOT * (x + 0.044715 * torch.pow(x, 2.0)))),
    "another root": lambda x: 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.044715 * torch.pow(x, 3.0)))),
    "minus tanh": lambda x: 0.5 * x * (1.0 - torch.tanh(_ROOT * (x + 0.044715 * torch.pow(x, 3.0)))),
    "erf of x": lambda x: 0.5 * x * (1.0 + torch.erf(x)),
    "erf of 2 x": lambda x: 0.5 * x * (1.0 + torch.erf(x * math.sqrt(2.0))),
    "not halved": lambda x: x * (1.0 + torch.erf(x / math.sqrt(2.0))),
    "two more": lambda x: 0.5 * x * (2.0 + torch.erf(x / math.sqrt(2.0))),
    "another factor": lambda x: x * torch.sigmoid(1.7 * x),
    "gated linear unit": lambda x: x[:, :4] * torch.sigmoid(x[:, 4:8]),
    "hard sigmoid of 2": lambda x: torch.clamp(x + 2, 0, 6) / 6,
    "clamp to 5": lambda x: torch.clamp(x + 3, 0, 5) / 6,
    "clamp from 1": lambda x: torch.clamp(x + 3, 1, 6) / 6,
    "a fifth": lambda x: torch.clamp(x + 3, 0, 6) / 5,
    "clamp before the sum": lambda x: (torch.clamp(x, 0, 6) + 3) / 6,
    "clamp between -1 and 1": lambda x: torch.clamp(x / 6 + 0.5, -1, 1),
    "used inside": used_inside,
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_no_activation_stays(name: str) -> None:
    assert found(convert(NEAR_MISSES[name], values())) == {}


def test_other_value_gated() -> None:
    """y * relu6(x + 3) / 6 is a hard sigmoid only where the sixth is taken before the product."""
    pair = (values(), values().flip(0))
    assert found(convert(lambda x, y: y * functional.relu6(x + 3) / 6, *pair)) == {}
    assert found(convert(lambda x, y: y * (functional.relu6(x + 3) / 6), *pair)) == {"hard_sigmoid": 1}


def test_special_values() -> None:
    """Infinities, NaN and the largest numbers, where the formulas themselves have a value."""
    x = torch.tensor([math.inf, math.nan, 3e38, -3e38, 1e-40, -0.0])
    for name in ("silu", "swish", "hard_sigmoid", "clamp", "relu6"):
        program = convert(FORMS[name][1], torch.ones(6))
        (given,) = program.run({program.input_names()[0]: x}).values()
        torch.testing.assert_close(given, FORMS[name][1](x), equal_nan=True)
