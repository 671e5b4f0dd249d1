"""Hardware constraints on inputs, outputs and states, accepted by the real toolchain."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return x * y + self.total


def converted() -> AIProgram:
    rows = Dim("rows", min=1, max=9)
    exported = torch.export.export(
        Counts(), (torch.ones(2, 3), torch.ones(2, 3)), dynamic_shapes={"x": {0: rows}, "y": {0: rows}}
    )
    return TorchConverter().add_exported_program(exported, output_names=["y"]).to_coreai()


def constraints(rank: int, backing: str = "MTLBuffer") -> Any:
    authoring = pytest.importorskip("coreai.authoring")
    types = pytest.importorskip("coreai.authoring.constraints")
    return authoring.HardwareConstraints(types.AllocationType[backing], (64, *(1,) * rank), (1,) * rank)


def test_inputs_outputs_and_states(native: Native) -> None:
    program = converted()
    assert program.set_hardware_constraints("main", {"y": constraints(2), "b_total": constraints(1, "Heap")}) is None
    text = str(program)
    encoded = "tensor<?x3xf32, #coreaix.hw_constraints<MTLBuffer, alignments: [64x1x1], interleave: [1x1]>>"
    signature = next(line for line in text.splitlines() if "@main" in line)
    assert f"%y: {encoded}" in signature
    assert signature.count(encoded) == 2
    assert "%x: tensor<?x3xf32> " in signature
    assert "!coreai.handle<tensor<3xf32, #coreaix.hw_constraints<Heap" in signature
    assert native.check(program.module) == ()
    assert native.check(program.module, pretty=True) == ()
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    assert program.run(x, y).equal(Counts()(x, y))
    state = {"b_total": torch.zeros(3)}
    outputs = native.run(program.module, {"x": x, "y": y}, state)
    torch.testing.assert_close(torch.as_tensor(outputs["y"]), Counts()(x, y))
    torch.testing.assert_close(torch.as_tensor(state["b_total"]), x.sum(0))


def test_static_variants_keep_constraints(native: Native) -> None:
    program = converted()
    program.set_hardware_constraints("main", {"x": constraints(2), "y": constraints(2)})
    program.set_static_shape_config("main", {"small": {"x": (2, 3), "y": (2, 3)}})
    assert "?" not in str(program)
    assert str(program).count("tensor<2x3xf32, #coreaix.hw_constraints<MTLBuffer") >= 3
    assert native.check(program.module) == ()
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    assert program.run(x, y, entrypoint="main_small").equal(Counts()(x, y))


def test_what_is_refused() -> None:
    program = converted()
    before = str(program)
    for config, message in (
        ({"z": constraints(2)}, "no input, output or state 'z'; there are b_total, x, y"),
        ({"x": constraints(1)}, "'x' of rank 2 needs 3 alignments and an interleave of 2"),
        ({"x": "MTLBuffer"}, "'x': expected coreai.authoring.HardwareConstraints, got 'MTLBuffer'"),
    ):
        with pytest.raises(ValueError, match=message):
            program.set_hardware_constraints("main", config)
    assert str(program) == before
    with pytest.raises(KeyError, match="there is no entry point 'other'; there are main"):
        program.set_hardware_constraints("other", {})
    program.set_hardware_constraints("main", {"x": constraints(2)})
    with pytest.raises(ValueError, match="'x' has constraints already"):
        program.set_hardware_constraints("main", {"x": constraints(2)})
