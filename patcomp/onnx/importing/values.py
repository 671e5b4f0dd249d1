"""Values while the nodes of a file run: tensors, and numbers that are known then, such as sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

MOST_KNOWN = 1024
"""The elements of the largest array of known numbers; larger ones are tensors."""


@dataclass(frozen=True)
class KnownArray:
    """An array of numbers that are known: constants of the file, sizes (symbols where they are open), and what is
    computed of them. Reshapes, axes and loops of PyTorch take numbers where ONNX has tensors."""

    values: np.ndarray
    """Objects: numbers of Python, `torch.SymInt`."""
    dtype: torch.dtype
    stored: Any = None
    """The weight that holds these numbers, if the file has them as a weight: in a file its name (`FileWeight`), in a
    run a function that gives the tensor."""

    @property
    def is_one(self) -> bool:
        """Whether it is a single number, of any rank."""
        return self.values.size == 1

    @property
    def number(self) -> Any:
        """The only number.

        Raises:
            ValueError: there are several.
        """
        if not self.is_one:
            raise ValueError(f"one number is expected, and there are {self.values.size}")
        return self.values.reshape(-1)[0]

    def tensor(self) -> Tensor:
        """The numbers as a tensor."""
        if self.stored is not None:
            weight: Tensor = self.stored()
            return weight
        numbers = self.values.reshape(-1).tolist()
        if all(isinstance(number, bool | int | float) for number in numbers):
            return torch.tensor(numbers, dtype=self.dtype).reshape(self.values.shape)
        whole = torch.stack([torch.scalar_tensor(number, dtype=self.dtype) for number in numbers])
        return whole.reshape(self.values.shape)


OnnxValue = Tensor | KnownArray | list[Any] | None
"""What a name of a file stands for; a list is a sequence of tensors, None an input that is left out."""


def known_array(numbers: Any, dtype: torch.dtype = torch.int64, stored: Any = None) -> KnownArray:
    """Known numbers from nested lists, or from an array."""
    return KnownArray(objects(numbers), dtype, stored)


def objects(numbers: Any) -> np.ndarray:
    """An array of objects; `np.array` alone asks symbols for their numbers."""
    if isinstance(numbers, np.ndarray):
        return numbers.astype(object)
    if isinstance(numbers, list | tuple):
        made = np.empty(len(numbers), dtype=object)
        for index, number in enumerate(numbers):
            made[index] = number
        return made
    made = np.empty((), dtype=object)
    made[()] = numbers
    return made


_ROUNDED = {torch.float32: np.float32, torch.float16: np.float16}


def rounded(numbers: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """What Python computes of floats, in doubles, as their own type has it.

    Raises:
        NotImplementedError: numpy has no such type.
    """
    if not dtype.is_floating_point or dtype == torch.float64:
        return numbers
    if dtype not in _ROUNDED or not all(isinstance(number, int | float) for number in numbers.reshape(-1)):
        raise NotImplementedError
    return numbers.astype(_ROUNDED[dtype]).astype(float).astype(object)


def as_tensor(value: OnnxValue) -> Any:
    """A tensor; sequences of tensors and values that are left out stay."""
    return value.tensor() if isinstance(value, KnownArray) else value


def as_numbers(value: Any) -> list[Any]:
    """A list of numbers, from an attribute or from known numbers.

    Raises:
        TypeError: the numbers are computed from data, and only a run knows them.
    """
    if isinstance(value, KnownArray):
        return list(value.values.reshape(-1).tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    if isinstance(value, Tensor):
        raise TypeError("it takes numbers (sizes, axes or a count) that are computed from data, known only in a run")
    return [value]
