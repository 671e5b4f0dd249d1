"""A weight as a checkpoint stores it, and a module that makes floats of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import patcomp.evaluate.stored_weights  # registers the operators
from patcomp.ir.mapped import mapped
from patcomp.ir.pages import release
from patcomp_models.errors import LanguageModelError

_ = patcomp.evaluate.stored_weights

TABLES = {1: 2, 3: 8, 5: 64, 6: 64, 7: 256}
"""For numbers of bits that Core AI has no integers of, the length of the table that makes numbers of indices."""

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The magnitudes of floats of 4 bits: two bits of exponent, one of mantissa."""


@dataclass(frozen=True)
class PackedWeight:
    """`scale * (data - zero_point) + offset`, or the same of the entries of a table.

    Attributes:
        data: (outputs, inputs), or with more axes in front: integers of a byte each, or float8.
        bits: how many bits of each are used; negative integers are signed.
        scale: of the rank of the data, one for each block: floats; or it is stored itself. None for 1.
        zero_point: integers of the shape of the scale.
        offset: floats of the shape of the scale; or it is stored itself.
        table: the numbers that the data are indices of.
        order: if inputs are stored in another order, the input of each column.
    """

    data: Tensor
    bits: int
    scale: Tensor | PackedWeight | None
    zero_point: Tensor | None = None
    offset: Tensor | PackedWeight | None = None
    table: Tensor | None = None
    order: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    @property
    def parameters(self) -> Mapping[str, WeightPart]:
        """What there is for each block, by name: scale, zero point, offset."""
        named = {"scale": self.scale, "zero_point": self.zero_point, "offset": self.offset}
        return {name: value for name, value in named.items() if value is not None}


WeightPart = Tensor | PackedWeight
"""A tensor of floats or integers, or what is stored in its place."""


def from_integers(
    data: Tensor, bits: int, scale: Tensor, zero: Tensor | None = None, order: Tensor | None = None
) -> PackedWeight:
    """`scale * (data - zero)` for integers of any number of bits.

    Args:
        data: int8 or uint8; of the numbers of bits that Core AI lacks, indices of a table are made.
        bits: of each.
        scale: floats, one for each block.
        zero: integers of the shape of the scale.
        order: as of `PackedWeight`.
    """
    zero = zero if zero is not None and bool(zero.any()) else None
    half, is_signed = 1 << (bits - 1), data.dtype == torch.int8
    if zero is not None and not is_signed and bool((zero == half).all()):
        data, zero, is_signed = (data.to(torch.int16) - half).to(torch.int8), None, True
    least, most = (-half, half - 1) if is_signed else (0, 2 * half - 1)
    fits = zero is None or bool(((zero >= least) & (zero <= most)).all())
    if bits not in TABLES and fits:
        return PackedWeight(data, bits, scale, None if zero is None else zero.to(data.dtype), order=order)
    offset = None if zero is None else -(zero.float() * scale.float())
    data = (data.to(torch.int16) - least).to(torch.uint8)
    if offset is not None and bits not in TABLES:  # an offset is added to what counts from 0
        return PackedWeight(data, bits, scale, offset=offset + least * scale.float(), order=order)
    return PackedWeight(data, bits, scale, offset=offset, table=least + torch.arange(float(TABLES[bits])), order=order)


class Unpacking(nn.Module):
    """Makes floats of a stored weight.

    Args:
        stored: the weight.
        dtype: of the floats.
        name: of the weight, for errors.

    Raises:
        LanguageModelError: a scale or an offset is too large or too small for the dtype.
    """

    def __init__(self, stored: PackedWeight, dtype: torch.dtype, name: str):
        super().__init__()
        self.dtype = dtype
        self.scale_of = Unpacking(stored.scale, dtype, name) if isinstance(stored.scale, PackedWeight) else None
        self.offset_of = Unpacking(stored.offset, dtype, name) if isinstance(stored.offset, PackedWeight) else None
        table = stored.table
        if table is None and stored.bits in TABLES:
            table = torch.arange(TABLES[stored.bits], dtype=torch.float32)
        is_signed = stored.data.dtype == torch.int8
        self.element = getattr(torch, f"{'' if is_signed else 'u'}int{stored.bits}") if table is None and (
            not stored.data.is_floating_point()) else None  # fmt: skip
        for what, value in (
            ("data", stored.data),
            ("zero_point", stored.zero_point),
            ("scale", _floats(stored.scale, dtype, f"the scales of {name}")),
            ("offset", _floats(stored.offset, dtype, f"the offsets of {name}")),
            ("table", None if table is None else _table(table, stored.data, dtype, name)),
        ):
            self.register_buffer(what, None if value is None else _in_file(value))

    def forward(self) -> Tensor:
        """The floats, of the shape of the data."""
        made: Any = self.data
        if self.table is not None:
            made = torch.ops.patcomp.lut_to_dense(made, self.table, 0)
        scale = self.scale if self.scale_of is None else self.scale_of()
        if scale is None:
            return made
        offset = self.offset if self.offset_of is None else self.offset_of()
        return torch.ops.patcomp.blockwise_shift_scale(
            made, scale, zero_point=self.zero_point, minval=offset, input_dtype=self.element, output_dtype=self.dtype
        )


def _in_file(values: Tensor) -> Tensor:
    """Equal values in memory of their own. Many integers are in a file, because they take a byte each, where the
    checkpoint has a few bits."""
    if values.is_floating_point():
        return values.contiguous()
    made = torch.from_numpy(mapped(tuple(values.shape), np.dtype(str(values.dtype).removeprefix("torch."))))
    made.copy_(values)
    release([made.numpy().data.cast("B")])
    return made


def _floats(values: WeightPart | None, dtype: torch.dtype, what: str) -> Tensor | None:
    return _as(values, dtype, what) if isinstance(values, Tensor) else None


def _table(table: Tensor, indices: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    _as(table[indices.unique().long()], dtype, f"the table of {name}")
    return table.to(dtype).reshape(*[1] * indices.dim(), -1, 1)


def _as(values: Tensor, dtype: torch.dtype, what: str) -> Tensor:
    made = values.to(dtype)
    lost = ~made.isfinite() | ((made == 0) & (values != 0))
    if bool(lost.any()):
        raise LanguageModelError(
            f"{what} have numbers that {str(dtype).removeprefix('torch.')} cannot hold; pass dtype='bfloat16', which "
            "has the range of float32"
        )
    return made


def store(module: nn.Module, name: str, unpacking: nn.Module, order: Tensor | None = None) -> None:
    """Let a module compute a weight from what is stored.

    Args:
        module: its class becomes one of its own, of the same name.
        name: of the parameter, `weight` of a linear layer.
        unpacking: makes the weight; several modules may share one.
        order: the input of each column of a linear layer, if inputs are stored in another order.
    """
    kind = type(module)
    delattr(module, name)
    place = unpacking_name(name)
    setattr(module, place, unpacking)
    module.__class__ = type(kind.__name__, (kind,), {
        name: property(lambda own: getattr(own, place)()), "__module__": kind.__module__,
    })  # fmt: skip
    if order is not None:
        module.register_buffer("order", order)
        module.register_forward_pre_hook(lambda own, args: (args[0].index_select(-1, own.order), *args[1:]))


def unpacking_name(name: str) -> str:
    """Where a module keeps what makes a weight."""
    return f"unpacking_of_{name}"
