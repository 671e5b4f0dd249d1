"""Where the bytes and the work of a program are."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.ir.module import IRModule
from patcomp.report.costs import costs_of
from tests.report.conftest import Model, converted


def test_the_work_of_a_composite_belongs_to_its_call() -> None:
    class Attention(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    model, inputs = Attention(), torch.ones(1, 2, 6, 8)
    program = converted(model, inputs)
    work = costs_of(program.module)["work"]
    assert sum(row[3] for row in work) == 2 * 2 * 6 * 6 * 8  # two heads, two products
    (graph,) = {row[0][0] for row in work}
    assert list(program.module.graphs)[graph] in program.module.entry_graphs


def test_weights_have_their_bytes_and_readers() -> None:
    program = converted(Model())
    weights = costs_of(program.module)["weights"]
    assert weights[0][2:4] == [64 * 8 * 4, 1]
    sizes = [row[2] for row in weights]
    assert sizes == sorted(sizes, reverse=True)
    assert all(row[4] for row in weights)


def test_weights_of_one_size_are_in_the_order_of_their_numbers() -> None:
    layers = nn.Sequential(*(nn.Linear(20, 20, bias=False) for _ in range(11)))
    names = [row[0].strip("_") for row in costs_of(converted(layers, torch.ones(2, 20)).module)["weights"]]
    assert names == [f"{layer}.weight" for layer in range(11)]


def peak(text: str) -> tuple[int, Any]:
    costs = costs_of(IRModule.parse(text))
    ((_, bytes_, at),) = costs["peaks"]
    return bytes_, at


def test_tensors_live_until_they_are_last_read_and_views_share_memory() -> None:
    text = """
    module {
      coreai.graph @main(%x: tensor<8xf32>) -> tensor<2x4xf32> {
        %shape = coreai.constant dense<[2, 4]> : tensor<2xsi32>
        %a = coreai.exp %x : tensor<8xf32> -> tensor<8xf32>
        %b = coreai.reshape %a, %shape : (tensor<8xf32>, tensor<2xsi32>) -> tensor<2x4xf32>
        %c = coreai.sin %b : tensor<2x4xf32> -> tensor<2x4xf32>
        %d = coreai.cos %c : tensor<2x4xf32> -> tensor<2x4xf32>
        %e = coreai.add %d, %b : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
        coreai.output %e : tensor<2x4xf32>
      }
    }
    """
    # at %d there are %a, which %b shows, %c and %d
    assert peak(text) == (3 * 32, [0, 4])


def test_what_a_call_and_a_branch_need_inside_counts() -> None:
    text = """
    module {
      coreai.graph private @twice(%x: tensor<8xf32>) -> tensor<8xf32> {
        %a = coreai.exp %x : tensor<8xf32> -> tensor<8xf32>
        %b = coreai.sin %a : tensor<8xf32> -> tensor<8xf32>
        coreai.output %b : tensor<8xf32>
      }
      coreai.graph @main(%x: tensor<8xf32>, %p: tensor<i1>) -> tensor<8xf32> {
        %y = coreai.invoke @twice(%x)  : (tensor<8xf32>) -> tensor<8xf32>
        %z = coreai.if %p {
          %u = coreai.cos %y : tensor<8xf32> -> tensor<8xf32>
          %v = coreai.sin %u : tensor<8xf32> -> tensor<8xf32>
          %w = coreai.add %u, %v : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
          coreai.yield %w : tensor<8xf32>
        } else {
          coreai.yield %y : tensor<8xf32>
        } : tensor<i1> -> tensor<8xf32>
        coreai.output %z : tensor<8xf32>
      }
    }
    """
    # in the branch %u, %v and %w, and outside %y, %p and the result %z
    assert peak(text) == (5 * 32 + 1, [1, 1])


def test_dynamic_sizes_count_as_one_and_are_said() -> None:
    dim = torch.export.Dim("batch", max=64)
    exported = torch.export.export(nn.Linear(4, 300), (torch.ones(2, 4),), dynamic_shapes=({0: dim},))
    costs = costs_of(TorchConverter().add_exported_program(exported).to_coreai().module)
    assert costs["isOpen"]
    assert sum(row[3] for row in costs["work"]) == 4 * 300
    assert not costs_of(converted(Model()).module)["isOpen"]
