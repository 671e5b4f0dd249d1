"""The composites of recurrences compute what their loops over tokens do, for any number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import patcomp.evaluate.recurrences
from patcomp.composite_ops import GatedDeltaUpdate
from patcomp.emit.native import Native
from patcomp.evaluate.machine import evaluate
from patcomp.frontend_torch.fx.dtypes import element_of
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.module import IRModule, create_graph
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Block
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites.outline import outline
from patterns_catalog.recover.chunks import CHUNK
from patterns_catalog.recover.gated_delta import gated_delta_update, kimi_delta_update
from patterns_catalog.recover.selective_scan import selective_scan_update
from patterns_catalog.recover.state_space import state_space_update
from tests.helpers.defects import own_values

_ = patcomp.evaluate.recurrences


def delta_inputs(length: int, heads: tuple[int, int] = (1, 2)) -> dict[str, Tensor]:
    """Keys of which some are equal and decays of both signs."""
    torch.manual_seed(0)
    query, key = (torch.randn(2, heads[0], length, 4) for _ in range(2))
    key[:, :, length // 2 :] = key[:, :, -1:]
    value, state = torch.randn(2, heads[1], length, 5), torch.randn(2, heads[1], 4, 5)
    g, beta = 0.1 - torch.rand(2, heads[1], length), torch.rand(2, heads[1], length)
    return {"query": query, "key": key, "value": value, "g": g, "beta": beta, "initial_state": state}


def space_inputs(length: int, heads: tuple[int, int] = (1, 2)) -> dict[str, Tensor]:
    torch.manual_seed(0)
    b, c = (torch.randn(2, heads[0], length, 4) for _ in range(2))
    values, state = torch.randn(2, heads[1], length, 5), torch.randn(2, heads[1], 5, 4)
    return {"values": values, "g": 0.1 - torch.rand(2, heads[1], length), "b": b, "c": c, "initial_state": state}


def kimi_inputs(length: int, heads: tuple[int, int] = (1, 2)) -> dict[str, Tensor]:
    """As `delta_inputs`; some elements are forgotten at once, and others hardly."""
    inputs = delta_inputs(length, heads)
    g = 0.1 - torch.rand(2, heads[1], length, 4)
    g[..., 1], g[..., 2] = -0.01, -60 * torch.rand(2, heads[1], length)
    return {**inputs, "g": g}


def scan_inputs(length: int, heads: tuple[int, int] = (1, 2)) -> dict[str, Tensor]:
    torch.manual_seed(0)
    values, b, c = (torch.randn(2, size, length) for size in (5, 4, 4))
    slopes, state = -torch.rand(5, 4) * torch.tensor([0.01, 1.0, 1.0, 90.0]), torch.randn(2, 5, 4)
    return {
        "values": values, "steps": torch.rand(2, 5, length), "slopes": slopes, "b": b, "c": c, "initial_state": state,
    }  # fmt: skip


def program_of(call: Callable[..., Any], inputs: dict[str, Tensor], is_open: bool = False) -> IRModule:
    """A program that calls a composite twice, the second time with outputs of the first call as values."""
    module = IRModule()
    shapes = [
        tuple(None if is_open and axis == 2 and name not in WHOLE else size for axis, size in enumerate(x.shape))
        for name, x in inputs.items()
    ]
    types = [tensor(shape, element_of(x.dtype)) for shape, x in zip(shapes, inputs.values(), strict=True)]
    block = Block(arg_types=types)
    with Builder(block, blobs=module.blobs):
        given = dict(zip(inputs, map(Value, block.args), strict=True))
        outputs, state = call(**given)
        values = "values" if "values" in given else "value"
        again = call(**{**given, values: outputs if call is scan else coreai.transpose(outputs, [0, 2, 1, 3])})
        coreai.output(outputs, state, *again)
    graph = create_graph("main", block, argument_names=list(inputs), result_names=RESULTS)
    module.op.body.block.add_op(graph)
    outline(module)
    own_values(module, Statistics())
    verify(module)
    return module


WHOLE = ("initial_state", "slopes")
"""Inputs without an axis of tokens."""
RESULTS = ["output", "state", "second_output", "second_state"]


def delta(**given: Any) -> Any:
    return gated_delta_update(*given.values(), use_qk_l2_norm=True)


def kimi(**given: Any) -> Any:
    return kimi_delta_update(*given.values(), use_qk_l2_norm=True)


def scan(**given: Any) -> Any:
    return selective_scan_update(*given.values())


def space(**given: Any) -> Any:
    return state_space_update(*given.values())


def _expected(call: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    def function(**given: Tensor) -> Any:
        return OPERATORS[call](*given.values(), *([True] if call in (delta, kimi) else []))

    outputs, state = function(**inputs)
    values = "values" if "values" in inputs else "value"
    again = outputs if call is scan else outputs.transpose(1, 2)
    return dict(zip(RESULTS, [outputs, state, *function(**{**inputs, values: again})], strict=True))


OPERATORS: dict[Any, Any] = {
    delta: torch.ops.patcomp.gated_delta_update, kimi: torch.ops.patcomp.kimi_delta_update,
    space: torch.ops.patcomp.state_space_update, scan: torch.ops.patcomp.selective_scan_update,
}  # fmt: skip


def _check(program: IRModule, call: Any, inputs: dict[str, Tensor], native: Native) -> None:
    half = inputs["initial_state"].dtype == torch.float16
    evaluated, run = evaluate(program, inputs), native.run(program, inputs)
    for name, reference in _expected(call, inputs).items():
        for made in (evaluated[name], torch.from_numpy(run[name])):
            torch.testing.assert_close(made, reference, rtol=4e-3 if half else 1e-4, atol=4e-3 if half else 2e-5)


CALLS = [
    pytest.param(delta, delta_inputs, id="gated delta"),
    pytest.param(kimi, kimi_inputs, id="kimi delta"),
    pytest.param(space, space_inputs, id="state space"),
    pytest.param(scan, scan_inputs, id="selective scan"),
]


@pytest.mark.parametrize(("call", "inputs"), CALLS)
def test_any_number_of_tokens(call: Any, inputs: Any, native: Native) -> None:
    program = program_of(call, inputs(3), is_open=True)
    for length in (1, 2, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 7):
        _check(program, call, inputs(length), native)


@pytest.mark.parametrize(("call", "inputs"), CALLS)
@pytest.mark.parametrize("length", [1, 3, CHUNK + 3])
def test_a_fixed_number_of_tokens(call: Any, inputs: Any, length: int, native: Native) -> None:
    given = {name: x.half() for name, x in inputs(length, (2, 4)).items()}
    program = program_of(call, given)
    assert ("coreai.while" in program.text()) == (length > (8 if call is scan else CHUNK))
    _check(program, call, given, native)


def test_a_state_that_is_forgotten() -> None:
    """A decay of 0, and decays near 1 behind it."""
    inputs = space_inputs(9)
    inputs["g"][:, :, 3] = -torch.inf
    inputs["g"][:, :, 4:] = -1e-3
    evaluated = evaluate(program_of(space, inputs), inputs)
    for name, reference in _expected(space, inputs).items():
        torch.testing.assert_close(evaluated[name], reference, rtol=1e-4, atol=2e-5)


def test_the_operator_is_the_module() -> None:
    for normalize in (False, True):
        inputs = delta_inputs(3, (2, 4)).values()
        expected = GatedDeltaUpdate(normalize)(*inputs)
        torch.testing.assert_close(torch.ops.patcomp.gated_delta_update(*inputs, normalize), expected)


def test_declaration() -> None:
    text = program_of(delta, delta_inputs(3)).text()
    assert '"gated_delta_update" = {input_names = ["query", "key", "value", "g", "beta", "initial_state"]' in text
    assert "op_attrs = {use_qk_l2_norm = true, version = 1 : si64}" in text
    assert 'output_names = ["output_0", "output_1"]' in text
