"""Depth Anything 3 as an object: the sky of a stand-in network, by the package's own rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp.emit.native import Native
from patcomp.errors import PatcompError
from patcomp_models.tasks import convert_depth
from tests.models.tasks.comparing import runs


class DepthAnything3Net(nn.Module):
    """Depth from the red channel, and sky from the green one, with the step of the package behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(5.0))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        made = {"depth": self.scale + x[:, :, 0], "sky": x[:, :, 1].sigmoid(), "extrinsics": x[:, :, 0, :3, :4]}
        return self._process_mono_sky_estimation(made)

    def _process_mono_sky_estimation(self, output: dict[str, Tensor]) -> dict[str, Tensor]:
        mask = output["sky"] < 0.3
        if mask.sum() <= 10 or (~mask).sum() <= 10:
            return output
        depth = output["depth"].clone()
        depth[~mask] = torch.quantile(output["depth"][mask], 0.99)
        return {**output, "depth": depth}


class NestedDepthAnything3Net(nn.Module):
    """Two networks."""


@pytest.mark.parametrize("green", [52, 180, 5], ids=["some sky", "all sky", "no sky"])
def test_the_sky_is_far(green: int, native: Native) -> None:
    """The depth of an image of bytes, also where one kind of pixels has too few to tell."""
    model = DepthAnything3Net().eval()
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (14, 28, 3), dtype=np.uint8))
    image[..., 1] = image[..., 1] // 8 + green
    mean, std = (torch.tensor(each)[:, None, None] for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    pixels = (image.permute(2, 0, 1) / 255 - mean) / std
    with torch.no_grad():
        wanted = model(pixels[None, None])
    share = float((wanted["sky"] >= 0.3).float().mean())
    assert {52: 0.1 < share < 0.9, 180: share == 1, 5: share == 0}[green]
    for found in runs(convert_depth(model, (14, 28), image=True), native, "main", {"image": image}):
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            torch.testing.assert_close(found[name], value[:, 0], atol=1e-5, rtol=1e-5)


def test_other_objects() -> None:
    with pytest.raises(PatcompError, match="and not NestedDepthAnything3Net; of a nested one, convert the parts"):
        convert_depth(NestedDepthAnything3Net(), (14, 28))
    with pytest.raises(PatcompError, match=r"DepthAnything3Net does not run on an image of \(2, 27\)"):
        convert_depth(_Small().eval(), (2, 27))


class _Small(DepthAnything3Net):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return super().forward(x.reshape(1, 1, 3, 14, -1))


_Small.__name__ = "DepthAnything3Net"
