"""The blocks of GGUF as weights in a stored form.

Source: `dequantize_row_*` of llama.cpp's `ggml-quants.c`. Each function gets the blocks of a weight, (rows, blocks of a
row, bytes of a block), and gives its numbers in the order of the inputs. Scales of 6 bits, and those of bytes, stay so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.floats import e2m1_table, powers_of_two
from patcomp_models.checkpoints.quantized.weight import PackedWeight, WeightPart, from_integers

Blocks = np.ndarray

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The levels of IQ4_NL and IQ4_XS."""


def _rows(values: np.ndarray) -> Tensor:
    """Numbers of blocks as rows."""
    return torch.from_numpy(np.ascontiguousarray(values.reshape(values.shape[0], -1)))


def _half(blocks: Blocks, at: int) -> Tensor:
    """A float16 of each block, (rows, blocks)."""
    return _rows(np.ascontiguousarray(blocks[..., at : at + 2]).view(np.float16)).float()


def _halves(nibbles: np.ndarray) -> np.ndarray:
    """The nibbles of bytes along the last axis: first all low nibbles, then all high nibbles."""
    return np.concatenate([nibbles & 15, nibbles >> 4], -1)


def _bits(words: np.ndarray, count: int) -> np.ndarray:
    """The bits of bytes, the lowest first."""
    return np.unpackbits(np.ascontiguousarray(words), axis=-1, bitorder="little")[..., :count]


def _signed(values: np.ndarray, least: int) -> Tensor:
    return _rows(values.astype(np.int16) + least).to(torch.int8)


def _q4_0(blocks: Blocks) -> PackedWeight:
    return PackedWeight(_signed(_halves(blocks[..., 2:]), -8), 4, _half(blocks, 0))


def _q4_1(blocks: Blocks) -> PackedWeight:
    return PackedWeight(_rows(_halves(blocks[..., 4:])), 4, _half(blocks, 0), offset=_half(blocks, 2))


def _q5_0(blocks: Blocks) -> PackedWeight:
    data = _halves(blocks[..., 6:]) | (_bits(blocks[..., 2:6], 32) << 4)
    return from_integers(_signed(data, -16), 5, _half(blocks, 0))


def _q5_1(blocks: Blocks) -> PackedWeight:
    data = _halves(blocks[..., 8:]) | (_bits(blocks[..., 4:8], 32) << 4)
    return PackedWeight(_rows(data), 5, _half(blocks, 0), offset=_half(blocks, 2))


def _q8_0(blocks: Blocks) -> PackedWeight:
    return PackedWeight(_rows(np.ascontiguousarray(blocks[..., 2:]).view(np.int8)), 8, _half(blocks, 0))


def _two_bits(packed: np.ndarray) -> np.ndarray:
    """Numbers of 2 bits: each 32 bytes have 4 x 32 of them."""
    parts = packed.reshape(*packed.shape[:-1], -1, 1, 32)
    return (parts >> (2 * np.arange(4, dtype=np.uint8))[:, None]) & 3


def _q2_k(blocks: Blocks) -> PackedWeight:
    scales = blocks[..., :16]
    scale = PackedWeight(_rows(scales & 15), 4, _half(blocks, 80))
    offset = PackedWeight(_rows(scales >> 4), 4, -_half(blocks, 82))
    return PackedWeight(_rows(_two_bits(blocks[..., 16:80])), 2, scale, offset=offset)


def _q3_k(blocks: Blocks) -> PackedWeight:
    low = _two_bits(blocks[..., 32:96])  # (..., 2, 4, 32)
    high = (blocks[..., None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & 1  # (..., 8, 32)
    data = low.reshape(*low.shape[:-3], 8, 32) | (high << 2)
    packed = blocks[..., 96:108]
    top = (packed[..., None, 8:] >> (2 * np.arange(4, dtype=np.uint8))[:, None]) & 3
    scales = _halves(packed[..., :8]) | (top.reshape(*top.shape[:-2], 16) << 4)
    made = from_integers(_signed(data, -4), 3, _half(blocks, 108))
    return PackedWeight(made.data, 3, _six_bits(scales, _half(blocks, 108), -32), table=made.table)


def _six_bits(scales: np.ndarray, outer: Tensor, least: int) -> PackedWeight:
    return PackedWeight(_rows(scales), 6, outer, table=least + torch.arange(64.0))


def _k_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight scales and eight minima of 6 bits, from 12 bytes."""
    first, second, both = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([first & 63, (both & 15) | ((first >> 2) & 48)], -1)
    return scales, np.concatenate([second & 63, (both >> 4) | ((second >> 2) & 48)], -1)


def _q4_k(blocks: Blocks) -> PackedWeight:
    data = _halves(blocks[..., 16:144].reshape(*blocks.shape[:-1], 4, 32))
    return _with_minima(blocks, data, 4)


def _q5_k(blocks: Blocks) -> PackedWeight:
    low = _halves(blocks[..., 48:176].reshape(*blocks.shape[:-1], 4, 32)).reshape(*blocks.shape[:-1], 8, 32)
    high = (blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    return _with_minima(blocks, low | (high << 4), 5)


def _with_minima(blocks: Blocks, data: np.ndarray, bits: int) -> PackedWeight:
    scales, minima = _k_scales(blocks[..., 4:16])
    offset = _six_bits(minima, -_half(blocks, 2), 0)
    return PackedWeight(_rows(data), bits, _six_bits(scales, _half(blocks, 0), 0), offset=offset)


def _q6_k(blocks: Blocks) -> PackedWeight:
    low = _halves(blocks[..., :128].reshape(*blocks.shape[:-1], 2, 64)).reshape(*blocks.shape[:-1], 2, 4, 32)
    high = _two_bits(blocks[..., 128:192])
    scales = _rows(np.ascontiguousarray(blocks[..., 192:208]).view(np.int8))
    scale = PackedWeight(scales, 8, _half(blocks, 208))
    return PackedWeight(_rows(low | (high << 4)), 6, scale, table=torch.arange(64.0) - 32)


def _iq4_nl(blocks: Blocks) -> PackedWeight:
    return PackedWeight(_rows(_halves(blocks[..., 2:])), 4, _half(blocks, 0), table=torch.tensor(IQ4).float())


def _iq4_xs(blocks: Blocks) -> PackedWeight:
    low = np.stack([blocks[..., 4:8] & 15, blocks[..., 4:8] >> 4], -1).reshape(*blocks.shape[:-1], 8)
    high = (blocks[..., 2:4, None] >> (2 * np.arange(4, dtype=np.uint8))) & 3
    scales = low | (high.reshape(*blocks.shape[:-1], 8) << 4)
    data = _halves(blocks[..., 8:].reshape(*blocks.shape[:-1], 8, 16))
    return PackedWeight(_rows(data), 4, _six_bits(scales, _half(blocks, 0), -32), table=torch.tensor(IQ4).float())


def _tq2_0(blocks: Blocks) -> PackedWeight:
    return PackedWeight(_signed(_two_bits(blocks[..., :64]), -1), 2, _half(blocks, 64))


def _mxfp4(blocks: Blocks) -> PackedWeight:
    return PackedWeight(_rows(_halves(blocks[..., 1:])), 4, powers_of_two(_rows(blocks[..., :1])), table=e2m1_table())


KEPT: dict[str, Callable[[Blocks], PackedWeight]] = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0, "Q2_K": _q2_k, "Q3_K": _q3_k,
    "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs, "TQ2_0": _tq2_0,
    "MXFP4": _mxfp4,
}  # fmt: skip
"""The function of each type whose bits are kept."""


def reshaped_blocks(weight: PackedWeight, shape: tuple[int, ...]) -> PackedWeight:
    """A weight of rows in its own shape, such as that of all experts."""

    def made(part: WeightPart) -> WeightPart:
        if isinstance(part, Tensor):
            return part.reshape(*shape[:-1], -1)
        own = {name: made(each) for name, each in part.parameters.items()}
        return PackedWeight(part.data.reshape(*shape[:-1], -1), part.bits, own.get("scale"), offset=own.get("offset"),
                            table=part.table)  # fmt: skip

    result = made(weight)
    assert isinstance(result, PackedWeight)
    return result
