"""A part as a module: it runs on the evaluator or on the runtime, where the rest of a graph calls it."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Literal

import torch
from torch import nn

from patcomp.emit.asset import Asset, temporary_asset
from patcomp.emit.toolchain.hand_over import HandOver
from patcomp.errors import ConversionWarning, EvaluationError, reason_of
from patcomp.evaluate.element_types import to_tensor
from patcomp.interface.dims import Dims
from patcomp.partitions.extraction import ModelPart
from patcomp.partitions.graphs import example_size
from patcomp.program.program import AIProgram
from patcomp.program.running import run_entry_point
from patcomp.pytorch import default_settings

Backend = Literal["evaluator", "runtime"]

BACKEND: ContextVar[Backend] = ContextVar("BACKEND", default="evaluator")
"""What runs the parts, in this thread."""


class Parts:
    """The program of all parts, and the asset that the runtime compiles once."""

    def __init__(self, program: AIProgram):
        self.program = program
        self._open = ExitStack()
        weakref.finalize(self, self._open.close)

    @cached_property
    def asset(self) -> Asset:
        """The program in a temporary asset."""
        return self._open.enter_context(temporary_asset(HandOver.of(self.program.module)))

    def close(self) -> None:
        """Release the compiled program; the next run compiles it again."""
        self._open.close()
        vars(self).pop("asset", None)


class PartCall(nn.Module):
    """The call of a part.

    PyTorch computes the part where its program does not take the sizes: an empty tensor, on which the runtime may end
    the process, and sizes for which export recorded other shapes.
    """

    def __init__(self, part: ModelPart, parts: Parts):
        super().__init__()
        self._part, self._parts = part, parts
        self._names = parts.program.input_names(part.name), parts.program.output_names(part.name)
        self._warned = False

    @cached_property
    def _in_pytorch(self) -> nn.Module:
        return self._part.exported.module()

    def forward(self, *values: Any) -> Any:
        """The results of the part, with the element types and the order of strides that export recorded."""
        results = self._results([value.detach() if isinstance(value, torch.Tensor) else value for value in values])
        return results if len(results) != 1 else results[0]

    def _results(self, values: Sequence[Any]) -> tuple[Any, ...]:
        inputs, outputs = self._names
        given, program = dict(zip(inputs, values, strict=True)), self._parts.program
        if reason := _refusal(program.dims.get(self._part.name, Dims()), given):
            if not self._warned:
                message = f"PyTorch computes {self._part.name} for these sizes: {reason}"
                warnings.warn(message, ConversionWarning, stacklevel=2)
            self._warned = True
            return tuple(self._in_pytorch(*values))
        backend = BACKEND.get()
        asset = self._parts.asset if backend == "runtime" else None
        with default_settings():
            found = run_entry_point(program, given, self._part.name, None, backend, asset=asset)
            recorded = [node.meta["val"] for node in self._part.outputs]
            return tuple(_as_recorded(found[name], each) for name, each in zip(outputs, recorded, strict=True))


def _refusal(dims: Dims, given: dict[str, Any]) -> str:
    """Why the program of a part does not take the sizes of its inputs; empty if it does."""
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and not value.numel():
            return f"%{name} is empty"
    try:
        dims.sizes_of(given)
    except EvaluationError as error:
        return reason_of(error)
    return ""


def _as_recorded(value: Any, recorded: Any) -> Any:
    """A result as export recorded it: a number, or a tensor that shares no memory with the inputs of the part."""
    if not isinstance(recorded, torch.Tensor):
        return to_tensor(value).item()
    made = to_tensor(value).to(device=recorded.device, dtype=recorded.dtype, copy=True)
    strides = list(map(example_size, recorded.stride()))
    order = sorted(range(made.dim()), key=lambda axis: -strides[axis])
    return made.permute(order).contiguous().permute([order.index(axis) for axis in range(made.dim())])
