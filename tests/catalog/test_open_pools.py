"""Pools of images whose sizes are known only at run time, in windows that differ."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F  # noqa: N812

from patcomp import TorchConverter
from patcomp.emit.native import Native
from patcomp.evaluate.inputs import prepare_input


class Pools(nn.Module):
    """Average and max pools: of cut windows, without the padding, and adaptive ones."""

    def forward(self, x: torch.Tensor) -> Any:
        return (
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.avg_pool2d(x, (3, 2), (2, 4), (1, 0), ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(x[0], 3, 1, 1, count_include_pad=False),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5),
            F.avg_pool3d(x[:, None], 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.adaptive_avg_pool2d(x, (3, 7)),
            F.adaptive_max_pool2d(x[0], (5, 1)),
            F.adaptive_avg_pool1d(x[0], 5),
        )


def test_pools_of_open_sizes(native: Native) -> None:
    height, width = 2 * Dim("h", min=3, max=32), 4 * Dim("w", min=2, max=32)
    torch.manual_seed(0)
    images = [torch.randn(1, 3, *size) for size in ((8, 12), (6, 8), (14, 20))]
    exported = torch.export.export(Pools(), (images[0],), dynamic_shapes={"x": {2: height, 3: width}})
    program = TorchConverter().add_exported_program(exported).to_coreai()
    argument = program.module.graph("main").regions[0].block.args[0].type
    for image in images:
        inputs = {"x": prepare_input(image, argument, "x")}
        for outputs in (program.run(inputs), native.run(program.module, inputs)):
            for name, wanted in zip(program.output_names(), Pools()(image), strict=True):
                torch.testing.assert_close(torch.as_tensor(outputs[name]), wanted)


class MeansOfImages(nn.Module):
    """Global pools of tensors whose channels are last in memory, as a mean that writes its strides for them."""

    def forward(self, x: torch.Tensor) -> Any:
        image = x.permute(0, 3, 1, 2)
        volume = x[:, None].permute(0, 4, 1, 2, 3)
        return F.adaptive_avg_pool2d(image, 1), F.adaptive_avg_pool3d(volume, 1)


def test_global_pools_of_an_open_batch_with_channels_last(native: Native) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 3)
    exported = torch.export.export(MeansOfImages(), (x,), dynamic_shapes={"x": {0: Dim("batch", min=1)}})
    program = TorchConverter().add_exported_program(exported).to_coreai()
    for inputs in ({"x": x[:1]}, {"x": torch.randn(3, 4, 5, 3)}):
        wanted = MeansOfImages()(inputs["x"])
        for outputs in (program.run(inputs), native.run(program.module, inputs)):
            for name, each in zip(program.output_names(), wanted, strict=True):
                torch.testing.assert_close(torch.as_tensor(outputs[name]), each)
