"""The reference function of a Metal kernel: checks of its signature, and calls."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch

ANNOTATIONS = (torch.Tensor, int, float, bool)
"""The supported annotations of parameters."""
LARGEST_FLOAT = torch.finfo(torch.float32).max


class Reference:
    """A PyTorch function that computes the same as a kernel.

    Args:
        function: the function, with annotations.
        inputs: the kernel's names for its parameters.
        results: the kernel's names for its results.
        what: the kernel, for messages.

    Raises:
        TypeError, ValueError: see `TorchMetalKernel`.
    """

    def __init__(self, function: Callable[..., Any], inputs: Sequence[str], results: Sequence[str], what: str):
        if not inspect.isfunction(function):
            raise TypeError(f"torch_defn of {what} must be a Python function, got {function!r}")
        self.function, self.inputs, self.what = function, tuple(inputs), what
        parameters = list(inspect.signature(function).parameters.values())
        try:
            hints = get_type_hints(function)
        except Exception as error:  # evaluating the text of an annotation raises errors of any class
            raise TypeError(f"an annotation of torch_defn of {what} cannot be evaluated: {error}") from error
        if variadic := [p for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]:
            raise TypeError(f"torch_defn of {what} must name its parameters, but has {variadic[0]}")
        if len(parameters) != len(self.inputs):
            raise ValueError(
                f"{what} has {len(self.inputs)} inputs, but torch_defn has {len(parameters)} parameters: "
                f"{', '.join(parameter.name for parameter in parameters) or 'none'}"
            )
        self.kinds: tuple[type, ...] = tuple(self._kind(parameter.name, hints) for parameter in parameters)
        self._keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        self._defaults = [parameter.default for parameter in parameters]
        self._count = len(results)
        self._returned = self._container(hints)

    def _kind(self, name: str, hints: dict[str, Any]) -> type:
        if name not in hints:
            raise TypeError(f"parameter {name!r} of torch_defn of {self.what} needs an annotation")
        if hints[name] not in ANNOTATIONS:
            advice = "; inputs cannot be optional" if get_origin(hints[name]) in (Union, UnionType) else ""
            raise TypeError(
                f"parameter {name!r} of torch_defn of {self.what} must be a torch.Tensor, int, float or bool, "
                f"not {hints[name]}{advice}"
            )
        return hints[name]

    def _container(self, hints: dict[str, Any]) -> type | None:
        """The type that the function returns its results in; None for a single tensor."""
        if "return" not in hints:
            raise TypeError(f"torch_defn of {self.what} needs an annotation of its result")
        annotation = hints["return"]
        origin, items = get_origin(annotation), get_args(annotation)
        returned: type | None
        if annotation is torch.Tensor:
            returned, count = None, 1
        elif origin is list and items == (torch.Tensor,):
            returned, count = list, self._count
        elif origin is tuple and items and set(items) == {torch.Tensor}:
            returned, count = tuple, len(items)
        else:
            raise TypeError(
                f"torch_defn of {self.what} must return Tensor, list[Tensor] or tuple[Tensor, Tensor] of known length, "
                f"not {annotation}"
            )
        if count != self._count:
            raise ValueError(f"{self.what} has {self._count} results, but torch_defn returns {annotation}")
        return returned

    @property
    def identity(self) -> tuple[Any, ...]:
        """A text that identifies this function, the same in every process."""
        code = self.function.__code__
        try:
            text: Any = inspect.getsource(self.function)
        except (OSError, TypeError):
            text = (code.co_code, code.co_names, repr(code.co_consts))
        cells = [repr(cell.cell_contents) for cell in self.function.__closure__ or ()]
        return text, cells, repr(self.function.__defaults__), repr(self.function.__kwdefaults__)

    def values(self, args: Sequence[Any]) -> list[Any]:
        """The arguments of a call, checked and completed with defaults.

        Raises:
            TypeError: see `TorchMetalKernel.__call__`.
        """
        given = [*args, *self._defaults[len(args) :]]
        if len(given) != len(self.inputs) or any(value is inspect.Parameter.empty for value in given):
            raise TypeError(f"{self.what} takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), got {len(args)}")
        return [self._value(name, kind, v) for name, kind, v in zip(self.inputs, self.kinds, given, strict=True)]

    def _value(self, name: str, kind: type, value: Any) -> Any:
        if kind is torch.Tensor:
            if not isinstance(value, torch.Tensor):
                raise TypeError(f"{self.what}: input {name!r} must be a tensor, got {value!r}")
            if value.is_complex() or value.layout is not torch.strided:
                raise TypeError(
                    f"{self.what}: input {name!r} is {value.dtype}, {value.layout}; Metal has no such tensors"
                )
            return value
        if isinstance(value, torch.SymInt) and kind is int:
            return value
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise TypeError(f"{self.what}: input {name!r} must be of type {kind.__name__}, got {value!r}")
        return value

    def _check_number(self, name: str, value: Any) -> None:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{self.what}: input {name!r} must be finite, got {value}")
        if isinstance(value, float) and abs(value) > LARGEST_FLOAT:
            raise ValueError(f"{self.what}: input {name!r} is too large for a 32-bit float: {value}")
        if isinstance(value, int) and not -(2**31) <= value < 2**31:
            raise OverflowError(f"{self.what}: input {name!r} does not fit 32 bits: {value}")

    def __call__(self, values: Sequence[Any]) -> list[torch.Tensor]:
        """The results for arguments, in memory of their own, contiguous as a kernel writes them.

        Raises:
            TypeError, ValueError, OverflowError: see `TorchMetalKernel.__call__`.
        """
        for name, value in zip(self.inputs, values, strict=True):
            self._check_number(name, value)
        # copies, because the function may write to its arguments, which a kernel never does
        copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in values]
        plain = len(copies) - len(self._keywords)
        made = self.function(*copies[:plain], **dict(zip(self._keywords, copies[plain:], strict=True)))
        results = list(made) if isinstance(made, list | tuple) else [made]
        if len(results) != self._count or not all(isinstance(result, torch.Tensor) for result in results):
            raise TypeError(f"torch_defn of {self.what} must return {self._count} tensors, got {made!r}")
        return [result.clone(memory_format=torch.contiguous_format) for result in results]

    def packed(self, results: Any) -> Any:
        """The results of the op as the function returns them."""
        if self._returned is None:
            return results
        return self._returned(results if isinstance(results, list | tuple) else [results])
