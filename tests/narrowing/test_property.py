"""Random integer programs: every number is in its range, and what is silent computes the same in 32 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from patcomp.evaluate.machine import evaluate
from patcomp.ir import IRModule, aten, tensor
from patcomp.ir.builder import Builder
from patcomp.ir.types import ELEMENT_OF_TORCH, element_type
from patcomp.ir.value import Value
from patcomp.narrowing.analysis import NarrowingFacts, Ranges
from patcomp.narrowing.check import check_narrowing
from patcomp.narrowing.widths import Widths
from patcomp.rewrites import Options
from patcomp.rewrites.pipeline import run_pipeline
from patterns_catalog import default_rules
from tests.helpers.programs import program
from tests.helpers.thorough import drawn

LENGTH = 4
RULES = default_rules()


@dataclass(frozen=True)
class Kind:
    """An op on int64 vectors: how many operands it takes, as PyTorch computes it, and its arguments in the dialect."""

    name: str
    operands: int
    compute: Callable[..., torch.Tensor]
    arguments: Callable[..., dict[str, Any]]


def binary(name: str, compute: Callable[..., torch.Tensor]) -> Kind:
    return Kind(f"aten.{name}", 2, compute, lambda a, b: {"self": a, "other": b})


def unary(name: str, compute: Callable[..., torch.Tensor], **more: Any) -> Kind:
    return Kind(f"aten.{name}", 1, compute, lambda a: {"self": a, **more})


def clamped(low: int, high: int) -> Kind:
    return unary("clamp", lambda a: a.clamp(low, high), min=low, max=high)


def wide(number: int) -> Value:
    return Builder.current().constant(np.array(number, np.int64), element_type("si64"))


def with_number(name: str, number: int) -> Kind:
    compute = getattr(torch, name)
    return Kind(
        f"aten.{name}.Tensor", 1, lambda a: compute(a, number), lambda a: {"self": a, "other": wide(number)}
    )  # fmt: skip


def divided(number: int, mode: str) -> Kind:
    return Kind(
        "aten.div.Tensor_mode",
        1,
        lambda a: torch.div(a, number, rounding_mode=mode),
        lambda a: {"self": a, "other": wide(number), "rounding_mode": mode},
    )


def through(name: str) -> Kind:
    """A cast to another type and back."""
    dtype, element = getattr(torch, name), element_type(ELEMENT_OF_TORCH[name])
    return Kind(
        "aten._to_copy",
        1,
        lambda a: a.to(dtype).to(torch.int64),
        lambda a: {
            "self": aten.build("aten._to_copy", tensor((LENGTH,), element), self=a, dtype=element),
            "dtype": element_type("si64"),
        },
    )


def chosen() -> Kind:
    truth = tensor((LENGTH,), "i1")
    return Kind(
        "aten.where.self",
        4,
        lambda a, b, c, d: torch.where(a < b, c, d),
        lambda a, b, c, d: {
            "condition": aten.build("aten.lt.Tensor", truth, self=a, other=b), "self": c, "other": d
        },
    )  # fmt: skip


KINDS = [
    *(binary(f"{name}.Tensor", getattr(torch, name)) for name in ("add", "sub", "mul")),
    *(binary(name, getattr(torch, name)) for name in ("maximum", "minimum")),
    *(binary(f"{name}.Tensor", getattr(torch, name)) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")),
    *(unary(name, getattr(torch, name)) for name in ("neg", "abs", "sign", "bitwise_not")),
    unary("cumsum", lambda a: a.cumsum(0), dim=0),
    unary("cumprod", lambda a: a.cumprod(0), dim=0),
    unary("flip", lambda a: a.flip(0), dims=[0]),
    clamped(-9, 9),
    clamped(0, 100_000),
    *(
        with_number(name, number)
        for name in ("remainder", "fmod", "mul", "add", "bitwise_and")
        for number in (7, -3, 1000, 65_599)
    ),
    *(divided(7, mode) for mode in ("floor", "trunc")),
    chosen(),
    *map(through, ("int32", "int16", "uint8", "bool")),
]
Steps = list[tuple[int, tuple[int, ...]]]
STEPS = st.lists(
    st.tuples(st.integers(0, len(KINDS) - 1), st.tuples(*[st.integers(0, 99)] * 4)), min_size=1, max_size=6
)


def built(steps: Steps, *, shown: int = 0) -> IRModule:
    """The program of some steps, with the results from `shown` on as outputs."""

    def body(*inputs: Value) -> list[Value]:
        values = list(inputs)
        for kind, places in steps:
            op = KINDS[kind]
            operands = [values[-1 - place % len(values)] for place in places[: op.operands]]
            values.append(aten.build(op.name, tensor((LENGTH,), "si64"), **op.arguments(*operands)))
        return values[len(inputs) :][shown:]

    return program({"x": f"{LENGTH}xsi64", "y": f"{LENGTH}xsi64"}, body)


def computed(steps: Steps, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What PyTorch computes in each step."""
    values = list(inputs)
    for kind, places in steps:
        op = KINDS[kind]
        values.append(op.compute(*[values[-1 - place % len(values)] for place in places[: op.operands]]))
    return values[len(inputs) :]


@drawn(60)
@given(STEPS, st.sampled_from([1, 9, 300, 40_000, 2**30 - 1, 2**31 - 1]), st.integers(0, 2**32))
def test_numbers_are_in_their_ranges(steps: Steps, largest: int, seed: int) -> None:
    module = built(steps)
    random = torch.Generator().manual_seed(seed)
    inputs = [torch.randint(-largest, largest + 1, (LENGTH,), generator=random) for _ in range(2)]
    block = module.graph("main").regions[0].block
    ranges = Ranges(NarrowingFacts(module, Widths()), dict.fromkeys(block.args, largest))
    if ranges.changes:
        return  # what is computed from a finding is taken to fit
    assert block.last_op is not None
    for value, expected in zip(block.last_op.operands, computed(steps, inputs), strict=True):
        found = ranges.known[value]
        assert found.low <= expected.min().item(), found
        assert found.high >= expected.max().item(), found


@drawn(100)
@given(STEPS, st.integers(0, 2**32))
def test_what_is_silent_is_the_same_in_32_bits(steps: Steps, seed: int) -> None:
    module = built(steps, shown=-1)
    narrowed = check_narrowing(module, Widths())
    if narrowed.diagnostics:
        return
    limits = narrowed.limits.get("main", {})
    random = torch.Generator().manual_seed(seed)
    inputs = {}
    for name in ("x", "y"):
        largest = min(limits.get(name, 2**31 - 1), 10 ** int(torch.randint(1, 11, (), generator=random)))
        inputs[name] = torch.randint(-largest, largest + 1, (LENGTH,), generator=random)
    compiled = run_pipeline(module, RULES, Options()).module
    (found,) = evaluate(compiled, {name: value.to(torch.int32) for name, value in inputs.items()}).values()
    assert torch.equal(found.to(torch.int64), computed(steps, list(inputs.values()))[-1])


def test_some_programs_are_silent_and_some_are_not() -> None:
    random = np.random.default_rng(0)
    found = []
    for _ in range(40):
        steps = [(int(random.integers(len(KINDS))), tuple(map(int, random.integers(99, size=4)))) for _ in range(4)]
        found.append(bool(check_narrowing(built(steps, shown=-1), Widths()).diagnostics))
    assert 5 < sum(found) < 35
