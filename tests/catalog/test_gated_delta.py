"""The body of `gated_delta_update` computes what the module class does, on evaluator and runtime."""

from __future__ import annotations

import pytest
import torch

from patcomp.composite_ops import GatedDeltaUpdate
from patcomp.emit.native import Native
from patcomp.evaluate import evaluate
from patcomp.frontend_torch.fx.dtypes import element_of
from patcomp.ir import coreai, verify
from patcomp.ir.builder import Builder
from patcomp.ir.module import IRModule, create_graph
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites.outline import outline
from patcomp.rewrites.runtime.loops import own_values
from patterns_catalog.composites.gated_delta import gated_delta_update

NAMES = ["query", "key", "value", "g", "beta", "initial_state"]


def program_of(inputs: list[torch.Tensor], normalize: bool) -> IRModule:
    """A program that calls the composite."""
    module = IRModule()
    block = Block(arg_types=[tensor(tuple(x.shape), element_of(x.dtype)) for x in inputs])
    with Builder(block, blobs=module.blobs):
        coreai.output(*gated_delta_update(*map(Value, block.args), use_qk_l2_norm=normalize))
    graph = create_graph("main", block, argument_names=NAMES, result_names=["output", "state"])
    module.op.body.block.add_op(graph)
    outline(module)
    own_values(module, Statistics())
    verify(module)
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("heads", "length", "normalize"), [((2, 2), 3, True), ((2, 4), 3, False), ((1, 3), 1, True)])
def test_body_is_the_module(
    heads: tuple[int, int], length: int, normalize: bool, dtype: torch.dtype, native: Native
) -> None:
    torch.manual_seed(0)
    query, key = (torch.randn(2, heads[0], length, 4) for _ in range(2))
    value, state = torch.randn(2, heads[1], length, 5), torch.randn(2, heads[1], 4, 5)
    g, beta = -torch.rand(2, heads[1], length), torch.rand(2, heads[1], length)
    inputs = [x.to(dtype) for x in (query, key, value, g, beta, state)]
    program = program_of(inputs, normalize)
    expected = dict(zip(["output", "state"], GatedDeltaUpdate(normalize)(*inputs), strict=True))
    given = dict(zip(NAMES, inputs, strict=True))
    tolerance = 1e-5 if dtype == torch.float32 else 4e-3
    evaluated, run = evaluate(program, given), native.run(program, given)
    for name, reference in expected.items():
        torch.testing.assert_close(evaluated[name], reference, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(torch.from_numpy(run[name]), reference, rtol=tolerance, atol=tolerance)


def test_declaration() -> None:
    inputs = [torch.zeros(1, 2, 3, 4)] * 3 + [torch.zeros(1, 2, 3)] * 2 + [torch.zeros(1, 2, 4, 4)]
    text = program_of(inputs, True).text()
    assert '"gated_delta_update" = {input_names = ["query", "key", "value", "g", "beta", "initial_state"]' in text
    assert "op_attrs = {use_qk_l2_norm = true, version = 1 : si64}" in text
    assert 'output_names = ["output_0", "output_1"]' in text
    assert "coreai.while" in text


@pytest.mark.parametrize("length", [1, 2])
def test_one_step_has_no_loop(length: int) -> None:
    """The decode step of Qwen3-Next."""
    inputs = [torch.zeros(1, 2, length, 4)] * 3 + [torch.zeros(1, 2, length)] * 2 + [torch.zeros(1, 2, 4, 4)]
    text = program_of(inputs, True).text()
    assert ("coreai.while" in text) == (length > 1)
    assert ("coreai.gather_nd" in text) == (length > 1)
