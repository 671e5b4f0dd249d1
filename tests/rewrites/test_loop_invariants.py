"""What the steps of a loop compute from values outside is computed before the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import while_loop
from torch.export import Dim, export
from torch.nn.functional import layer_norm, pad

from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from tests.frontend_torch.branches import Captures, assert_agrees, zero
from tests.helpers.as_users_run import AS_USERS_RUN

pytestmark = AS_USERS_RUN

Step = Callable[[Tensor], Tensor]


def looped(x: Tensor, step: Step) -> Tensor:
    return while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, step(a)), (zero(), x.clone()))[1]  # type: ignore[no-any-return]


def also_after(value: Callable[[Tensor], Tensor]) -> Step:
    return lambda x: looped(x, lambda a: a * 0.5 + value(x)) - value(x).sin()


def branch_after(x: Tensor) -> Tensor:
    y = looped(x, lambda a: a * 0.5 + x.exp())
    return torch.cond(y[0, 1] > 0, lambda y: y + x.exp(), lambda y: y * 2, (y,))


IN_A_BRANCH: dict[str, Step] = {
    "and after it": also_after(torch.exp),
    "a product": also_after(lambda x: (x @ x.transpose(0, 1)) @ x),
    "a composite": also_after(lambda x: layer_norm(x, (4,))),
    "and in another loop": lambda x: (
        looped(x, lambda a: a * 0.5 + x.exp()) + looped(x, lambda a: a * 0.25 - x.exp()).sin()
    ),
    "and in a loop after it": lambda x: looped(looped(x, lambda a: a * 0.5 + x.exp()), lambda a: a + x.exp()),
    "and in a branch after it": branch_after,
    "in a loop in it": lambda x: (
        looped(x, lambda b: b * 0.5 + looped(x, lambda a: a * 0.5 + b + x.exp())) - x.exp().sin()
    ),
}  # fmt: skip


def converted(function: Any) -> tuple[Captures, AIProgram]:
    model = Captures(function)
    exported = export(model, (torch.ones(3, 4),), dynamic_shapes=(({0: Dim("n", min=2, max=8)},),))
    return model, TorchConverter().add_exported_program(exported).to_coreai()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", IN_A_BRANCH)
def test_a_loop_in_a_branch(name: str, native: Native) -> None:
    step = IN_A_BRANCH[name]
    model, program = converted(lambda m, x: torch.cond(x[0, 0] > 0, step, lambda x: x * 3, (x,)))
    for first in (1.0, -1.0):
        x = torch.linspace(-0.9, 1, 20).reshape(5, 4)
        x[0, 0] = first
        assert_agrees(model, program, (x,), native)


def test_only_what_changes_is_computed_in_each_step() -> None:
    _, program = converted(lambda m, x: looped(x, lambda a: (a * x.exp()).sin() + looped(a, lambda b: b * x.cos())))
    inside = {op.name for loop in program.module.op.walk() if loop.name == "coreai.while" for op in loop.walk()}
    assert "coreai.sin" in inside
    assert not inside & {"coreai.exp", "coreai.cos"}


def test_a_loop_beside_a_result_that_may_be_empty(native: Native) -> None:
    """What a program with such results reads of sizes in a loop, it reads of copies of what the loop carries."""

    def function(m: Captures, x: Tensor, y: Tensor) -> Any:
        def step(i: Tensor, a: Tensor, b: Tensor) -> Any:
            return i + 1, b * 0.5 + y * 0.25, a.clone()

        y = torch.maximum(pad(y, [1, -1]), y)  # slices may be empty, for all that is known of them
        a, b = while_loop(lambda i, a, b: i < 3, step, (zero(), y.clone(), y.sin()))[1:]
        return torch.minimum(a, b), (x > 0.5).nonzero()

    model, y = Captures(function), torch.linspace(-1, 1, 8).reshape(2, 4)
    shapes = (({1: Dim("n", min=2, max=8)},) * 2,)
    exported = export(model, (y.cos(), y), dynamic_shapes=shapes)
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert_agrees(model, program, (y.cos(), y), native)
