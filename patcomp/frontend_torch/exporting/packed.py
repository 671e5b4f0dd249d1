"""Packed sequences that are not ragged: they run unpacked, which is the same computation.

A packed sequence leaves out the padding of a batch. `torch.export` cannot trace it, because the number of elements
depends on the lengths. If every length is the full one, nothing is left out: the data is the input in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.overrides import TorchFunctionMode

from patcomp.frontend_torch.exporting.constants import ConstantNumbers
from patcomp.frontend_torch.exporting.places import line_of_now
from patcomp.frontend_torch.exporting.refusals import RefusedError
from patcomp.pytorch import outside_of_traces

FULL = "the lengths of packed sequences are full"
"""The condition that a program checks if an input has the lengths."""


class _Full(NamedTuple):
    """A packed sequence of full lengths, by its tensor of batch sizes."""

    batch_sizes: Tensor
    steps: Any
    batch: Any


class PackedSequences(TorchFunctionMode):
    """While a model is traced: packed sequences of full lengths run unpacked. Goes inside of `ConstantNumbers`."""

    def __init__(self, constants: ConstantNumbers):
        super().__init__()
        self.constants = constants
        self.proven: dict[str, None] = {}
        """The lines with lengths that are known to be full."""
        self.assumed: dict[str, None] = {}
        """The lines with lengths that an input decides; the program checks them."""
        self._full: dict[int, _Full] = {}
        self._rows: dict[int, tuple[Tensor, int, Tensor]] = {}
        """Packed data, how often it had been written to, and the same data with a dimension for the steps. If the batch
        is dynamic, PyTorch could split the dimension of packed data only under further conditions."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "_pack_padded_sequence":
            return self._pack(*args, **(kwargs or {}))
        if name == "_pad_packed_sequence":
            return self._unpack(*args, **(kwargs or {}))
        full = self._of(args[1]) if len(args) > 1 else None
        if full is not None and name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            return self._network(func, full, *args, **(kwargs or {}))
        if name == "__getitem__" and isinstance(args[1], int) and (full := self._of(args[0])) is not None:
            return full.batch  # in every step
        return func(*args, **(kwargs or {}))

    def _of(self, batch_sizes: Any) -> _Full | None:
        return self._full.get(id(batch_sizes))

    def _pack(self, input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
        rows = input.transpose(0, 1) if batch_first else input
        steps, batch = rows.shape[:2]
        line, known = line_of_now(), self.constants.value_of(lengths)
        if known is not None and isinstance(steps, int):
            with outside_of_traces():
                numbers = known.tolist()
            if any(number != steps for number in numbers):
                raise RefusedError(
                    f"the model packs sequences of {steps} steps whose lengths are {numbers}, not all full"
                )
            self.proven[line] = None
        else:
            full = (lengths == steps).all()
            torch._assert_async(full, FULL)
            self.assumed[line] = None
        batch_sizes = torch.full((steps,), batch, dtype=torch.int64)
        self._full[id(batch_sizes)] = _Full(batch_sizes, steps, batch)
        return self._packed(rows), batch_sizes

    def _unpack(
        self, data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
    ) -> tuple[Tensor, Tensor]:
        full = self._of(batch_sizes)
        if full is None:
            raise RefusedError("the model unpacks a packed sequence that it did not pack itself")
        rows = self._unpacked(data, full)
        if not (isinstance(total_length, int) and total_length <= 0):  # what PyTorch gives for none
            more = total_length - full.steps
            rows = pad(rows, [0, 0] * (rows.dim() - 1) + [0, more], value=padding_value)
        lengths = torch.full((full.batch,), full.steps, dtype=torch.int64)
        return rows.transpose(0, 1) if batch_first else rows, lengths

    def _network(
        self, func: Callable[..., Any], full: _Full, data: Tensor, batch_sizes: Tensor, hidden: Any, weights: Any,
        *options: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The results of a recurrent network on packed data.

        Args:
            func: takes packed data, or rows of all steps with another order of arguments.
            options: has_biases, num_layers, dropout, train, bidirectional.
        """
        batch_first = False
        result, *states = func(self._unpacked(data, full), hidden, weights, *options, batch_first)
        return self._packed(result), *states

    def _packed(self, rows: Tensor) -> Tensor:
        data = rows.contiguous().flatten(0, 1)
        self._rows[id(data)] = data, data._version, rows
        return data

    def _unpacked(self, data: Tensor, full: _Full) -> Tensor:
        known, version, rows = self._rows.get(id(data), (None, 0, data))
        if known is data and version == data._version:
            return rows
        return data.unflatten(0, (full.steps, full.batch))
