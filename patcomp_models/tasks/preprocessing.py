"""What happens to an image before a model: resize, crop the middle, normalise; as a part of the model's program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, nn

from patcomp.errors import PatcompError
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.images import FromImage, ImageSize, check_image_size, from_image


@dataclass(frozen=True)
class Preprocessing:
    """What happens to an image of bytes, in this order; without arguments, the model takes a 255th of the bytes.

        module = Preprocessing(resize=256, crop=(224, 224), mean=MEAN, std=STD).before(model, (480, 640))
        program = patcomp.convert(module, torch.zeros(480, 640, 3, dtype=torch.uint8), input_names=["image"])

    Attributes:
        resize: height and width; or the shorter side, where the longer one keeps the shape of the image.
        filter: how it is resized, with antialiasing.
        crop: height and width of the middle, behind zeros where the image is smaller.
        mean: of each channel, subtracted from a 255th of the bytes.
        std: of each channel, a divisor.
    """

    resize: int | tuple[int, int] | None = None
    filter: Literal["bilinear", "bicubic", "nearest"] = "bilinear"
    crop: tuple[int, int] | None = None
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        if self.filter not in _FILTERS:
            raise PatcompError(f"Preprocessing.filter must be one of {', '.join(_FILTERS)}, got {self.filter!r}")
        for name in ("mean", "std"):
            if len(getattr(self, name)) != 3:
                raise PatcompError(f"Preprocessing.{name} must have a number for each of three channels")
        if not all(self.std):
            raise PatcompError(f"Preprocessing.std divides, and must not be 0, got {self.std}")

    @classmethod
    def of(cls, transforms: Any) -> Preprocessing:
        """The settings of transforms: `weights.transforms()` of torchvision, a `Compose` of them, or timm's.

        Settings stay as they are.

        Raises:
            PatcompError: a step or a setting has no place here.
        """
        if isinstance(transforms, cls):
            return transforms
        if type(transforms).__module__ == "torchvision.transforms._presets":
            return cls._of_preset(transforms)
        steps = getattr(transforms, "transforms", None)
        if steps is None:
            raise PatcompError(
                f"{type(transforms).__name__} does not list its steps; give Preprocessing(resize=, crop=, mean=, std=)"
            )
        return cls._of_steps(steps)

    @classmethod
    def _of_preset(cls, preset: Any) -> Preprocessing:
        name, settings = type(preset).__name__, vars(preset)
        if name == "ObjectDetection":
            return cls()
        if name not in ("ImageClassification", "SemanticSegmentation"):
            raise PatcompError(f"the transforms {name} of torchvision do more than to resize, crop and normalise")
        if not preset.antialias:
            raise PatcompError(f"the transforms {name} resize without antialiasing (antialias=False)")
        crop = [*settings.get("crop_size", ())]
        return cls(
            resize=_size(preset.resize_size), filter=_filter(preset.interpolation), crop=_pair(crop) if crop else None,
            mean=_three(preset.mean), std=_three(preset.std),
        )  # fmt: skip

    @classmethod
    def _of_steps(cls, steps: Sequence[Any]) -> Preprocessing:
        made: dict[str, Any] = {}
        order = ("Resize", "CenterCrop", "ToTensor", "Normalize")
        reached = -1
        for step in steps:
            name = type(step).__name__.replace("MaybeToTensor", "ToTensor")
            if name not in order[reached + 1 :]:
                raise PatcompError(
                    f"the step {type(step).__name__} has no place here: steps are {', '.join(order)}, in this order"
                )
            reached = order.index(name)
            if name == "Resize":
                if step.max_size is not None or step.antialias is False:
                    raise PatcompError("Resize with max_size or without antialiasing has no place here")
                made |= {"resize": _size(step.size), "filter": _filter(step.interpolation)}
            elif name == "CenterCrop":
                made["crop"] = _pair(step.size)
            elif name == "Normalize":
                made |= {"mean": _three(step.mean), "std": _three(step.std)}
        if reached < order.index("ToTensor"):
            raise PatcompError("the transforms have no step ToTensor, so that the model takes bytes; give it the bytes")
        return cls(**made)

    def __call__(self, images: Tensor, **options: Any) -> Mapping[str, Tensor]:
        """`pixel_values` (1, 3, height, width) in float32 of one image, (3, height, width) of uint8."""
        from torchvision.transforms.v2 import InterpolationMode, functional

        made = images
        if self.resize is not None:
            size = [self.resize] if isinstance(self.resize, int) else [*self.resize]
            made = functional.resize(made, size, InterpolationMode(self.filter), antialias=True)
        if self.crop is not None:
            made = functional.center_crop(made, [*self.crop])
        mean, std = (torch.tensor(each).reshape(3, 1, 1) for each in (self.mean, self.std))
        return {"pixel_values": ((made.float() / 255 - mean) / std)[None]}

    def before(self, model: nn.Module, image_size: tuple[int, int]) -> nn.Module:
        """A module that takes the bytes of an image (height, width, 3) in RGB, does all this, and calls the model.

        Args:
            model: takes (1, 3, height, width); it stays as it is.
            image_size: height and width of the image.

        Raises:
            PatcompError: the image is empty.
        """
        check_image_size(image_size)
        return FromImage(model, self)


def with_preprocessing(
    model: nn.Module, inputs: Any, transforms: Any, given: Mapping[str, Any], size: ImageSize = True
) -> tuple[nn.Module, tuple[Tensor]]:
    """A module that takes the bytes of an image in the place of its pixels, and an example image.

    Args:
        model: takes one image, (1, 3, height, width).
        inputs: its only input, in a tuple or by name.
        transforms: as for `Preprocessing.of`; None if there are none.
        given: settings that take the place of those of the transforms.
        size: height and width of the image; True for those of the input.

    Raises:
        PatcompError: the model takes anything else, nothing says how the bytes are normalised, or the settings do not
            fit the model.
    """
    by_name = isinstance(inputs, Mapping)
    values = [*inputs.values()] if by_name else [*inputs]
    taken = [*signature(model.forward).parameters]
    names = [*inputs] if by_name else taken[: len(values)]
    if names != taken[:1] or not isinstance(values[0], Tensor):
        raise PatcompError(
            f"{type(model).__name__} takes {', '.join(map(str, names)) or 'nothing'}, and preprocessing goes before a "
            "module whose first and only input is an image"
        )
    if transforms is None and not given.keys() >= {"mean", "std"}:
        raise PatcompError(
            "nothing says how the bytes of an image are normalised: let the function return transforms behind the "
            "inputs, or give --preprocess mean=R,G,B and --preprocess std=R,G,B, which a 255th of the bytes gets"
        )
    settings = replace(Preprocessing() if transforms is None else Preprocessing.of(transforms), **given)
    if size is not True:
        check_image_size(size)
    entry = from_image(Entry("main", model, {"pixel_values": values[0]}, ()), settings, size)
    return entry.module, (entry.inputs["image"],)


_FILTERS = ("bilinear", "bicubic", "nearest")


def _filter(interpolation: Any) -> Any:
    if interpolation.value not in _FILTERS:
        raise PatcompError(f"images are resized by {', '.join(_FILTERS)} here, and not by {interpolation.value}")
    return interpolation.value


def _size(size: Any) -> int | tuple[int, int]:
    if isinstance(size, int):
        return size
    return size[0] if len(size) == 1 else (size[0], size[1])


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[-1])


def _three(values: Sequence[Any]) -> tuple[float, float, float]:
    """A number for each channel, as three numbers or one."""
    red, green, blue = [float(each) for each in values] * (3 if len(values) == 1 else 1)
    return red, green, blue
