"""What a format of checkpoints is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from torch import Tensor

from patcomp.language.quantized.weight import StoredWeight


def described_as(config: Mapping[str, Any], method: str) -> Mapping[str, Any] | None:
    """What `config.json` says of weights that a method quantised; None if it was another method, or none."""
    found = config.get("quantization_config")
    return found if isinstance(found, Mapping) and found.get("quant_method") == method else None


class Format(ABC):
    """How a library stores weights in few bits."""

    name: ClassVar[str]
    """What people call it."""
    mark: ClassVar[str]
    """The tensor that a module has if its weight is stored, `scales` of `model.layers.0.mlp.up_proj.scales`."""
    parts: ClassVar[tuple[str, ...]]
    """The names of all tensors of a stored weight."""

    @classmethod
    @abstractmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        """The format of a `config.json`; None if it is another one.

        Raises:
            LanguageModelError: it is this one, in a variant that is not read.
        """

    @abstractmethod
    def read(self, path: str, tensors: Mapping[str, Tensor]) -> StoredWeight:
        """A weight of its parts.

        Args:
            path: of the module, for errors.
            tensors: the parts by name, mapped into memory.

        Raises:
            LanguageModelError: shapes do not fit, or the variant is not read.
        """
