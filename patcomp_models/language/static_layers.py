"""Layers of a cache of transformers over the states of the Neural Engine's form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import CONVOLUTION
from patcomp_models.language.layers import FixedLayer, StackedCacheLayer
from patcomp_models.language.recurrences import delta_rule, mamba2
from patcomp_models.language.static_contract import FORBIDDEN, QUERIES


class Columns(StackedCacheLayer):
    """One layer of a cache of the shape layers x 1 x heads*width x 1 x S. All of it is read: a mask hides the rest.

    Args:
        key_cache, value_cache, layer: as for `StackedCacheLayer`.
        offset: where the block is written.
        heads, width: of a row of the caches.
        widths: of keys and of values, which may be less.
    """

    def __init__(
        self, key_cache: Tensor, value_cache: Tensor, layer: int, offset: Any, heads: int, width: int,
        widths: tuple[int, int],
    ):  # fmt: skip
        super().__init__(key_cache, value_cache, layer, offset, key_cache.shape[4], widths)
        self.shape = heads, width

    def _written(self, cache: Tensor, new: Tensor, width: int) -> Tensor:
        padded = self.padded(cache.unflatten(2, self.shape).squeeze(4).transpose(3, 4), new, width)
        _, heads, queries, whole = padded.shape
        columns = padded.transpose(2, 3).reshape(1, 1, heads * whole, 1, queries)
        cache.narrow(0, self.layer, 1).narrow(4, self.offset, queries).copy_(columns)
        held = cache.narrow(0, self.layer, 1).reshape(1, heads, whole, self.total)
        return (held if width == whole else held.narrow(2, 0, width)).transpose(2, 3)


# ---- states of fixed size -----------------------------------------------------------------------------
#
# A block begins at a multiple of its size, so that tokens of a block that was not full are computed again. Caches of
# keys and values are overwritten; a recurrence must begin where the block does. So a state of fixed size has a row for
# each size of blocks: its content in front of the last multiple of this size. A block of q tokens reads the row of q.

PIECE = QUERIES[0]
"""The tokens of a piece: the multiples of all sizes are multiples of it."""


@dataclass(frozen=True)
class BlockOfTokens:
    """Where a block is.

    Attributes:
        row: that its function reads.
        start: the position of its first token, 1 of int32.
        kept: for each size of blocks, which of the states it keeps: 0 for the earlier one, and 1 + k for the one in
            front of token k * PIECE of the block; 1 of int32 each.
    """

    row: int
    start: Tensor
    kept: tuple[Tensor, ...]

    @classmethod
    def of(cls, start: Tensor, mask: Tensor) -> BlockOfTokens:
        """The block of a call.

        Args:
            start: the position of its first token, 1 of int32.
            mask: of its queries, 1 x S x 1 x q; those behind the last token see nothing.
        """
        queries = mask.shape[3]
        count = (mask.amax(1) > FORBIDDEN / 2).to(torch.int32).sum(2, dtype=torch.int32).reshape(1)
        end = start + count
        kept = tuple(torch.clamp((end // size * size - start) // PIECE + 1, 0) for size in QUERIES)
        return cls(QUERIES.index(queries), start, kept)

    def first(self, held: Tensor) -> Tensor:
        """The state in front of the block, of the rows of a layer; zeros in front of the first token."""
        return torch.where(self.start > 0, held[self.row], 0)

    def after(self, held: Tensor, states: Tensor) -> Tensor:
        """The rows after the call.

        Args:
            held: those before, (sizes of blocks, *shape).
            states: in front of each piece and behind the last, (pieces + 1, *shape).
        """
        rows = [torch.cat([held[row : row + 1], states]).index_select(0, kept) for row, kept in enumerate(self.kept)]
        return torch.cat(rows)


class BlockLayer(FixedLayer):
    """One layer of windows of convolutions and states of recurrences.

    Args:
        fixed: the rows of this layer, (sizes of blocks, *shape), by kind and number.
        count: how many numbers there are.
        block: of the call.
    """

    def __init__(self, fixed: dict[tuple[str, int], Tensor], count: int, block: BlockOfTokens):
        super().__init__({at: block.first(rows) for at, rows in fixed.items()}, count)
        self.block, self.rows, self.after = block, fixed, {}

    after: dict[tuple[str, int], Tensor]
    """The rows after the call."""

    def update_conv_state(self, conv_states: Tensor, state_idx: int = 0, **options: Any) -> Tensor:
        at = (CONVOLUTION, state_idx)
        before = self.held(*at)
        both = torch.cat([before, conv_states.to(before.dtype)], -1)
        ends = range(0, conv_states.shape[-1] + 1, PIECE)
        states = torch.stack([both.narrow(-1, end, before.shape[-1]) for end in ends])
        self.after[at] = self.block.after(self.rows[at], states)
        return both.to(conv_states.dtype)

    def hold(self, kind: str, number: int, value: Tensor) -> None:
        """Keep the states of a recurrence in front of each piece and behind the last."""
        at = kind, number
        self.after[at] = self.block.after(self.rows[at], value.to(self.rows[at].dtype))


def in_pieces(function: Callable[..., Any], initial: str, *sequences: str) -> Callable[..., Any]:
    """A recurrence that goes from piece to piece of a block.

    Args:
        function: of `recurrences`, which gives outputs and the last state.
        initial: its argument with the first state.
        sequences: its arguments with tokens, (1, q, ...), as are its outputs.

    Returns:
        A function that gives the outputs, and the states in front of each piece and behind the last.
    """
    signature = inspect.signature(function)

    def pieces(*arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        call = signature.bind(*arguments, **options)
        whole = {name: call.arguments[name] for name in sequences}
        states, outputs = [call.arguments[initial]], []
        for start in range(0, whole[sequences[0]].shape[1], PIECE):
            call.arguments |= {name: each.narrow(1, start, PIECE) for name, each in whole.items()}
            call.arguments[initial] = states[-1]
            output, state = function(*call.args, **call.kwargs)
            outputs.append(output)
            states.append(state)
        return torch.cat(outputs, 1), torch.stack([each.to(states[-1].dtype) for each in states])

    return pieces


def forms_of_blocks(masks: Mapping[str, Tensor]) -> dict[str, Callable[..., Any]]:
    """The functions that take the place of those of transformers in a call of a block, by name.

    Args:
        masks: what its queries see, 1 x 1 x q x S, by the function that makes it.
    """

    def given(name: str) -> Callable[..., Tensor]:
        def mask(*arguments: Any, **options: Any) -> Tensor:
            if options.get("or_mask_function") or options.get("and_mask_function"):
                raise LanguageModelError("the model adds to its masks, which the Neural Engine's form takes as inputs")
            return masks[name]

        return mask

    by_delta_rule = in_pieces(delta_rule, "initial_state", "query", "key", "value", "g", "beta")
    return {
        **{name: given(name) for name in masks},
        **dict.fromkeys(("torch_chunk_gated_delta_rule", "chunk_kimi_delta_attention"), by_delta_rule),
        "mamba2_chunk_scan": in_pieces(mamba2, "initial_states", "hidden_states", "dt", "b", "c"),
    }
