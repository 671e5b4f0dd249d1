"""What a format of checkpoints is."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor

from patcomp_models.checkpoints.quantized.weight import PackedWeight, WeightPart
from patcomp_models.checkpoints.untrusted import tensors_in
from patcomp_models.errors import LanguageModelError

Weights = Mapping[str, Callable[[], WeightPart]]
"""What reads each weight of a checkpoint, by the name that it has in a checkpoint of floats."""


CACHE_NOTE = "the checkpoint's rounding of cached keys and values is left out"
_CACHE = re.compile(r"\.self_attn\.(?:[kv]_proj\.)?[qkv]_(?:scale|zero_point)$")
"""The scales by which keys and values would be rounded."""


def described_as(config: Mapping[str, Any], method: str) -> Mapping[str, Any] | None:
    """The `quantization_config` of `config.json` for this method; None if it was another method, or none."""
    found = config.get("quantization_config")
    return found if isinstance(found, Mapping) and found.get("quant_method") == method else None


class Format(ABC):
    """How a library stores weights in few bits."""

    name: ClassVar[str]
    """What people call it."""
    in_groups: ClassVar[bool] = False
    """Whether a weight may have a row for each group, if a checkpoint does not say how many outputs there are."""
    notes: tuple[str, ...] = ()
    """What the model leaves out of the checkpoint's arithmetic, such as the rounding of activations."""

    @classmethod
    @abstractmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        """The format of a `config.json`; None if it is another one.

        Raises:
            LanguageModelError: it is this one, in a variant that is not read.
        """

    @abstractmethod
    def weights(self, files: Sequence[Path]) -> Weights:
        """The weights of a checkpoint.

        Args:
            files: of the checkpoint.

        Raises:
            LanguageModelError: a file is damaged.
        """

    def expanding(self) -> Self:
        """The same format, expanding to floats the weights whose bits cannot be kept."""
        return self

    def notes_on(self, files: Sequence[Path]) -> tuple[str, ...]:
        """What users of a bundle must know of the files' weights."""
        return self.notes

    def finish(self, model: Any, files: Sequence[Path]) -> None:  # noqa: B027, most have nothing to set
        """Set what of a filled model is no weight, if files say it."""


class PartsFormat(Format):
    """A format whose stored weights are several tensors each, in files of safetensors."""

    mark: ClassVar[str]
    """The tensor that a module has if its weight is stored, `scales` of `model.layers.0.mlp.up_proj.scales`."""
    parts: ClassVar[tuple[str, ...]]
    """The names of all tensors of a stored weight."""

    @abstractmethod
    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        """A weight of its parts.

        Args:
            path: of the module, for errors.
            tensors: the parts by name, mapped into memory.

        Raises:
            LanguageModelError: shapes do not fit, or the variant is not read.
        """

    def places(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """The tensors that make each stored weight.

        Args:
            names: of the tensors of a checkpoint.

        Returns:
            For the name of each weight, the names of its tensors by part.
        """
        given = set(names)
        paths = [name.removesuffix(f".{self.mark}") for name in sorted(given) if name.endswith(f".{self.mark}")]
        return {
            f"{path}.weight": {part: f"{path}.{part}" for part in self.parts if f"{path}.{part}" in given}
            for path in paths
        }

    def weights(self, files: Sequence[Path]) -> Weights:
        """The weights of a checkpoint.

        Args:
            files: of safetensors.
        """
        tensors = Tensors(files)
        found: dict[str, Callable[[], WeightPart]] = {}
        left = dict.fromkeys(name for name in tensors if not _CACHE.search(name))
        for name, parts in self.places(tensors).items():
            for tensor in parts.values():
                left.pop(tensor, None)
            found[name] = partial(self._stored, name.removesuffix(".weight"), parts, tensors)
        return {**{name: partial(tensors.__getitem__, name) for name in left}, **found}

    def _stored(self, path: str, parts: Mapping[str, str], tensors: Tensors) -> PackedWeight:
        given = {part: tensors[name] for part, name in parts.items()}
        try:
            made = self.read(path, given)
        except KeyError as error:
            raise LanguageModelError(
                f"the checkpoint lacks {path}.{error.args[0]}, a part of a {self.name} weight"
            ) from None
        except LanguageModelError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            shapes = ", ".join(f"{part} {_shape(tensor)} {tensor.dtype}" for part, tensor in given.items())
            raise LanguageModelError(
                f"the parts of {path} do not make a {self.name} weight ({shapes.replace('torch.', '')}); the file is "
                "damaged, or config.json describes another one"
            ) from error
        _check_blocks(path, made)
        self._check_groups(path, made)
        return made

    @property
    def group_sizes(self) -> Collection[int]:
        """The inputs of a group, as far as `config.json` says it: one of several sizes."""
        return ()

    def _check_groups(self, path: str, made: PackedWeight) -> None:
        """Check that the groups of a weight have a size that is declared. A last group that is shorter would move the
        bounds of all others, also where the inputs divide by the number of groups."""
        inputs, count = made.shape[-1], 1 if made.scale is None else made.scale.shape[-1]
        if count > 1 and self.group_sizes and inputs // count not in self.group_sizes:
            sizes = " or ".join(map(str, sorted(self.group_sizes)))
            raise LanguageModelError(
                f"{path} has {inputs} inputs in {count} groups, and config.json says groups of {sizes}; groups of "
                "different sizes are no blocks"
            )


def _check_blocks(path: str, weight: PackedWeight) -> None:
    """Check that scales and offsets of blocks have the rank of the weight, and that their sizes divide its sizes."""
    for name, part in weight.parameters.items():
        if isinstance(part, PackedWeight):
            _check_blocks(path, part)
        ranks = len(part.shape), len(weight.shape)
        if ranks[0] != ranks[1] or any(size % count for size, count in zip(weight.shape, part.shape, strict=True)):
            shapes = ("x".join(map(str, shape)) for shape in (part.shape, weight.shape))
            raise LanguageModelError(
                "the {}s of {} are {}, which do not divide {}; the file is damaged".format(
                    name.replace("_", " "), path, *shapes
                )
            )


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


class Tensors:
    """The tensors of files, mapped into memory, by name."""

    def __init__(self, files: Iterable[Path]):
        self._files = [tensors_in(file) for file in files]
        self._places = {key: file for file in self._files for key in file.keys()}  # noqa: SIM118
        self.metadata: dict[str, str] = {}
        for file in self._files:
            self.metadata.update(file.metadata() or {})

    def __iter__(self) -> Any:
        return iter(self._places)

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._places[name].get_tensor(name)
        return tensor
