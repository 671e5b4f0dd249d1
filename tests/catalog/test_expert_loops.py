"""`gather_mm`, found in Mixture-of-Experts layers that loop over their experts, exact, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from patcomp import AIProgram
from patcomp.emit.native import Native
from tests.catalog.recovering import convert

EXPERTS, CHOSEN, WIDTH, HIDDEN = 4, 2, 6, 5


def products(program: AIProgram) -> int:
    """How many calls of the composite a program makes, which has no others."""
    assert set(program.composites) <= {"gather_mm"}
    return program.composites.get("gather_mm", 0)


class Gated(nn.Module):
    """An expert with three products."""

    def __init__(self, activation: Callable[..., Any] = functional.silu, bias: bool = False):
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias) for _ in range(2))
        self.down, self.activation = nn.Linear(HIDDEN, WIDTH, bias), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Parts(nn.Module):
    """The expert of an index, its weights parts of tensors for all."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Parameter(torch.randn(EXPERTS, 2 * HIDDEN, WIDTH))
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH))

    def forward(self, x: torch.Tensor, expert: int) -> torch.Tensor:
        gate, up = functional.linear(x, self.both[expert]).chunk(2, -1)
        return (functional.gelu(gate) * up) @ self.down[expert]


def masked(weights: Any, chosen: Any, expert: int) -> Any:
    return (weights * (chosen == expert)).sum(-1, keepdim=True)


def by_where(weights: Any, chosen: Any, expert: int) -> Any:
    return torch.where(chosen == expert, weights, 0.0).sum(-1).unsqueeze(-1)


def by_one_hot(weights: Any, chosen: Any, expert: int) -> Any:
    table = (functional.one_hot(chosen, EXPERTS).to(weights.dtype) * weights.unsqueeze(-1)).sum(-2)
    return table[..., expert, None]


def by_scatter(weights: Any, chosen: Any, expert: int) -> Any:
    table = torch.zeros(*weights.shape[:-1], EXPERTS).scatter(-1, chosen, weights)
    return table[..., expert : expert + 1]


class Mixture(nn.Module):
    """A layer with parts to change."""

    def __init__(
        self,
        weight: Callable[..., Any] = masked,
        experts: Callable[[], nn.Module] = Gated,
        order: Any = range(EXPERTS),
        route: Callable[..., Any] = lambda scores: scores.topk(CHOSEN, -1),
        start: Callable[..., Any] = torch.zeros_like,
    ):
        super().__init__()
        torch.manual_seed(0)
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.parts = experts() if experts is Parts else None
        self.experts = nn.ModuleList([] if self.parts is not None else [experts() for _ in range(EXPERTS)])
        self.weight, self.order, self.route, self.start = weight, order, route, start

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.route(self.router(x).softmax(-1))
        weights = weights / weights.sum(-1, keepdim=True)
        result = self.start(x)
        for expert in self.order:
            output = self.experts[expert](x) if self.parts is None else self.parts(x, expert)
            result = result + self.weight(weights, chosen, expert) * output
        return result


def tokens(*lead: int) -> torch.Tensor:
    return torch.randn(*lead, WIDTH, generator=torch.Generator().manual_seed(1))


FORMS = {
    "masked": (lambda: Mixture(masked), 3),
    "by where": (lambda: Mixture(by_where), 3),
    "by one_hot": (lambda: Mixture(by_one_hot), 3),
    "by scatter": (lambda: Mixture(by_scatter), 3),
    "with biases": (lambda: Mixture(experts=lambda: Gated(bias=True)), 3),
    "parts of one tensor": (lambda: Mixture(experts=Parts), 2),
    "one product": (lambda: Mixture(experts=lambda: nn.Linear(WIDTH, WIDTH)), 1),
    "layers in a row": (
        lambda: Mixture(experts=lambda: nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))), 2
    ),
    "in another order": (lambda: Mixture(order=[2, 0, 3, 1]), 3),
    "onto a residual": (lambda: Mixture(start=torch.sin), 3),
    "by argmax": (
        lambda: Mixture(route=lambda scores: (scores.amax(-1, keepdim=True), scores.argmax(-1, keepdim=True))), 3
    ),
    "all of them": (lambda: Mixture(route=lambda scores: scores.topk(EXPERTS, -1)), 3),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lead", [(7,), (2, 3)])
@pytest.mark.parametrize("form", FORMS)
def test_a_loop_over_experts_is_chosen_products(form: str, lead: tuple[int, ...], native: Native) -> None:
    model, count = FORMS[form]
    program = convert(model(), tokens(*lead), native=native)
    assert products(program) == count
    text = program.stages["recover"]
    left = sum(text.count(f"aten.{name} ") for name in ("mm", "addmm", "matmul"))
    assert left == 1, "only the product of the router is left"


def test_large_weights_become_one_constant(native: Native) -> None:
    """Weights that stay in PyTorch's memory, beyond what is written into the text."""
    torch.manual_seed(0)
    layer = Mixture(experts=lambda: nn.Sequential(nn.Linear(WIDTH, 80), nn.Tanh(), nn.Linear(80, WIDTH)))
    program = convert(layer, tokens(5), native=native)
    assert products(program) == 2
    assert f"tensor<{EXPERTS}x80x{WIDTH}xf32>" in program.text()


@pytest.mark.parametrize(
    "layer",
    [Mixture(order=[*range(EXPERTS), 0]), Mixture(route=lambda scores: scores[..., :3].topk(CHOSEN, -1))],
    ids=["an expert twice", "an expert that is never chosen"],
)
def test_what_is_added_to_a_whole_sum_stays(layer: nn.Module, native: Native) -> None:
    assert products(convert(layer, tokens(5), native=native)) == 3


def test_two_layers(native: Native) -> None:
    first, second = Mixture(start=lambda x: x), Mixture(by_where, start=lambda x: x)
    assert products(convert(lambda x: second(first(x)), tokens(4), native=native)) == 6


def _like_the_first(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, chosen = scores.topk(CHOSEN, -1)
    return values, chosen // 2


class _Odd(Mixture):
    """Experts, the last of which is another one."""

    def __init__(self, last: nn.Module):
        super().__init__()
        self.experts[-1] = last


NEAR_MISSES: dict[str, Callable[[], nn.Module]] = {
    "a missing expert": lambda: Mixture(order=range(EXPERTS - 1)),
    "another activation in one expert": lambda: _Odd(Gated(functional.gelu)),
    "a bias in one expert": lambda: _Odd(Gated(bias=True)),
    "weights of all experts": lambda: Mixture(weight=lambda weights, chosen, e: weights[..., e : e + 1],
                                              route=lambda scores: (scores, scores)),
    "indices that are not chosen": lambda: Mixture(route=_like_the_first),
    "the other experts": lambda: Mixture(lambda w, chosen, e: (w * (chosen != e)).sum(-1, keepdim=True)),
    "ones for the others": lambda: Mixture(lambda w, chosen, e: torch.where(chosen == e, w, 1.0).sum(-1)[..., None]),
    "scattered onto ones": lambda: Mixture(
        lambda w, chosen, e: torch.ones(7, EXPERTS).scatter(-1, chosen, w)[:, e, None]
    ),
    "experts that mix tokens": lambda: Mixture(experts=lambda: nn.Softmax(0)),
    "experts with a softmax": lambda: Mixture(experts=lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Softmax(-1))),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", NEAR_MISSES)
def test_near_misses_stay(form: str) -> None:
    assert products(convert(NEAR_MISSES[form](), tokens(7))) == 0


def test_weights_that_are_inputs_stay() -> None:
    class Given(nn.Module):
        def forward(self, x: torch.Tensor, scores: torch.Tensor, *matrices: torch.Tensor) -> torch.Tensor:
            weights, chosen = scores.topk(CHOSEN, -1)
            return sum(
                (masked(weights, chosen, e) * (x @ matrix) for e, matrix in enumerate(matrices)), torch.zeros(())
            )

    matrices = [torch.randn(WIDTH, WIDTH) for _ in range(EXPERTS)]
    assert products(convert(Given(), tokens(7), torch.randn(7, EXPERTS), *matrices)) == 0
