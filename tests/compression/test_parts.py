"""A large weight is rounded and compared in parts, and that changes nothing."""

import numpy as np
import pytest
import torch

from patcomp.compression.measures import relative_error
from patcomp.compression.scheme import Layout, Scheme
from patcomp.evaluate.stored_weights import blockwise_shift_scale, lut_to_dense
from patcomp.ir import parts

LAYOUTS = {"outputs first": Layout((0,), 1), "inputs first": Layout((1,), 0)}
SCHEMES = ("w8", "w4_block32", "w3_block32", "pal4", "pal4_group16", "pal4_vector2", "sparse50_w8")


@pytest.fixture
def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_PART", 500)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", SCHEMES)
def test_parts_of_a_weight(name: str, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float16)
    whole = Scheme.parse(name).store(weight, layout, np.dtype("f2"))
    floats, quality = whole.floats(), relative_error(weight, whole, layout)
    monkeypatch.setattr(parts, "_PART", 500)
    cut = Scheme.parse(name).store(weight, layout, np.dtype("f2"))
    assert np.array_equal(cut.floats(), floats)
    assert relative_error(weight, cut, layout) == pytest.approx(quality)


@pytest.mark.usefixtures("in_small_parts")
@pytest.mark.parametrize("blocks", [(64, 3), (1, 3), (4, 3), (64, 1), (1, 1)])
def test_parts_of_a_stored_weight(blocks: tuple[int, int]) -> None:
    draw = torch.Generator().manual_seed(0)
    data = torch.randint(0, 16, (64, 96), dtype=torch.uint8, generator=draw)
    scale, offset = (torch.rand(blocks, generator=draw) for _ in range(2))
    zero = torch.randint(0, 16, blocks, dtype=torch.uint8, generator=draw)
    tall, wide = 64 // blocks[0], 96 // blocks[1]
    scales, offsets, zeros = (each.repeat_interleave(tall, 0).repeat_interleave(wide, 1) for each in (
        scale, offset, zero))  # fmt: skip
    made = blockwise_shift_scale(data, scale, zero, input_dtype=torch.uint4)
    assert torch.equal(made, (data.float() - zeros.float()) * scales)
    made = blockwise_shift_scale(data, scale, minval=offset, input_dtype=torch.uint4)
    assert torch.equal(made, data.float() * scales + offsets)


@pytest.mark.usefixtures("in_small_parts")
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("vector", [1, 2])
@pytest.mark.parametrize("blocks", [1, 4])
def test_parts_of_entries(axis: int, vector: int, blocks: int) -> None:
    draw = torch.Generator().manual_seed(0)
    indices = torch.randint(0, 16, (64, 96), dtype=torch.uint8, generator=draw)
    table = torch.rand(blocks, 1, 16, vector, generator=draw)
    block = torch.arange(64)[:, None] // (64 // blocks)
    entries = table[block, 0, indices.long()]  # (64, 96, vector)
    expected = entries.movedim(-1, axis + 1).flatten(axis, axis + 1)
    assert torch.equal(lut_to_dense(indices, table, axis), expected)


def test_parts_cover_an_axis_once(in_small_parts: None) -> None:
    for shape, axis, blocks in (((64, 96), 0, 1), ((64, 96), 0, 4), ((7, 30, 40), 1, 30), ((3, 1), 0, 1)):
        found = [list(range(shape[axis]))[place] for place, _ in parts.in_parts(shape, axis, blocks)]
        assert [index for part in found for index in part] == list(range(shape[axis]))
        assert all(len(part) % (shape[axis] // blocks if blocks > 1 else 1) == 0 for part in found)
