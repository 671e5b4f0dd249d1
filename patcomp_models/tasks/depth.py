"""Depth Anything 3 given as an object: the depth of one image, with its sky.

depth, sky, ... = main(pixel_values)
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from patcomp import AIProgram, TorchConverter
from patcomp.errors import PatcompError, reason_of
from patcomp.targets import Target
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.folder_to_program import exported_entry
from patcomp_models.tasks.images import from_image
from patcomp_models.tasks.preprocessing import Preprocessing

_NORMALISED = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
_SKY_STEP = "_process_mono_sky_estimation"
_OUTPUTS = ("depth", "depth_conf", "sky", "extrinsics", "intrinsics")
_IS_SKY, _FEWEST, _FAR = 0.3, 10, 0.99
"""From which value a pixel is sky, with how many pixels of either kind nothing changes, and how far away the sky is
among the depths of all else; those of `DepthAnything3Net._process_mono_sky_estimation`."""


class OfOneView(nn.Module):
    """A network of several views, for one.

    Args:
        network: takes (1, views, 3, height, width).
        names: of its outputs.
    """

    def __init__(self, network: nn.Module, names: tuple[str, ...]):
        super().__init__()
        self.network, self.names = network, names

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        made = self.network(pixels[:, None])
        return tuple(made[name][:, 0] for name in self.names)


def with_far_sky(depth: Tensor, sky: Tensor) -> Tensor:
    """Depths in which the sky is as far as the 99th percentile of all else; unchanged with hardly any pixel of either.

    Args:
        depth: of any shape.
        sky: of the same shape; a pixel of 0.3 and more is sky.
    """
    is_sky = sky >= _IS_SKY
    others = (~is_sky).sum()
    ordered = torch.where(is_sky, torch.inf, depth).flatten().sort().values
    place = _FAR * (others - 1).clamp(min=0).float()
    low, high = (ordered[each.long()] for each in (place.floor(), place.ceil()))
    far = torch.lerp(low, high, place - place.floor())
    both = (others > _FEWEST) & (is_sky.sum() > _FEWEST)
    return torch.where(is_sky & both, far, depth)


def convert_depth(
    model: Any,
    image_size: tuple[int, int],
    *,
    image: bool = False,
    target: Literal["cpu", "gpu", "neural_engine"] | Target | None = None,
    converter: TorchConverter | None = None,
    **options: Any,
) -> AIProgram:
    """Convert a model of Depth Anything 3 that is given as an object, for one image; it stays as it is.

    Outputs are what the model has of `depth`, `depth_conf` and `sky` (1, height, width), `extrinsics` (1, 3, 4) and
    `intrinsics` (1, 3, 3). The package draws 100,000 pixels of a larger image to tell how far the sky is; the program
    takes all pixels.

    Args:
        model: `DepthAnything3` of the package depth_anything_3, or its `.model`.
        image_size: height and width of the image that the program takes, multiples of 14.
        image: whether the input is `image` (height, width, 3), bytes in RGB, instead of `pixel_values`, which are
            normalised.
        target: a device, as in `TorchConverter.to_coreai`.
        converter: one with own rules or lowerings; by default a new one.
        options: further ones of `TorchConverter.to_coreai`.

    Raises:
        PatcompError: the object is another one, does not run on an image of this size, or its ops cannot be converted.
    """
    network = model.model if type(model).__name__ == "DepthAnything3" else model
    name = type(network).__name__
    if name != "DepthAnything3Net":
        raise PatcompError(
            f"convert_depth takes DepthAnything3 of the package depth_anything_3, and not {name}; of a nested one, "
            "convert the parts .da3 and .da3_metric, and scale one by the other in the app"
        )
    own = copy.deepcopy(network).float().eval()

    def with_sky(output: Any) -> Any:
        if "sky" in output:
            output["depth"] = with_far_sky(output["depth"], output["sky"])
        return output

    setattr(own, _SKY_STEP, with_sky)
    pixels = torch.rand(1, 3, *image_size, generator=torch.Generator().manual_seed(0))
    try:
        with torch.no_grad():
            found = own(pixels[:, None])
    except Exception as error:  # the package's own code can raise anything
        raise PatcompError(f"{name} does not run on an image of {image_size}: {reason_of(error)}") from error
    names = tuple(each for each in _OUTPUTS if isinstance(found.get(each), Tensor))
    entry = Entry("main", OfOneView(own, names).eval(), {"pixel_values": pixels}, names)
    if image:
        entry = from_image(entry, _NORMALISED, image_size)
    converter = converter or TorchConverter()
    converter.add_exported_program(exported_entry(entry), entry.given, entry.outputs)
    return converter.to_coreai(target=target, **options)
