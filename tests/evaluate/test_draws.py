"""Drawing operators compute the distributions of PyTorch's random numbers from standard noise, also at the edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from patcomp.evaluate.draws import GUMBEL, NORMAL, UNIFORM, Draws, NotFromNoiseError, draws, noise_of

COUNT = 100_000
ONES = torch.ones(COUNT)
SHARES = torch.linspace(0.02, 0.98, 25, dtype=torch.float64)


def sampled(call: Callable[[], Tensor], seed: int = 1) -> Tensor:
    """The result of a call that computes its random numbers from noise."""
    generator = torch.Generator().manual_seed(seed)
    with Draws(lambda distribution, shape, dtype: noise_of(distribution, shape, dtype, generator)):
        return call()


def with_noise(call: Callable[[], Any], value: float) -> Any:
    """The result of a call if all noise is one number."""
    with Draws(lambda distribution, shape, dtype: torch.full(shape, value, dtype=dtype)):
        return call()


CONTINUOUS: dict[str, Callable[[], Tensor]] = {
    "rand": lambda: torch.rand(COUNT),
    "rand_like": lambda: torch.rand_like(ONES),
    "randn": lambda: torch.randn(COUNT),
    "randn_like": lambda: torch.randn_like(ONES),
    "normal of numbers": lambda: torch.normal(1.0, 3.0, (COUNT,)),
    "normal of tensors": lambda: torch.normal(ONES * 2, ONES * 0.5),
    "normal of a mean": lambda: torch.normal(ONES * 2, 0.5),
    "normal of a deviation": lambda: torch.normal(-1.0, ONES * 2),
    "normal_": lambda: torch.empty(COUNT).normal_(-2.0, 0.5),
    "uniform_": lambda: torch.empty(COUNT).uniform_(-3.0, 2.0),
    "exponential_": lambda: torch.empty(COUNT).exponential_(2.5),
    "cauchy_": lambda: torch.empty(COUNT).cauchy_(1.0, 0.5).clamp(-20, 20),
    "log_normal_": lambda: torch.empty(COUNT).log_normal_(0.5, 0.25),
    "rrelu": lambda: functional.rrelu(-ONES, 0.2, 0.6, training=True),
    "randn in float64": lambda: torch.randn(COUNT, dtype=torch.float64),
    "exponential in float64": lambda: torch.empty(COUNT, dtype=torch.float64).exponential_(),
    "rand in float16": lambda: torch.rand(COUNT, dtype=torch.float16),
    "randn in bfloat16": lambda: torch.randn(COUNT, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_quantiles_are_those_of_pytorch(name: str) -> None:
    call = CONTINUOUS[name]
    made = sampled(call)
    torch.manual_seed(0)
    own = call()
    assert made.dtype == own.dtype
    expected, given = (values.double().quantile(SHARES) for values in (own, made))
    spread = float(expected[-1] - expected[0])
    torch.testing.assert_close(given, expected, rtol=0.04, atol=0.01 * spread)


WEIGHTS = torch.tensor([0.5, 0.0, 2.0, 1.5])
DISCRETE: dict[str, Callable[[], Tensor]] = {
    "randint": lambda: torch.randint(5, (COUNT,)),
    "randint from": lambda: torch.randint(-3, 4, (COUNT,)),
    "randint_like": lambda: torch.randint_like(ONES, 2, 6),
    "randint_like of a tensor": lambda: torch.randint_like(ONES.int(), torch.tensor(7)),
    "random_": lambda: torch.empty(COUNT, dtype=torch.int32).random_(6),
    "random_ from": lambda: torch.empty(COUNT, dtype=torch.int32).random_(2, 6),
    "bernoulli": lambda: torch.bernoulli(ONES * 0.3),
    "bernoulli of a number": lambda: torch.bernoulli(ONES, 0.8),
    "bernoulli_": lambda: torch.empty(COUNT).bernoulli_(0.2),
    "bernoulli_ by default": lambda: torch.empty(COUNT).bernoulli_(),
    "bernoulli_ of a tensor": lambda: torch.empty(COUNT).bernoulli_(ONES * 0.6),
    "geometric_": lambda: torch.empty(COUNT).geometric_(0.4).clamp(max=12),
    "multinomial with replacement": lambda: torch.multinomial(WEIGHTS, COUNT, replacement=True),
    "multinomial of one": lambda: torch.multinomial(WEIGHTS.expand(COUNT, 4), 1),
    "the second of multinomial": lambda: torch.multinomial(WEIGHTS.expand(COUNT, 4), 2)[:, 1],
    "the last of randperm": lambda: torch.stack([torch.randperm(3)[-1] for _ in range(3000)]),
    "dropout": lambda: functional.dropout(ONES, 0.3, training=True),
    "native_dropout": lambda: torch.native_dropout(ONES, 0.3, None)[0],
    "alpha_dropout": lambda: functional.alpha_dropout(ONES, 0.3, training=True),
    "feature_dropout": lambda: functional.dropout1d(torch.ones(COUNT, 1, 1), 0.3, training=True),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_frequencies_are_those_of_pytorch(name: str) -> None:
    call = DISCRETE[name]
    made = sampled(call)
    torch.manual_seed(0)
    own = call()
    assert (made.dtype, made.shape) == (own.dtype, own.shape)
    values = own.unique()
    torch.testing.assert_close(made.unique(), values)
    for value in values:
        share, expected = (float(((sample - value).abs() < 1e-4).float().mean()) for sample in (made, own))
        assert share == pytest.approx(expected, abs=0.01 if own.numel() == COUNT else 0.05)


# ---- edges -------------------------------------------------------------------------------------------

NEARLY_ONE = 1 - 2.0**-24


@pytest.mark.parametrize("value", [0.0, 0.5, NEARLY_ONE])
def test_edges_of_uniform_noise(value: float) -> None:
    x = torch.ones(3)
    assert with_noise(lambda: torch.bernoulli(torch.tensor([0.0, 1.0])), value).tolist() == [0, 1]
    assert with_noise(lambda: x.clone().bernoulli_(0.0), value).tolist() == [0, 0, 0]
    assert with_noise(lambda: x.clone().bernoulli_(1.0), value).tolist() == [1, 1, 1]
    exponential = with_noise(lambda: x.clone().exponential_(), value)
    assert float(exponential.min()) > 0
    assert bool(exponential.isfinite().all())
    assert bool(with_noise(lambda: x.clone().cauchy_(), value).isfinite().all())
    assert float(with_noise(lambda: x.clone().geometric_(0.5), value).min()) >= 1
    assert with_noise(lambda: x.clone().geometric_(1.0), value).tolist() == [1, 1, 1]
    for count in (1, 3, 1000, 2**24 - 1, 2**24):
        assert -5 <= int(with_noise(lambda: torch.randint(-5, count - 5, ()), value)) < count - 5  # noqa: B023
    assert with_noise(lambda: functional.dropout(x, 0.5, training=True), value)[0] in (0, 2)


def test_the_last_integer_is_drawn_and_a_number_of_one_gives_no_other() -> None:
    assert int(with_noise(lambda: torch.randint(7, ()), NEARLY_ONE)) == 6
    assert int(with_noise(lambda: torch.randint(7, ()), 1.0)) == 6  # float16 rounds to 1


def test_a_token_without_weight_is_never_sampled() -> None:
    """Softmax gives exactly 0 to masked tokens; their logarithm is -inf, whatever the noise is."""
    weights = torch.tensor([[0.0, 1e-30, 0.0, 0.0], [0.0, 0.0, 0.0, 3e38]])
    assert with_noise(lambda: torch.multinomial(weights, 1), -3.0).tolist() == [[1], [3]]
    noise = torch.tensor([100.0, -100.0, 100.0, 100.0]).expand(2, 4)
    with Draws(lambda *_: noise):
        assert torch.multinomial(weights, 1).tolist() == [[1], [3]]
    weights = torch.tensor([0.0, 1.0, 0.0, 1.0])
    assert set(sampled(lambda: torch.multinomial(weights, 200, replacement=True)).tolist()) == {1, 3}
    for seed in range(20):
        assert sorted(sampled(lambda: torch.multinomial(weights, 2), seed).tolist()) == [1, 3]


def test_samplers_that_divide_by_exponential_noise() -> None:
    probabilities = torch.tensor([0.0, 1.0])
    found = with_noise(lambda: (probabilities / torch.empty_like(probabilities).exponential_(1)).argmax(), 0.0)
    assert int(found) == 1  # 0 / 0 would be NaN, and win


def test_a_permutation_has_each_number_once() -> None:
    assert sampled(lambda: torch.randperm(50)).sort().values.tolist() == list(range(50))
    assert sampled(lambda: torch.randperm(5, dtype=torch.int32)).dtype == torch.int32


def test_in_place_operators_write_to_their_tensor() -> None:
    x = torch.ones(4)
    assert sampled(lambda: x.uniform_()) is x
    assert float(x.min()) >= 0
    assert float(x.max()) < 1
    noise = torch.zeros(4)
    made = sampled(lambda: torch.ops.aten.rrelu_with_noise(-ONES[:4], noise, 0.2, 0.6, True))
    torch.testing.assert_close(made, -noise)


def test_noise_is_asked_for_in_the_shape_and_type_of_the_draw() -> None:
    asked: list[Any] = []

    def noise(distribution: str, shape: Any, dtype: torch.dtype) -> Tensor:
        asked.append((distribution, tuple(shape), dtype))
        return torch.zeros(tuple(shape), dtype=dtype)

    half = torch.ones(2, 3, 4, 4, dtype=torch.float16)
    with Draws(noise):
        torch.randn_like(half)
        functional.dropout2d(half, 0.5, training=True)
        torch.multinomial(torch.ones(2, 5), 3, replacement=True)
        torch.multinomial(torch.ones(2, 5, dtype=torch.float64), 3)
        torch.normal(torch.zeros(3, 1), torch.ones(2))
    assert asked == [
        (NORMAL, (2, 3, 4, 4), torch.float16),
        (UNIFORM, (2, 3, 1, 1), torch.float32),
        (GUMBEL, (2, 3, 5), torch.float32),
        (GUMBEL, (2, 5), torch.float64),
        (NORMAL, (3, 2), torch.float32),
    ]


# ---- what draws nothing, and what is refused -------------------------------------------------------------


def test_what_is_switched_off_draws_nothing() -> None:
    x, ops = torch.ones(3), torch.ops.aten
    assert not draws(ops.dropout.default, (x, 0.5, False), {})
    assert not draws(ops.dropout.default, (x, 0.0, True), {})
    assert not draws(ops.dropout.default, (x, 1.0, True), {})
    assert draws(ops.dropout.default, (x, 0.5, True), {})
    assert draws(ops.native_dropout.default, (x, 0.5, None), {})
    assert not draws(ops.rrelu.default, (x,), {})
    assert draws(ops.rrelu.default, (x,), {"training": True})
    assert not draws(ops.scaled_dot_product_attention.default, (x, x, x), {})
    assert draws(ops.scaled_dot_product_attention.default, (x, x, x), {"dropout_p": 0.1})
    recurrent = (x, x, [x], True, 1, 0.5, True, False, False)
    assert not draws(ops.gru.input, recurrent, {})
    assert draws(ops.gru.input, (*recurrent[:4], 2, *recurrent[5:]), {})
    assert not draws(ops.relu.default, (x,), {})
    assert not draws(len, (x,), {})


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: torch.poisson(ONES), "until one is accepted"),
        (lambda: torch.binomial(ONES, ONES * 0.5), "until one is accepted"),
        (lambda: torch.randn(3, dtype=torch.complex64), "complex random numbers"),
        (lambda: torch.randint(2**24 + 1, (3,)), "distinguishes at most 16,777,216"),
        (lambda: torch.empty(3).random_(), "without an upper bound"),
        (lambda: torch.rand(3, out=torch.empty(3)), "no formula"),
    ],
)
def test_what_no_formula_computes_is_refused(call: Callable[[], Tensor], reason: str) -> None:
    with pytest.raises(NotFromNoiseError, match=reason):
        sampled(call)
