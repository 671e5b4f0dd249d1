"""Branches of the same ops over open sizes, which the toolchain merges: each must compute its own numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import while_loop
from torch.export import Dim, export
from torch.nn.functional import gelu, layer_norm, relu

from patcomp import TorchConverter
from patcomp.emit.native import Native
from patcomp.errors import VerifyError
from patcomp.ir import Value
from patcomp.ir import coreai as c
from patcomp.ir.verify import verify
from patcomp.patterns.statistics import Statistics
from tests.frontend_torch.branches import Captures, assert_agrees
from tests.helpers.as_users_run import AS_USERS_RUN
from tests.helpers.defects import own_values
from tests.helpers.programs import program

pytestmark = AS_USERS_RUN

WEIGHTS = torch.linspace(-1, 1, 32).reshape(2, 4, 4)
Branch = Callable[[Tensor, Tensor, Tensor], Any]


def loop(x: Tensor, factor: float) -> Tensor:
    return while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * factor), (torch.tensor(0), x))[1].clone()  # type: ignore[no-any-return]


def inner(x: Tensor, first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.cond(x[0, 1] > 0, first, second, (x,))


PAIRS: dict[str, tuple[Branch, Branch]] = {
    "numbers": (lambda x, y, z: x * 3, lambda x, y, z: x * 2),
    "weights": (lambda x, y, z: x @ WEIGHTS[0], lambda x, y, z: x @ WEIGHTS[1]),
    "values from outside": (lambda x, y, z: y * 1.5, lambda x, y, z: z * 1.5),
    "axes": (lambda x, y, z: x.softmax(1), lambda x, y, z: x.softmax(0)),
    "places": (lambda x, y, z: x[:, [0, 1]].exp(), lambda x, y, z: x[:, [3, 2]].exp()),
    "limits": (lambda x, y, z: relu(x - 1), lambda x, y, z: (x - 1).clamp(min=0.5)),
    "signs": (lambda x, y, z: -x, lambda x, y, z: x * 3),
    "composites": (lambda x, y, z: gelu(x) * 2, lambda x, y, z: gelu(x) * 3),
    "norms": (
        lambda x, y, z: layer_norm(x, (4,), WEIGHTS[0, 0], WEIGHTS[0, 1]),
        lambda x, y, z: layer_norm(x, (4,), WEIGHTS[1, 0], WEIGHTS[1, 1]),
    ),
    "an op more": (lambda x, y, z: relu(x - 0.1), lambda x, y, z: x - 0.1),
    "a maximum more": (lambda x, y, z: torch.maximum(y, z), lambda x, y, z: z.clone()),
    "one of two results": (lambda x, y, z: (x * 2, x + 1), lambda x, y, z: (x * 3, x + 1)),
    "branches in branches": (
        lambda x, y, z: inner(x, lambda x: x * 3, lambda x: x.exp()),
        lambda x, y, z: inner(x, lambda x: x * 4, lambda x: x.exp()),
    ),
    "loops in branches": (lambda x, y, z: loop(x, 2.0) * 3, lambda x, y, z: loop(x, 3.0) * 3),
    "integers": (lambda x, y, z: x.int() + 1, lambda x, y, z: x.int() + 2),
    "conditions": (lambda x, y, z: x > 0.3, lambda x, y, z: x > 0.9),
}  # fmt: skip


class Chooses(nn.Module):
    def __init__(self, pair: tuple[Branch, Branch]):
        super().__init__()
        self.pair = pair

    def forward(self, x: Tensor) -> Any:
        return torch.cond(x[0, 0] > 0, *self.pair, (x, x.exp(), x.sin()))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PAIRS)
def test_each_branch_computes_its_own_numbers(name: str, native: Native) -> None:
    model, x = Chooses(PAIRS[name]), torch.linspace(0.5, 3, 12).reshape(3, 4)
    exported = export(model, (x,), dynamic_shapes=({0: Dim("n", min=2, max=8)},))
    converted = TorchConverter().add_exported_program(exported).to_coreai()
    for signs in ([1, 1], [1, -1], [-1, 1], [-1, -1]):
        assert_agrees(model, converted, (torch.cat([x[:, :2] * torch.tensor(signs), x[:, 2:]], 1),), native)


def test_a_branch_in_a_loop_computes_its_own_numbers(native: Native) -> None:
    def function(m: Captures, x: Tensor) -> Tensor:
        def step(i: Tensor, a: Tensor) -> Any:
            return i + 1, torch.cond(a[0, 0] > 1, lambda a: a * 0.5, lambda a: a * 1.5, (a,))

        return while_loop(lambda i, a: i < 4, step, (torch.tensor(0), x))[1]  # type: ignore[no-any-return]

    model, x = Captures(function), torch.linspace(0.5, 3, 12).reshape(3, 4)
    exported = export(model, (x,), dynamic_shapes=(({0: Dim("n", min=2, max=8)},),))
    assert_agrees(model, TorchConverter().add_exported_program(exported).to_coreai(), (x,), native)


def test_the_verifier_names_branches_that_are_merged() -> None:
    def of(x: str, other: Callable[[Value], Value]) -> Any:
        def body(x: Value) -> list[Value]:
            positive = c.broadcasting_greater(c.reshape(c.reduce_max(x, [0, 1]), []), 0.0)
            return c.if_(positive, lambda: [c.broadcasting_mul(x, 2.0)], lambda: [other(x)])  # type: ignore[no-any-return]

        return program({"x": x}, body)

    verify(of("2x4xf32", lambda x: c.broadcasting_mul(x, 3.0)))
    verify(of("?x4xf32", lambda x: c.broadcasting_add(x, 3.0)))
    module = of("?x4xf32", lambda x: c.broadcasting_mul(x, 3.0))
    verify(module, finished=False)
    with pytest.raises(VerifyError, match="the toolchain merges its branches, which are the same ops"):
        verify(module)
    own_values(module, Statistics())
    verify(module)
