"""What is computed from constants alone becomes constants, up to a limit; weights stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.emit.native import Native
from patcomp.evaluate.machine import evaluate
from patcomp.ir import coreai
from patcomp.ir.constants import constant_values
from patcomp.ir.module import IRModule
from patcomp.ir.value import Value
from patcomp.ir.verify import verify
from patcomp.rewrites.folding import fold_constants
from tests.helpers.programs import program


def left(module: IRModule) -> list[str]:
    """The ops of a module's main graph without constants."""
    names = [op.name.removeprefix("coreai.") for op in module.graph("main").regions[0].block.ops]
    return [name for name in names if name not in ("constant", "output")]


def causal(x: Value) -> Value:
    """Scores with a causal mask, which takes four ops on constants."""
    size = x.shape[-1]
    rows, columns = coreai.range(0, size, 1), coreai.reshape(coreai.range(0, size, 1), [size, 1])
    return coreai.broadcasting_where(coreai.broadcasting_greater(rows, columns), -1e9, x)


def test_a_mask_of_any_size_is_a_constant() -> None:
    module = program({"x": "64x64xf32"}, causal)
    x = torch.randn(64, 64)
    before = evaluate(module, {"x": x})["y0"]
    assert fold_constants(module.graph("main"), module) == 4
    verify(module, runtime=True)
    assert left(module) == ["decomposable.broadcasting_where"]
    assert torch.equal(evaluate(module, {"x": x})["y0"], before)
    assert len(module.blobs.blobs) == 1  # what lies between is not stored


def test_results_beyond_the_limit_are_computed_on_each_run() -> None:
    module = program({"x": "64x64xf32"}, causal)
    fold_constants(module.graph("main"), module, limit=1000)
    assert left(module) == ["decomposable.broadcasting_greater", "decomposable.broadcasting_where"]


def test_a_value_that_is_repeated_costs_one_element() -> None:
    module = program(
        {"x": "2000x2000xf32"}, lambda x: coreai.broadcasting_add(x, coreai.broadcast_to(1.5, [2000, 2000]))
    )
    fold_constants(module.graph("main"), module)
    assert left(module) == ["decomposable.broadcasting_add"]
    assert not module.blobs.blobs


def test_a_value_that_is_repeated_without_end_is_computed_on_each_run() -> None:
    """The evaluator would make all of its elements, here 4 TB."""
    module = program({"x": "1xf32"}, lambda x: coreai.broadcast_to(coreai.constant(1.0), [2**20, 2**20]))
    assert fold_constants(module.graph("main"), module) == 0


@pytest.mark.parametrize("element", ["bf16", "f16", "i1", "si8"])
def test_element_types_are_stored_as_they_are(element: str) -> None:
    def body(x: Value) -> Value:
        made = coreai.cast(coreai.reshape(coreai.range(0, 400, 1), [20, 20]), element)
        return coreai.broadcasting_add(x, coreai.cast(coreai.concat(1, [made, made]), "f32"))

    module = program({"x": "20x40xf32"}, body)
    x = torch.zeros(20, 40)
    before = evaluate(module, {"x": x})["y0"]
    fold_constants(module.graph("main"), module)
    assert left(module) == ["decomposable.broadcasting_add"]
    assert torch.equal(evaluate(module, {"x": x})["y0"], before)


def test_an_undefined_result_is_left_to_the_run() -> None:
    def body(x: Value) -> Value:
        return coreai.broadcasting_add(x, coreai.broadcasting_floor_divide(coreai.range(0, 300, 1), 0))

    module = program({"x": "300xsi32"}, body)
    fold_constants(module.graph("main"), module)
    assert left(module) == ["decomposable.broadcasting_floor_divide", "decomposable.broadcasting_add"]
    constants = [op.results[0] for op in module.graph("main").walk() if op.name == "coreai.constant"]
    assert any(np.array_equal(constant_values(each, module.blobs), np.arange(300)) for each in constants)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 32))
        self.register_buffer("small", torch.randint(-9, 9, (32, 32), dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(32.0).outer(torch.arange(32.0)).cos()
        return x @ self.weight.t() + self.small.to(torch.float32) + positions


def test_weights_stay_and_tables_are_stored(native: Native) -> None:
    model, x = Scaled(), torch.randn(4, 32, 32)
    program = TorchConverter().add_exported_program(torch.export.export(model, (x,))).to_coreai()
    text = program.text()
    assert "coreai.transpose" in text
    assert "coreai.blockwise_shift_scale" in text
    assert "coreai.cos" not in text
    program.verify_against(model, (x,)).check()
    (name,) = program.input_names()
    (found,) = native.run(program.module, {name: x}).values()
    assert torch.allclose(torch.as_tensor(found), model(x), atol=1e-5)


def test_stored_indices_are_folded_and_stored_weights_are_not() -> None:
    """Positions in a buffer are no weights; integers of few bits may be a compressed weight, and floats are weights."""

    def body(x: Value) -> Value:
        positions, table, bytes_ = (
            coreai.constant(np.arange(600).reshape(1, 600).astype(dtype)) for dtype in (np.int32, np.float32, np.int8)
        )
        for stored in (positions, table, bytes_):
            x = coreai.broadcasting_add(x, coreai.cast(coreai.transpose(stored, [1, 0]), "f32"))
        return x

    module = program({"x": "600x2xf32"}, body)
    x = torch.randn(600, 2)
    before = evaluate(module, {"x": x})["y0"]
    assert fold_constants(module.graph("main"), module) == 2, "the positions: transpose and cast"
    verify(module, runtime=True)
    assert left(module).count("transpose") == 2
    assert torch.equal(evaluate(module, {"x": x})["y0"], before)


def test_indices_without_values_stay() -> None:
    """A program that is read from text has no values of buffers."""
    text = """
        coreai.graph @main(%x: tensor<2x600xsi32> {coreai.name = "x"}) -> (tensor<2x600xsi32> {coreai.name = "y"}) {
          %positions = coreai.constant dense_resource<positions> : tensor<600x1xsi32>
          %s = coreai.constant dense<[1, 600]> : tensor<2xsi32>
          %row = coreai.reshape %positions, %s : (tensor<600x1xsi32>, tensor<2xsi32>) -> tensor<1x600xsi32>
          %y = coreai.decomposable.broadcasting_add %x, %row
              : (tensor<2x600xsi32>, tensor<1x600xsi32>) -> tensor<2x600xsi32>
          coreai.output %y : tensor<2x600xsi32>
        }"""
    module = IRModule.parse(text)
    assert fold_constants(module.graph("main"), module) == 0
    assert left(module) == ["reshape", "decomposable.broadcasting_add"]
