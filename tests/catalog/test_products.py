"""Products by a matrix without reshapes around them: what is left of the ops, and that the numbers stay the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from patcomp.emit.native import Native
from patcomp.evaluate.machine import evaluate
from patcomp.ir import coreai
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.verify import verify
from patcomp.rewrites import Options
from patcomp.rewrites.optimize import optimize
from patterns_catalog import default_rules
from tests.helpers.programs import program

RULES = default_rules().stage("optimize")
Body = Callable[[Value, Value, Value], Value]
PRODUCT, ADD = "decomposable.broadcasting_batch_matmul", "decomposable.broadcasting_add"


def joined(x: Value, w: Value, b: Value) -> Value:
    return coreai.broadcasting_add(coreai.broadcasting_batch_matmul(coreai.reshape(x, [6, 4]), w), b)


def twice(x: Value, w: Value, b: Value) -> Value:
    hidden = coreai.relu(joined(x, w, b))
    return coreai.reshape(coreai.broadcasting_batch_matmul(hidden, coreai.transpose(w, [1, 0])), [2, 3, 4])


def open_rows(x: Value, w: Value, b: Value) -> Value:
    flat = coreai.reshape(x, [-1, 4], result_type=tensor((None, 4), x.element_type))
    product = coreai.broadcasting_batch_matmul(flat, w)
    return coreai.reshape(product, [1, -1, 5], result_type=tensor((1, None, 5), x.element_type))


def residual(x: Value, w: Value, b: Value) -> Value:
    """As in OPT: the result of a linear layer is added to a view that has other users, and viewed as rows again."""
    before = coreai.reshape(coreai.broadcast_to(coreai.exp(b), [6, 5]), [2, 3, 5])
    total = coreai.broadcasting_add(coreai.reshape(joined(x, w, b), [2, 3, 5]), before)
    return coreai.broadcasting_batch_matmul(coreai.reshape(total, [6, 5]), coreai.reshape(coreai.tanh(before), [5, 6]))


BY_ROWS = {"product_of_reshape", *(rule.name for rule in RULES if rule.name.startswith(("linear_", "viewed_linear_")))}
SHAPE = (2, 3, 4)
FIRES: dict[str, tuple[tuple[int | None, ...], Body, list[str]]] = {
    "a linear layer": (SHAPE, lambda x, w, b: coreai.reshape(joined(x, w, b), [2, 3, 5]), [PRODUCT, ADD]),
    "two layers": (SHAPE, twice, [PRODUCT, ADD, "relu", "transpose", PRODUCT]),
    "a factor": (
        SHAPE, lambda x, w, b: coreai.reshape(coreai.broadcasting_mul(joined(x, w, b), 0.5), [2, 3, 5]),
        [PRODUCT, ADD, "decomposable.broadcasting_mul"],
    ),
    "heads joined before": (
        (2, 3, 2, 2), lambda x, w, b: coreai.reshape(joined(x, w, b), [2, 3, 5]), ["reshape", PRODUCT, ADD],
    ),
    "columns split after": (
        SHAPE, lambda x, w, b: coreai.reshape(joined(x, w, b), [2, 3, 1, 5, 1]), [PRODUCT, ADD, "reshape"],
    ),
    "another order of sizes": (
        (3, 2, 1, 4), lambda x, w, b: coreai.reshape(joined(x, w, b), [2, 3, 5]), [PRODUCT, ADD, "reshape"],
    ),
    "a tensor is added that has other users": (
        (2, 3, 2, 2), residual,
        ["exp", "broadcast_to", "reshape", "reshape", PRODUCT, ADD, ADD, "reshape", "tanh", "reshape", PRODUCT],
    ),
    "open rows": ((1, None, 4), open_rows, [PRODUCT]),
}  # fmt: skip
"""The shape of x, the program, and the ops that are left."""

STAYS: dict[str, tuple[tuple[int | None, ...], Body, list[str]]] = {
    "no reshape follows": (SHAPE, joined, ["reshape", PRODUCT, ADD]),
    "the rows are used twice": (
        SHAPE,
        lambda x, w, b: coreai.concat(0, [coreai.relu(joined(x, w, b)), coreai.exp(joined(x, w, b))]),
        ["reshape", PRODUCT, ADD, "relu", "exp", "concat"],
    ),
    "a sum over rows follows": (
        SHAPE, lambda x, w, b: coreai.reshape(coreai.reduce_sum(joined(x, w, b), [0]), [5, 1]),
        ["reshape", PRODUCT, ADD, "reduce_sum", "reshape"],
    ),
    "columns that are split before and after": (
        (2, 3, 2, 2), lambda x, w, b: coreai.reshape(joined(x, w, b), [2, 3, 5, 1]),
        ["reshape", PRODUCT, ADD, "reshape"],
    ),
    "rows on the right": (
        SHAPE,
        lambda x, w, b: coreai.reshape(
            coreai.broadcasting_batch_matmul(coreai.transpose(w, [1, 0]), coreai.reshape(x, [4, 6])), [5, 2, 3]),
        ["transpose", "reshape", PRODUCT, "reshape"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("element", ["f32", "f16"])
@pytest.mark.parametrize(("case", "fires"), [*((name, True) for name in FIRES), *((name, False) for name in STAYS)])
def test_product(case: str, fires: bool, element: str, native: Native) -> None:
    """On the evaluator and on the runtime the rewritten program computes what the program did, also not a number."""
    shape, body, left = (FIRES if fires else STAYS)[case]
    types = {"x": "x".join("?" if size is None else str(size) for size in shape) + f"x{element}"}
    types |= {"w": f"4x5x{element}", "b": f"5x{element}"}
    before, after = program(types, body), program(types, body)
    fired = optimize(after, RULES, Options()).fired
    verify(after, runtime=True)
    names = [op.name.removeprefix("coreai.") for op in after.graph("main").regions[0].block.ops]
    assert [name for name in names if name not in ("constant", "output")] == left
    assert bool(BY_ROWS & fired.keys()) == fires

    dtype = torch.float32 if element == "f32" else torch.float16
    torch.manual_seed(0)
    inputs = {"x": torch.randn([6 if size is None else size for size in shape], dtype=dtype)}
    inputs |= {"w": torch.randn(4, 5, dtype=dtype), "b": torch.tensor([-0.0, 0.0, 1, torch.inf, 2], dtype=dtype)}
    inputs["x"].view(-1)[:6] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 0.0, -0.0])
    for run in (evaluate, native.run):
        wanted, made = (torch.as_tensor(run(module, inputs)["y0"]) for module in (before, after))
        torch.testing.assert_close(made, wanted, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(made.signbit() & ~made.isnan(), wanted.signbit() & ~wanted.isnan())
