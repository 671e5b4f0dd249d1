"""A weight as a checkpoint stores it, and a module that makes floats of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import patcomp.evaluate.stored_weights  # registers the operators
from patcomp.language.errors import LanguageModelError

_ = patcomp.evaluate.stored_weights

TABLES = {3: 8, 5: 64, 6: 64, 7: 256}
"""For numbers of bits that Core AI has no integers of, the length of the table that makes numbers of indices."""

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The magnitudes of floats of 4 bits: two bits of exponent, one of mantissa."""


@dataclass(frozen=True)
class StoredWeight:
    """`scale * (data - zero_point) + offset`, or the same of the entries of a table.

    Attributes:
        data: (outputs, inputs): integers of a byte each, or float8.
        bits: how many bits of each are used; negative integers are signed.
        scale: (outputs or 1 or blocks, blocks): floats; or it is stored itself. None for 1.
        zero_point: integers of the shape of the scale.
        offset: floats of the shape of the scale.
        table: the numbers that the data are indices of.
        order: if inputs are stored in another order, the input of each column.
    """

    data: Tensor
    bits: int
    scale: Tensor | StoredWeight | None
    zero_point: Tensor | None = None
    offset: Tensor | None = None
    table: Tensor | None = None
    order: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)


class Unpacking(nn.Module):
    """Makes floats of a stored weight.

    Args:
        stored: the weight.
        dtype: of the floats.
        name: of the weight, for errors.

    Raises:
        LanguageModelError: a scale or an offset is too large or too small for the dtype.
    """

    def __init__(self, stored: StoredWeight, dtype: torch.dtype, name: str):
        super().__init__()
        self.dtype = dtype
        self.scale_of = Unpacking(stored.scale, dtype, name) if isinstance(stored.scale, StoredWeight) else None
        table = stored.table
        if table is None and stored.bits in TABLES:
            table = torch.arange(TABLES[stored.bits], dtype=torch.float32)
        is_signed = stored.data.dtype == torch.int8
        self.element = getattr(torch, f"{'' if is_signed else 'u'}int{stored.bits}") if table is None and (
            not stored.data.is_floating_point()) else None  # fmt: skip
        scale = stored.scale if isinstance(stored.scale, Tensor) else None
        for what, value in (
            ("data", stored.data),
            ("zero_point", stored.zero_point),
            ("scale", None if scale is None else _as(scale, dtype, f"the scales of {name}")),
            ("offset", None if stored.offset is None else _as(stored.offset, dtype, f"the offsets of {name}")),
            ("table", None if table is None else _table(table, stored.data, dtype, name)),
        ):
            self.register_buffer(what, None if value is None else value.contiguous())

    def forward(self) -> Tensor:
        """The floats, (outputs, inputs)."""
        made: Any = self.data
        if self.table is not None:
            made = torch.ops.patcomp.lut_to_dense(made, self.table, 0)
        scale = self.scale if self.scale_of is None else self.scale_of()
        if scale is None:
            return made
        return torch.ops.patcomp.blockwise_shift_scale(
            made, scale, zero_point=self.zero_point, minval=self.offset, input_dtype=self.element,
            output_dtype=self.dtype,
        )  # fmt: skip


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


def store(module: nn.Module, unpacking: nn.Module, order: Tensor | None = None) -> None:
    """Let a module compute its weight from what is stored.

    Args:
        module: a linear layer or a table of embeddings; its class becomes one of its own, of the same name.
        unpacking: makes the weight; several modules may share one.
        order: the input of each column, if inputs are stored in another order.
    """
    kind = type(module)
    del module.weight
    module.unpacking = unpacking
    module.__class__ = type(kind.__name__, (kind,), {"weight": property(lambda own: own.unpacking())})
    if order is not None:
        module.register_buffer("order", order)
        module.register_forward_pre_hook(lambda own, args: (args[0].index_select(-1, own.order), *args[1:]))
