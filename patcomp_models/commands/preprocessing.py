"""`--preprocess image`: the bytes of an image as the input of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from patcomp.commands.common import UsageError
from patcomp.commands.exporting import Preparation
from patcomp.commands.models import ModelOptions
from patcomp.errors import did_you_mean

if TYPE_CHECKING:
    from patcomp_models.tasks.images import ImageSize, OptionalImage

IMAGE = "image"


def image_size_in(options: ModelOptions) -> OptionalImage:
    """The height and width in the value of `--image`; without it, whether the program takes an image.

    Raises:
        UsageError: the value has another form.
    """
    given = options.image
    if given is None:
        return bool(options.preprocess)
    if (found := _pair(given)) is None or "x" not in given:
        raise UsageError(f"--image takes the height and width of an image, such as 480x640, got {given!r}")
    return found


def preprocessing_in(options: ModelOptions) -> dict[str, Any]:
    """The settings of `Preprocessing` among the values of `--preprocess`.

    Raises:
        UsageError: a value has another form.
    """
    found = {}
    for each in options.preprocess or ():
        name, _, value = each.partition("=")
        if each == IMAGE:
            continue
        if name not in _READERS:
            raise UsageError(
                f"--preprocess takes image, or NAME=VALUE of {', '.join(_READERS)}, got {each!r}"
                f"{did_you_mean(name, (IMAGE, *_READERS))}"
            )
        form, read = _READERS[name]
        if (setting := read(value)) is None:
            raise UsageError(f"--preprocess {name}= takes {form}, got {value!r}")
        found[name] = setting
    return found


def preparation_of(options: ModelOptions) -> Preparation:
    """What goes before the module of a Python file.

    Raises:
        UsageError: an option has another form.
    """
    return partial(_prepared, preprocessing_in(options), image_size_in(options) or True)


def _prepared(settings: Mapping[str, Any], size: ImageSize, module: Any, inputs: Any, transforms: Any) -> Any:
    from patcomp_models.tasks.preprocessing import with_preprocessing

    return with_preprocessing(module, inputs, transforms, settings, size)


def _pair(value: str) -> tuple[int, int] | None:
    """Height and width in `480x640`, or in `224` for both."""
    sizes = value.split("x")
    if len(sizes) > 2 or not all(size.isdecimal() and int(size) for size in sizes):
        return None
    return int(sizes[0]), int(sizes[-1])


def _side_or_pair(value: str) -> int | tuple[int, int] | None:
    found = _pair(value)
    return found if found is None or "x" in value else found[0]


def _three(value: str) -> tuple[float, ...] | None:
    """A number for each channel of `0.5,0.5,0.5`, or of `0.5` for all."""
    try:
        numbers = [float(each) for each in value.split(",")]
    except ValueError:
        return None
    return tuple(numbers * 3 if len(numbers) == 1 else numbers) if len(numbers) in (1, 3) else None


_THREE = "three numbers or one, such as 0.485,0.456,0.406"
_READERS: Mapping[str, tuple[str, Callable[[str], Any]]] = MappingProxyType({
    "resize": ("the shorter side, 256, or height and width, 256x320", _side_or_pair),
    "filter": ("bilinear, bicubic or nearest", lambda value: value or None),
    "crop": ("height and width, 224x224", _pair),
    "mean": (_THREE, _three),
    "std": (_THREE, _three),
})  # fmt: skip
"""What each setting takes, and how it is read; None for a value of another form."""
