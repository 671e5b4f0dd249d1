"""Scatters of open size in branches: the runtime loses memory between two of them; and choices that are none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim, export

from patcomp import AIProgram, TorchConverter
from patcomp.defects.known.scatters_in_branches import scatter_last
from patcomp.emit.native import Native
from patcomp.errors import VerifyError
from patcomp.ir import Value
from patcomp.ir import coreai as c
from patcomp.ir.module import IRModule
from patcomp.ir.verify import verify
from patcomp.patterns.statistics import Statistics
from tests.frontend_torch.branches import Captures, assert_agrees
from tests.helpers.as_users_run import AS_USERS_RUN
from tests.helpers.programs import program

pytestmark = AS_USERS_RUN

ROWS = torch.tensor([[1, 1, 1, 1]])


def added(x: Tensor, number: float) -> Tensor:
    return x.scatter_add(0, ROWS, x[:1] * number)


def converted(model: Captures, x: Tensor) -> AIProgram:
    exported = export(model, (x,), dynamic_shapes=(({0: Dim("n", min=2, max=8)},),))
    return TorchConverter().add_exported_program(exported).to_coreai()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_two_scatters_of_a_branch(dtype: torch.dtype, native: Native) -> None:
    """Integers take two scatters each, of their low and their high halves."""

    def function(m: Captures, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 1000, lambda x: x * 2, lambda x: added(x, 3) + added(x, 5), (x,))

    model, x = Captures(function), torch.arange(20).reshape(5, 4).to(dtype)
    made = converted(model, x)
    for inputs in (x, x * 100):
        assert_agrees(model, made, (inputs,), native)


def branch(needs_first: bool) -> IRModule:
    """A branch with two scatters; the second one writes what is computed after the first, or of its result."""

    def scatters(x: Value) -> list[Value]:
        rows, axis = c.constant([[1, 1, 1, 1]]), 0
        source = c.slice_(x, [0, 0], [1, 4], [1, 1])
        first = c.scatter_along_axis(x, rows, c.broadcasting_mul(source, 3.0), axis, scatter_mode="add")
        again = c.reduce_sum(first, [0]) if needs_first else source
        second = c.scatter_along_axis(x, rows, c.broadcasting_mul(again, 5.0), axis, scatter_mode="add")
        return [c.broadcasting_add(first, second)]

    def body(x: Value) -> Any:
        positive = c.broadcasting_greater(c.reshape(c.reduce_max(x, [0, 1]), []), 0.0)
        return c.if_(positive, lambda: [c.broadcasting_mul(x, 2.0)], lambda: scatters(x))

    return program({"x": "?x4xf32"}, body)


def test_the_verifier_names_scatters_on_which_the_runtime_ends() -> None:
    message = "a branch computes the values of a scatter after another scatter into a tensor of dynamic size"
    for needs_first in (False, True):
        module = branch(needs_first)
        verify(module, finished=False)
        with pytest.raises(VerifyError, match=message):
            verify(module)
        scatter_last(module, Statistics())
        if needs_first:  # nothing can be moved
            with pytest.raises(VerifyError, match=message):
                verify(module)
        else:
            verify(module)


def test_a_choice_between_a_value_and_itself_is_the_value(native: Native) -> None:
    """Also of open size, in a loop: a copy in one branch would be taken out of it, and the program not be loaded."""

    def function(m: Captures, x: Tensor) -> Tensor:
        def inner(a: Tensor) -> Tensor:
            return torch.cond(a.flatten()[-1] > a.flatten()[0], lambda a: a.clone(), lambda a: a * 1.0, (a,))

        def step(i: Tensor, a: Tensor) -> Any:
            return i + 1, torch.cond(x.amax() > a.amin(), inner, lambda a: -a, (x,)).clone()

        return torch._higher_order_ops.while_loop(lambda i, a: i < 3, step, (torch.tensor(0), x.clone()))[1]  # type: ignore[no-any-return]

    model, x = Captures(function), torch.tensor([[1.0], [-2.0], [0.5]])
    made = converted(model, x)
    assert str(made).count("coreai.if") == 1
    assert_agrees(model, made, (x,), native)
