"""Images of bytes as inputs: the image processor of a checkpoint becomes part of its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from patcomp.errors import PatcompError, reason_of
from patcomp_models.tasks.entries import Entry

_FILES = ("preprocessor_config.json", "processor_config.json")
_PIXELS = "pixel_values"
_OPTION = "image= (--preprocess, --image)"

ImageSize = tuple[int, int] | Literal[True]
"""The height and width of an image of bytes; True for those of the model's pixels."""
OptionalImage = ImageSize | Literal[False]
"""The same, or False for a model that takes pixels."""


class FromImage(nn.Module):
    """A model of an image of bytes, (height, width, 3): what its image processor computes in PyTorch, then the model.

    Args:
        model: takes what the processor makes.
        processor: of transformers, with the backend torchvision.
    """

    def __init__(self, model: nn.Module, processor: Any):
        super().__init__()
        self.model, self.processor = model, processor
        self.training = model.training  # not `train`, which would change the mode of its parts

    def pixels(self, image: Tensor) -> Tensor:
        """The input of the model."""
        made = self.processor(
            images=image.permute(2, 0, 1), input_data_format="channels_first", return_tensors="pt"
        )  # fmt: skip
        return self.cast(made[_PIXELS])

    def cast(self, pixels: Tensor) -> Tensor:
        """Pixels in the type of the model's weights."""
        weights = (each.dtype for each in self.model.parameters() if each.is_floating_point())
        return pixels.to(next(weights, torch.float32))

    def forward(self, image: Tensor) -> Any:
        return self.model(self.pixels(image))


class FromFrames(FromImage):
    """A model of a video of bytes, (frames, height, width, 3): what its video processor computes, then the model."""

    def pixels(self, frames: Tensor) -> Tensor:
        made = self.processor(
            videos=[frames.permute(0, 3, 1, 2)], input_data_format="channels_first", do_sample_frames=False,
            return_tensors="pt",
        )  # fmt: skip
        found: Tensor = made[_PIXELS] if _PIXELS in made else made[f"{_PIXELS}_videos"]
        return self.cast(found)

    def forward(self, frames: Tensor) -> Any:
        return self.model(self.pixels(frames))


def check_image_size(size: tuple[int, int]) -> None:
    """Check that an image has pixels.

    Raises:
        PatcompError: it has none.
    """
    if min(size) < 1:
        raise PatcompError(f"an image of {size[0]}x{size[1]} has no pixels; give the height and width, 480x640")


def with_image(entries: Sequence[Entry], folder: Path, size: ImageSize) -> list[Entry]:
    """Functions whose images are bytes: `image` (height, width, 3), or of a video `frames` (frames, height, width, 3),
    takes the place of `pixel_values`.

    Args:
        entries: the functions of a model.
        folder: of its checkpoint, with the settings of its image processor.
        size: height and width of the image, or True for those that the model takes.

    Raises:
        PatcompError: no function takes an image, there is no processor, its code cannot be part of a program, or the
            model does not take what the processor makes.
    """
    if size is not True:
        check_image_size(size)
    if not any(_PIXELS in entry.inputs for entry in entries):
        raise PatcompError(f"the model in {str(folder)!r} takes no image; leave {_OPTION} out")
    of_videos = any(entry.inputs[_PIXELS].ndim == 5 for entry in entries if _PIXELS in entry.inputs)
    processor = _video_processor(folder) if of_videos else _processor(folder)
    return [from_image(entry, processor, size) if _PIXELS in entry.inputs else entry for entry in entries]


def from_image(entry: Entry, processor: Any, size: ImageSize) -> Entry:
    """A function of pixels whose image is bytes.

    Args:
        entry: the function.
        processor: makes its pixels of an image.
        size: of the image; True for the size of the pixels.

    Raises:
        PatcompError: the model does not take what the processor makes.
    """
    pixels, name = entry.inputs[_PIXELS], type(processor).__name__
    height, width = pixels.shape[-2:] if size is True else size
    of_video = pixels.ndim == 5
    if len(entry.inputs) > 1 or pixels.ndim not in (4, 5) or pixels.shape[-3] != 3:
        found = "x".join(map(str, pixels.shape))
        raise PatcompError(
            f"the function {entry.name!r} takes {', '.join(entry.inputs)} (pixels {found}), and only one image or "
            f"video of three channels can be given as bytes; leave {_OPTION} out"
        )
    module = (FromFrames if of_video else FromImage)(entry.module, processor)
    shape = (*pixels.shape[1:2], height, width, 3) if of_video else (height, width, 3)
    image = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    try:
        with torch.no_grad():  # this also computes the constants that processors keep, which export must not trace
            made = module.pixels(image)
            module(image)
    except Exception as error:  # the code of processors and models can raise anything
        raise PatcompError(
            f"{name} and the model do not run on an image of {height}x{width}: {reason_of(error)}"
        ) from error
    if made.ndim != pixels.ndim or made.shape[:-2] != pixels.shape[:-2]:
        wanted = "x".join(map(str, pixels.shape[:-2]))
        raise PatcompError(
            f"{name} makes pixels of {'x'.join(map(str, made.shape))} of one image, and not {wanted}xHxW"
        )
    return replace(entry, module=module, inputs={"frames" if of_video else "image": image})


def _video_processor(folder: Path) -> Any:
    """The video processor of a checkpoint, which computes in PyTorch."""
    from transformers import AutoVideoProcessor

    try:
        return AutoVideoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the settings can make transformers raise anything
        raise PatcompError(
            f"{str(folder)!r} has no video processor that transformers can load ({reason_of(error)}); save the "
            f"processor of the model there (video_preprocessor_config.json), or leave {_OPTION} out"
        ) from error


def _processor(folder: Path) -> Any:
    """The image processor of a checkpoint, which computes in PyTorch."""
    from transformers import AutoImageProcessor

    if not any((folder / file).is_file() for file in _FILES):
        raise PatcompError(
            f"{str(folder)!r} has no {_FILES[0]}, which says how images become inputs; save the image processor there"
        )
    try:
        found = AutoImageProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the settings can make transformers raise anything
        raise PatcompError(
            f"transformers cannot load the image processor of {str(folder)!r}: {reason_of(error)}"
        ) from error
    if getattr(found, "backend", None) != "torchvision":
        raise PatcompError(
            f"transformers has {type(found).__name__} of {str(folder)!r} without PyTorch (its backend is not "
            f"torchvision); leave {_OPTION} out, and preprocess in the app"
        )
    return found
