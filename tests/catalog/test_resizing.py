"""Filtered resizes of images: of bytes exactly as eager PyTorch, and of sizes that are known only at run time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn.functional import interpolate

from patcomp import TorchConverter
from patcomp.emit.native import Native
from patcomp.evaluate.inputs import prepare_input


class Resizes(nn.Module):
    """The filters to twice the height less 3 and half the width, and the antialiased ones by a factor."""

    def forward(self, x: torch.Tensor) -> Any:
        size = 2 * x.shape[2] - 3, x.shape[3] // 2 + 1
        corners = interpolate(x, (9, 5), mode="bicubic", align_corners=True)
        cubic = interpolate(x, size, mode="bicubic", antialias=True)
        linear = interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)
        return corners, cubic, linear, interpolate(x, size, mode="bicubic"), interpolate(x, (9, 1), mode="bilinear")


def _image(*size: int) -> torch.Tensor:
    return torch.randint(0, 256, (1, 2, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(sum(size)))


@pytest.mark.parametrize("element", [torch.uint8, torch.float32])
@pytest.mark.parametrize("is_open", [False, True])
def test_resizes(element: torch.dtype, is_open: bool, native: Native) -> None:
    dims = {2: Dim("h", min=6, max=64), 3: Dim("w", min=6, max=64)} if is_open else {}
    model, images = Resizes(), [_image(*size).to(element) for size in ((13, 21), (20, 11))[: 1 + is_open]]
    program = (
        TorchConverter()
        .add_exported_program(torch.export.export(model, (images[0],), dynamic_shapes={"x": dims}))
        .to_coreai()
    )
    argument = program.module.graph("main").regions[0].block.args[0].type
    for image in images:
        inputs = {"x": prepare_input(image, argument, "x")}
        for outputs in (program.run(inputs), native.run(program.module, inputs)):
            for index, (name, wanted) in enumerate(zip(program.output_names(), model(image), strict=True)):
                made = torch.as_tensor(outputs[name])
                assert made.dtype == wanted.dtype
                # weights that are computed in float32 may be rounded to another integer than PyTorch's
                tolerance = 0.001 if element is torch.float32 else float(is_open and index in (0, 3))
                torch.testing.assert_close(made.float(), wanted.float(), rtol=0, atol=tolerance)
