"""Image models of timm: from a folder that timm saved, or by name with a file of weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.errors import PatcompError, near_names, reason_of
from patcomp.hub import TIMM
from patcomp_models.checkpoints.agreement import STRICT, Allowed, check_weight_names, wrapper_of
from patcomp_models.checkpoints.loading import DTYPES
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.images import OptionalImage, check_image_size, from_image
from patcomp_models.tasks.timm_images import timm_transform


def timm_functions(
    folder: Path, config: Mapping[str, Any], dtype: str, allowed: Allowed = STRICT, image: OptionalImage = False
) -> list[Entry]:
    """The function of a model that timm saved, with its configuration.

    Args:
        folder: of the model.
        config: its `config.json`.
        dtype: the type of the weights.
        allowed: what `timm` cannot do; it must be the strict one.
        image: whether the function takes an image of bytes, and its height and width, if they are not the model's.

    Raises:
        PatcompError: timm is not installed, or the weights are not those of the model.
    """
    timm = _timm(f"{str(folder)!r} holds a model of timm")
    if allowed != STRICT:
        raise PatcompError(
            f"{str(folder)!r} holds a model of timm, which loads all weights or none; allow_missing= and "
            f"allow_unexpected= go with a model by name, {TIMM}NAME"
        )
    published, arguments = config["pretrained_cfg"], config.get("model_args") or {}
    classes = config.get("num_classes", published.get("num_classes"))
    if arguments.get("num_classes", classes) != classes:  # timm would leave the head as it is drawn
        raise PatcompError(
            f"{str(folder / 'config.json')!r} says {classes} classes, and {arguments['num_classes']} in its model_args"
        )
    try:
        model = timm.create_model(f"local-dir:{folder.resolve()}", pretrained=True)
    except Exception as error:  # timm may raise any exception on a wrong configuration
        raise PatcompError(f"timm cannot load {str(folder)!r}: {reason_of(error)}") from error
    return _entries(timm, model, published["input_size"], dtype, image)


def of_name(
    name: str,
    weights: str | Path | None,
    dtype: str,
    allowed: Allowed = STRICT,
    image: OptionalImage = False,
) -> list[Entry]:
    """The function of a model by timm's name of its architecture.

    Args:
        name: without the prefix.
        weights: a file of its weights, `.safetensors`, or `.pth` of tensors alone.
        dtype: the type of the weights.
        allowed: how the weights may differ from the model's.
        image: whether the function takes an image of bytes, and its height and width, if they are not the model's.

    Raises:
        PatcompError: timm is not installed or has no such model, there is no file, or its weights are of another model.
    """
    timm = _timm(f"{TIMM}{name} is a model of timm")
    if not timm.is_model(name):
        raise PatcompError(f"timm has no model {name!r}; it has {near_names(name, timm.list_models())}")
    if weights is None:
        raise PatcompError(f"{TIMM}{name} needs a file of weights; pass weights= (--weights), a .safetensors file")
    state = _state_of(Path(weights))
    front = wrapper_of(state)
    state = {key.removeprefix(front): value for key, value in state.items()}
    published = timm.get_pretrained_cfg(name)
    classifier = published.classifier if published else None
    bias = state.get(f"{classifier[0] if isinstance(classifier, tuple) else classifier}.bias")
    classes = {} if bias is None else {"num_classes": len(bias)}
    with torch.random.fork_rng():
        torch.manual_seed(0)  # weights that may be missing are drawn, and equal in each conversion
        model = timm.create_model(name, pretrained=False, **classes)
    own = model.state_dict()
    shapes = {
        key: (tuple(value.shape), tuple(own[key].shape))
        for key, value in state.items() if key in own and value.shape != own[key].shape
    }  # fmt: skip
    found = model.load_state_dict({key: value for key, value in state.items() if key not in shapes}, strict=False)
    missing = set(found.missing_keys) - shapes.keys()
    check_weight_names(Path(weights), name, missing, found.unexpected_keys, shapes, allowed)
    return _entries(timm, model, timm.data.resolve_model_data_config(model)["input_size"], dtype, image)


def _timm(because: str) -> ModuleType:
    try:
        import timm
    except ImportError:
        raise PatcompError(f"{because}; pip install timm") from None
    return timm


def _state_of(path: Path) -> dict[str, Tensor]:
    """The weights in a file, by name."""
    if not path.is_file():
        raise PatcompError(f"there is no file {str(path)!r}; --weights is a file of a model's weights")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # loaders may raise any exception on a damaged file
        raise PatcompError(f"{str(path)!r} is not a file of weights: {reason_of(error)}") from error
    for key in ("state_dict", "model"):  # of timm's training script, and of others
        found = found[key] if isinstance(found, dict) and isinstance(found.get(key), dict) else found
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise PatcompError(f"{str(path)!r} holds other things than weights by name")
    return found


def _entries(
    timm: ModuleType, model: nn.Module, size: tuple[int, int, int], dtype: str, image: OptionalImage
) -> list[Entry]:
    channels, height, width = size
    pixels = torch.linspace(-1, 1, channels * height * width, dtype=DTYPES[dtype]).reshape(1, channels, height, width)
    entry = Entry("main", model.to(DTYPES[dtype]).eval(), {"pixel_values": pixels}, ("logits",))
    if image is False:
        return [entry]
    taken = (height, width) if image is True else image
    check_image_size(taken)
    return [from_image(entry, timm_transform(timm, timm.data.resolve_model_data_config(model), taken), taken)]
