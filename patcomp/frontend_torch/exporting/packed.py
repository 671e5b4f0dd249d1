"""Packed sequences, which run unpacked.

A packed sequence leaves out the padding of a batch. `torch.export` cannot trace it, because the number of elements
depends on the lengths. If every length is the full one, nothing is left out: the data is the input in another order.
If the number of steps is open, networks are loops, in which a sequence keeps its states where it has no step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.modules import rnn
from torch.nn.utils.rnn import pad_packed_sequence
from torch.overrides import TorchFunctionMode

from patcomp.frontend_torch.exporting.constants import ConstantNumbers
from patcomp.frontend_torch.exporting.over_time import RECURRENT_STEPS, is_over_open_steps, recurrent
from patcomp.frontend_torch.exporting.places import line_of_now
from patcomp.frontend_torch.exporting.refusals import RefusedError
from patcomp.frontend_torch.fx.sizes import known
from patcomp.pytorch import outside_of_traces, pytree

FULL = "the lengths of packed sequences are full"
"""The condition that a program checks if an input has the lengths."""
WITHIN = (
    "the lengths of packed sequences are from 1 to the number of steps, and in falling order if enforce_sorted is true"
)
"""The condition that a program of an open number of steps checks; PyTorch raises an error otherwise."""


_NOT_PACKED = "the model unpacks a packed sequence that it did not pack itself"


class _Packed(NamedTuple):
    """A packed sequence, by its tensor of batch sizes."""

    batch_sizes: Tensor
    """Those of full lengths, (steps,)."""
    steps: Any
    batch: Any
    lengths: Tensor
    """(batch,)."""
    present: Tensor | None
    """Which sequences have each step, (steps, batch); None if all do."""
    line: str
    """Where the model packs it."""


class _Data(NamedTuple):
    """Packed data."""

    tensor: Tensor
    version: int
    """How often it had been written to."""
    rows: Tensor
    """The same data with a dimension for the steps. If the batch is dynamic, PyTorch could split the dimension of
    packed data only under further conditions."""
    packed: _Packed


class PackedSequences(TorchFunctionMode):
    """While a model is traced: packed sequences run unpacked. Goes inside of `ConstantNumbers`."""

    def __init__(self, constants: ConstantNumbers):
        super().__init__()
        self.constants = constants
        self.proven: dict[str, None] = {}
        """The lines with lengths that are known to be full."""
        self.assumed: dict[str, None] = {}
        """The lines with lengths that an input decides and that must be full; the program checks them."""
        self.limited: dict[str, None] = {}
        """The lines with lengths of any number up to that of the steps; the program checks them."""
        self._longest: dict[int, Any] = {}
        """The longest length, where a model unpacks to it, by the tensor of batch sizes."""
        self._taken_for_full = set[int]()
        self._sequences: dict[int, _Packed] = {}
        self._data: dict[int, _Data] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "_pack_padded_sequence":
            return self._pack(*args, **(kwargs or {}))
        if name == "_pad_packed_sequence":
            return self._unpack(*args, **(kwargs or {}))
        packed = self._of(args[1]) if len(args) > 1 else None
        if packed is not None and name in RECURRENT_STEPS:
            return self._network(func, packed, *args, **(kwargs or {}))
        if is_over_open_steps(func, args, kwargs):  # no further mode, because PyTorch knows three lines of a call only
            return recurrent(name, *args)
        if name == "__getitem__" and isinstance(args[1], int) and (packed := self._of(args[0])) is not None:
            if args[1]:
                self._take_for_full(packed)
            return packed.batch  # of the first step, and of every step of full sequences
        caller = sys._getframe(1)
        if caller.f_code is pad_packed_sequence.__code__ and name == "size":
            return self._total(self._of(args[0]), caller.f_locals["total_length"])
        if not _asks_for_the_kind(func, *args):
            for leaf in pytree.tree_leaves((args, kwargs)):
                if (packed := self._behind(leaf)) is not None:
                    self._take_for_full(packed)
        return func(*args, **(kwargs or {}))

    def _of(self, batch_sizes: Any) -> _Packed | None:
        return self._sequences.get(id(batch_sizes))

    def _behind(self, tensor: Any) -> _Packed | None:
        """The packed sequence whose data or batch sizes a tensor is."""
        data = self._data.get(id(tensor))
        return self._of(tensor) if data is None else data.packed

    def _pack(self, input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
        rows = input.transpose(0, 1) if batch_first else input
        steps, batch = map(known, rows.shape[:2])
        line, values, present = line_of_now(), self.constants.value_of(lengths), None
        if 0 in (steps, batch):
            raise RefusedError(
                f"the model packs {batch} sequences of {steps} steps, and PyTorch packs no empty tensors"
            )
        if not isinstance(steps, int):
            present = torch.arange(steps)[:, None] < lengths
            # without `enforce_sorted` they are sorted by now
            is_right = (lengths >= 1) & (lengths <= steps) & (lengths == lengths.sort(descending=True)[0])
            torch._assert_async(is_right.all(), WITHIN)
            self.limited[line] = None
        elif values is not None:
            with outside_of_traces():
                numbers = values.tolist()
            if any(number != steps for number in numbers):
                raise RefusedError(
                    f"the model packs sequences of {steps} steps whose lengths are {numbers}, not all full; "
                    "dynamic_shapes can leave the number of steps open"
                )
            self.proven[line] = None
        else:
            self._check(lengths, steps, line)
        batch_sizes = torch.full((steps,), batch, dtype=torch.int64)
        packed = self._sequences[id(batch_sizes)] = _Packed(batch_sizes, steps, batch, lengths, present, line)
        return self._packed(rows, packed), batch_sizes

    def _check(self, lengths: Tensor, steps: Any, line: str) -> None:
        """Let the program check that all lengths are full."""
        torch._assert_async((lengths == steps).all(), FULL)
        self.assumed[line] = None

    def _take_for_full(self, packed: _Packed) -> None:
        """Let the program check it for a sequence that may be ragged otherwise."""
        if packed.present is not None and id(packed) not in self._taken_for_full:
            self._taken_for_full.add(id(packed))
            self._check(packed.lengths, packed.steps, packed.line)

    def _total(self, packed: _Packed | None, given: Any) -> Any:
        """For `pad_packed_sequence`: the number of steps, which it compares with the given total, or takes for one."""
        if packed is None:
            raise RefusedError(_NOT_PACKED)
        if packed.present is None or given is not None:
            return packed.steps
        longest = packed.lengths.max().item()
        torch._check(longest <= packed.steps)
        return self._longest.setdefault(id(packed.batch_sizes), longest)

    def _unpack(
        self, data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
    ) -> tuple[Tensor, Tensor]:
        packed = self._of(batch_sizes)
        if packed is None:
            raise RefusedError(_NOT_PACKED)
        rows = self._unpacked(data, packed)
        if packed.present is None:
            lengths = torch.full((packed.batch,), packed.steps, dtype=torch.int64)
        else:
            lengths = packed.lengths.clone()
            is_present = packed.present.reshape(packed.present.shape + (1,) * (rows.dim() - 2))
            rows = torch.where(is_present, rows, padding_value)
        if total_length is self._longest.get(id(batch_sizes)):
            rows = rows.narrow(0, 0, total_length)
        elif not (isinstance(total_length, int) and total_length <= 0):  # what PyTorch gives for none
            more = total_length - packed.steps
            rows = pad(rows, [0, 0] * (rows.dim() - 1) + [0, more], value=padding_value)
        return rows.transpose(0, 1) if batch_first else rows, lengths

    def _network(
        self, func: Callable[..., Any], packed: _Packed, data: Tensor, batch_sizes: Tensor, hidden: Any, weights: Any,
        *options: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The results of a recurrent network on packed data.

        Args:
            func: takes packed data, or rows of all steps with another order of arguments.
            options: has_biases, num_layers, dropout, train, bidirectional.
        """
        arguments = self._unpacked(data, packed), hidden, weights, *options, False
        if packed.present is None:
            result, *states = func(*arguments)
        else:
            result, *states = recurrent(func.__name__, *arguments, present=packed.present)
        return self._packed(result, packed), *states

    def _packed(self, rows: Tensor, packed: _Packed) -> Tensor:
        data = rows.contiguous().flatten(0, 1)
        self._data[id(data)] = _Data(data, data._version, rows, packed)
        return data

    def _unpacked(self, data: Tensor, packed: _Packed) -> Tensor:
        kept = self._data.get(id(data))
        if kept is not None and kept.version == data._version:
            return kept.rows
        return data.unflatten(0, (packed.steps, packed.batch))


@contextmanager
def open_batches() -> Iterator[None]:
    """Let PyTorch compare the states of networks on packed data with an open batch, of which it takes `int()`."""
    vars(rnn)["int"] = lambda size: size if isinstance(size, torch.SymInt) else int(size)
    try:
        yield
    finally:
        del vars(rnn)["int"]


def _asks_for_the_kind(func: Callable[..., Any], *args: Any) -> bool:
    """Whether a function reads something of a tensor that does not depend on the number of its rows."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return getattr(getattr(func, "__self__", None), "__name__", "") in ("device", "dtype", "is_cuda")
    return name == "dim" or (name == "size" and args[1:] == (-1,))
