"""Whether the files of weights in a folder agree with each other, and what of them is not read."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.untrusted import object_in, tensors_in
from patcomp_models.errors import LanguageModelError

_INDEX = ".safetensors.index.json"
_VARIANT = re.compile(r"\.(?:fp16|bf16|fp32|ema|non_ema)[.-]")
"""Finds files of the same weights in another type, which have their place beside others."""
_SHARD = re.compile(r"-\d+-of-\d+\.safetensors$")


def check_sets(folder: Path) -> None:
    """Check that a folder has one set of weights: none is in two shards, and a file beside shards has the same numbers.

    Raises:
        LanguageModelError: it has two.
    """
    for index in sorted(folder.glob(f"*{_INDEX}")):
        shards = _shards(folder, index)
        _check_no_weight_twice(shards)
        single = folder / (index.name.removesuffix(_INDEX) + ".safetensors")
        if single.is_file() and single not in shards and (name := _departure([single], shards)):
            raise LanguageModelError(
                f"{str(folder)!r} has two sets of weights, {single.name} and the {len(shards)} files of {index.name}, "
                f"and {name} differs; remove the set that is not meant"
            )


def say_what_is_not_read(folder: Path, files: Sequence[Path]) -> None:
    """Warn of weight files that are not loaded."""
    shards = {shard for index in folder.glob(f"*{_INDEX}") for shard in _shards(folder, index)}
    known = {
        *files,
        *shards,
        *((folder / file.name.replace(_INDEX, ".safetensors")) for file in folder.glob(f"*{_INDEX}")),
    }
    others = sorted(
        file.name for file in folder.glob("*.safetensors") if file not in known and not _VARIANT.search(file.name)
    )
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        warnings.warn(
            f"files of weights in {str(folder)!r} are not read: {', '.join(others[:3])}{more}; the model is loaded "
            f"from {files[0].name}{f' and {len(files) - 1} more' if len(files) > 1 else ''}",
            ConversionWarning,
            stacklevel=4,
        )


def shards_without_index(folder: Path) -> str:
    """The shards of a folder, which nothing joins; empty if there are none."""
    names = sorted(file.name for file in folder.iterdir() if _SHARD.search(file.name))
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _shards(folder: Path, index: Path) -> list[Path]:
    """The existing files of an index. (Loading reports the missing ones.)"""
    places = object_in(index).get("weight_map")
    names = {name for name in places.values() if isinstance(name, str)} if isinstance(places, dict) else set()
    return [folder / name for name in sorted(names) if Path(name).name == name and (folder / name).is_file()]


def _check_no_weight_twice(files: Sequence[Path]) -> None:
    seen: dict[str, str] = {}
    for file in files:
        with tensors_in(file) as weights:
            for name in weights.keys():  # noqa: SIM118
                if name in seen:
                    raise LanguageModelError(
                        f"{name} is in two of the files of weights in {str(file.parent)!r}, {seen[name]} and "
                        f"{file.name}; remove the file that is not meant, or save the checkpoint again"
                    )
                seen[name] = file.name


def _departure(files: Sequence[Path], others: Sequence[Path]) -> str:
    """The first weight, by name, that two sets of files do not have in common; empty if they are equal."""
    from contextlib import ExitStack

    with ExitStack() as opened:
        first, second = (
            {
                name: held
                for file in each
                for held in [opened.enter_context(tensors_in(file))]
                for name in held.keys()  # noqa: SIM118
            }
            for each in (files, others)
        )
        for name in sorted({*first, *second}):
            if name not in first or name not in second:
                return name
            one, other = first[name].get_tensor(name), second[name].get_tensor(name)
            same = one.dtype == other.dtype and one.shape == other.shape
            if not same or not torch.equal(_bytes(one), _bytes(other)):
                return name
    return ""


def _bytes(weight: torch.Tensor) -> torch.Tensor:
    """The bytes of a weight, so that NaN equals itself."""
    return weight.contiguous().flatten().view(torch.uint8)
