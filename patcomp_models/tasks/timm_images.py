"""Images of bytes for models of timm: its transform for evaluation, computed in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

from patcomp.errors import PatcompError
from patcomp_models.tasks.preprocessing import Preprocessing

_ROUNDING = 2
"""By how many of 255 a resized pixel may differ from Pillow's, which rounds in other places."""


def timm_transform(timm: ModuleType, config: Mapping[str, Any], size: tuple[int, int]) -> Preprocessing:
    """The transform of a model, in the place of an image processor of transformers.

    Bytes are resized in PyTorch's integer arithmetic; timm itself does it with Pillow. The two are compared on an image
    of random bytes.

    Args:
        timm: the module.
        config: of the model's data.
        size: of the image.

    Raises:
        PatcompError: the transform has no equal in PyTorch.
    """
    from PIL import Image

    transform = timm.data.create_transform(**config)
    found = Preprocessing.of(transform)
    image = torch.randint(0, 256, (*size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    wanted = transform(Image.fromarray(image.numpy()))
    made = found(image.permute(2, 0, 1))["pixel_values"][0]
    deviation = torch.tensor(config["std"]).reshape(-1, 1, 1)
    if made.shape != wanted.shape or ((made - wanted) * deviation * 255).abs().max() > _ROUNDING + 0.01:
        raise PatcompError(
            "the transform of this model of timm computes other pixels than PyTorch; leave image= (--preprocess, "
            "--image) out, and preprocess in the app"
        )
    return found
