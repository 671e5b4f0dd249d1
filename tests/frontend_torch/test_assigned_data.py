"""Models that assign to `.data` of their weights in `forward`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import patcomp
from patcomp import ExportError, TorchConverter


class AssignsData(nn.Module):
    """Computes the weight of a layer from another one and assigns it, as SPAN and other re-parameterized nets do."""

    def __init__(self, way: str = "fused", shape: tuple[int, int] = (4, 4)) -> None:
        super().__init__()
        self.way, self.is_new = way, True
        self.given, self.used = nn.Linear(4, 4), nn.Linear(shape[1], shape[0])

    def forward(self, x: Tensor) -> Tensor:
        weight = self.given.weight.data.clone() * 2
        if self.way == "read before":
            weight = weight + self.used.weight
        elif self.way == "of its data":
            weight = weight + self.used.weight.data
        elif self.way == "of an input" and self.is_new:
            weight = weight + x[0].abs().mean()
            self.is_new = False
        elif self.way == "of an input, through a view":
            weight.view(-1)[:2] = x[0, 0]
        self.used.weight.data = weight.T.contiguous()
        rows, columns = self.used.weight.shape
        return self.used(x) * rows + torch.ones(columns)


@pytest.mark.parametrize("shape", [(4, 4), (4, 2)])
def test_weights_that_are_assigned_to_data(shape: tuple[int, int]) -> None:
    """Those that the model computes of other weights are computed in the program, also where the assignment changes a
    shape; the model stays as it was."""
    model = AssignsData(shape=shape).eval()
    before = model.used.weight.detach().clone()
    program = TorchConverter().add_exported_program(patcomp.export(model, (torch.randn(3, 4),))).to_coreai()
    assert torch.equal(model.used.weight, before)
    comparison = program.verify_against(model, (torch.randn(3, 4),), backends=["evaluator"])
    comparison.check()  # the comparison ran the model, which changed it
    assert not torch.equal(model.used.weight, before)


@pytest.mark.parametrize(
    ("way", "message"),
    [("read before", "reads a tensor and then assigns to its `.data`, at test_assigned_data.py"),
     ("of its data", "reads a tensor and then assigns to its `.data`"),
     ("of an input", "assigns what may depend on an input to `.data`, at test_assigned_data.py"),
     ("of an input, through a view", "assigns what may depend on an input to `.data`")],
)  # fmt: skip
def test_weights_that_another_run_may_change(way: str, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        patcomp.export(AssignsData(way).eval(), (torch.randn(3, 4),))
