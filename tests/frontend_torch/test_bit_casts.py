"""Tensors viewed as another element type: weights and buffers as they are stored, computed integers by arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from patcomp import TorchConverter, UnsupportedError


class Packed(nn.Module):
    """Weights of several types in one buffer of bytes, as packed formats store them."""

    def __init__(self) -> None:
        super().__init__()
        half = torch.tensor([0.5, -2.0, 3.0]).half()
        self.register_buffer("bytes_", torch.cat([torch.tensor([200, 3]).byte(), half.view(torch.uint8)]).reshape(1, 8))
        self.weight = nn.Parameter(torch.tensor([[1.0, -2.0]]))

    def forward(self, x: torch.Tensor) -> Any:
        scale = self.bytes_[0, 2:].view(torch.float16)
        signed = self.bytes_[:, :2].view(torch.int8)
        return x * scale.float(), signed.float() + x[0], self.weight.view(torch.int32) + x.int()[:2]


def test_views_of_weights_and_buffers_are_stored() -> None:
    model, x = Packed().eval(), torch.tensor([1.0, 2.0, 3.0])
    for exported in (torch.export.export(model, (x,)), torch.export.export(model, (x,)).run_decompositions()):
        program = TorchConverter().add_exported_program(exported).to_coreai()
        for made, wanted in zip(program.run(x), model(x), strict=True):
            assert torch.equal(torch.as_tensor(made), wanted.to(torch.as_tensor(made).dtype))
        assert "bitwise" not in str(program)


INTEGERS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "bytes of an open number of integers": (
        lambda x: (x * 3).view(torch.uint8).int(), torch.tensor([1, -5, 70000, -(2**31)]).int()
    ),
    "integers of an open number of bytes": (
        lambda x: (x + 1).view(torch.int16).int(), torch.tensor([[0, 255], [7, 127], [100, 128]]).byte()
    ),
    "integers of 64 bits as themselves": (lambda x: (x & 3).view(torch.int64), torch.arange(4)),
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGERS)
def test_views_of_computed_integers(name: str) -> None:
    function, x = INTEGERS[name]

    class Viewed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    exported = torch.export.export(Viewed(), (x,), dynamic_shapes={"x": {0: Dim("n", min=1, max=64)}})
    program = TorchConverter().add_exported_program(exported).to_coreai()
    for given in (x, x[:1], torch.cat([x, x, x])):
        assert torch.as_tensor(program.run(given)).tolist() == function(given).tolist()


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (torch.int32, "between integers of up to 32 bits only, because Core AI has no bit cast; view a weight"),
        (torch.int64, "a view of computed torch.float32 as torch.int64 is not supported, because it splits 64-bit"),
    ],
)
def test_views_of_computed_floats_are_refused(element: torch.dtype, message: str) -> None:
    class Viewed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + 1).view(element)

    with pytest.raises(UnsupportedError, match=message):
        TorchConverter().add_exported_program(torch.export.export(Viewed(), (torch.ones(4),))).to_coreai()
