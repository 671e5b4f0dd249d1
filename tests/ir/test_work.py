"""The multiply-adds of ops, counted by PyTorch's own counter, which counts two operations for each."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from patcomp import TorchConverter
from patcomp.ir.coreai_table import ROWS
from patcomp.ir.module import IRModule
from patcomp.ir.work import multiply_adds
from patcomp.ir.xdsl import ops_inside

MODELS = {
    "broadcasting_batch_matmul": (nn.Linear(6, 7), (torch.ones(2, 3, 6),)),
    "conv2d": (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (torch.ones(2, 4, 9, 9),)),
    "conv3d": (nn.Conv3d(2, 3, (1, 2, 3)), (torch.ones(1, 2, 3, 4, 5),)),
    "conv_transpose2d": (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (torch.ones(2, 4, 5, 5),)),
    "conv_transpose3d": (nn.ConvTranspose3d(2, 3, 2), (torch.ones(1, 2, 3, 4, 5),)),
}


def count(module: IRModule) -> int:
    return sum(multiply_adds(op) for graph in module.graphs for op in ops_inside(graph))


@pytest.mark.parametrize("name", MODELS)
def test_counts_are_half_of_pytorchs(name: str) -> None:
    model, inputs = MODELS[name]
    program = TorchConverter().add_exported_program(torch.export.export(model.eval(), inputs)).to_coreai()
    assert any(op.name.endswith(name) for graph in program.module.graphs for op in ops_inside(graph))
    with FlopCounterMode(display=False) as counter:
        model(*inputs)
    assert 2 * count(program.module) == counter.get_total_flops() > 0


def test_a_dynamic_size_counts_as_one() -> None:
    text = """
    module {
      coreai.graph @main(%x: tensor<?x4x8xf32>, %y: tensor<?x8x5xf32>) -> tensor<?x4x5xf32> {
        %z = coreai.batch_matmul %x, %y : (tensor<?x4x8xf32>, tensor<?x8x5xf32>) -> tensor<?x4x5xf32>
        coreai.output %z : tensor<?x4x5xf32>
      }
    }
    """
    assert count(IRModule.parse(text)) == 4 * 5 * 8


def test_every_row_that_counts_is_tested() -> None:
    assert {row.name.rpartition(".")[2] for row in ROWS if row.multiply_adds} == {*MODELS, "batch_matmul"}
