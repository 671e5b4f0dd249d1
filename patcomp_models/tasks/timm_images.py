"""Images of bytes for models of timm: its transform for evaluation, computed in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import PatcompError

_STEPS = ("Resize", "CenterCrop", "MaybeToTensor", "ToTensor", "Normalize")
_MODES = ("bilinear", "bicubic")
_ROUNDING = 2
"""By how many of 255 a resized pixel may differ from Pillow's, which rounds in other places."""


class TimmTransform:
    """The transform, in the place of an image processor of transformers.

    Bytes are resized in PyTorch's integer arithmetic; timm itself does it with Pillow.

    Args:
        steps: of torchvision's and timm's classes.

    Raises:
        PatcompError: a step is of another class, or resizes by another rule.
    """

    def __init__(self, steps: Sequence[Any]):
        for step in steps:
            name, mode = type(step).__name__, getattr(getattr(step, "interpolation", None), "value", None)
            if name not in _STEPS or (name == "Resize" and mode not in _MODES):
                what = name if mode is None else f"{name} ({mode})"
                raise PatcompError(
                    f"the transform of this model of timm has the step {what}, which has no equal in PyTorch; leave "
                    "the size of an image out, and preprocess in the app"
                )
        self.steps = steps

    def __call__(self, images: Tensor, **options: Any) -> Mapping[str, Tensor]:
        """The pixels of one image, (3, height, width) of uint8."""
        from torchvision.transforms.v2 import functional

        made = images
        for step in self.steps:
            if type(step).__name__ == "Resize":
                size = [step.size] if isinstance(step.size, int) else [*step.size]
                made = functional.resize(made, size, step.interpolation, step.max_size, antialias=True)
            elif type(step).__name__ in ("MaybeToTensor", "ToTensor"):
                made = made.float() / 255
            elif type(step).__name__ == "Normalize":  # torchvision's own looks at the numbers of `std`
                mean, std = (torch.as_tensor(each).reshape(-1, 1, 1) for each in (step.mean, step.std))
                made = (made - mean) / std
            else:
                made = step(made)
        return {"pixel_values": made[None]}


def timm_transform(timm: ModuleType, config: Mapping[str, Any], size: tuple[int, int]) -> TimmTransform:
    """The transform of a model, which was compared with timm's own on an image of random bytes.

    Args:
        timm: the module.
        config: of the model's data.
        size: of the image.

    Raises:
        PatcompError: the transform has no equal in PyTorch.
    """
    from PIL import Image

    transform = timm.data.create_transform(**config)
    found = TimmTransform(transform.transforms)
    image = torch.randint(0, 256, (*size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    wanted = transform(Image.fromarray(image.numpy()))
    made = found(image.permute(2, 0, 1))["pixel_values"][0]
    deviation = torch.tensor(config["std"]).reshape(-1, 1, 1)
    if made.shape != wanted.shape or ((made - wanted) * deviation * 255).abs().max() > _ROUNDING + 0.01:
        raise PatcompError(
            "the transform of this model of timm computes other pixels than PyTorch; leave the size of an image out, "
            "and preprocess in the app"
        )
    return found
