"""The worlds in which parts of networks are run: constants, orders, lookups, pools and convolutions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (as everyone calls it)

from patcomp_lab.proof.outcome import symbolic
from patcomp_lab.proof.run.flat import NotComparedError, flat
from patcomp_lab.proof.run.worlds import LOOKED_INTO, OPAQUE, RunWorld, looked_up, lookup_of_op
from patcomp_lab.proof.symbols import Symbols, UnreachedError, same_codes
from patcomp_lab.proof.worlds import CODE_OF_INFINITY, SIGN, CodeKind, P, World
from tests.helpers.programs import program

EIGHTHS = torch.cat([torch.arange(1.0, 100.0), -torch.arange(1.0, 100.0)]) / 8
IMAGE = (torch.arange(72.0) * 7 % 23 - 11).reshape(1, 2, 6, 6)


def symbols(values: Tensor, world: World) -> Symbols:
    return Symbols(world.numbers(values), values.dtype, world)


def test_large_constants_are_the_numbers_themselves() -> None:
    world, plain = RunWorld(CodeKind.REALS), World(CodeKind.REALS)
    assert torch.equal(world.numbers(EIGHTHS), plain.numbers(EIGHTHS))
    wide = torch.cat([EIGHTHS, torch.tensor([0.0, 1e30, 1e-30])])
    assert torch.equal(world.numbers(wide)[:198], plain.numbers(EIGHTHS))
    assert world.numbers(wide)[198:].unique().numel() == 3
    assert world.numbers(EIGHTHS.reshape(2, 99)).shape == (2, 99)
    tenth = torch.tensor([0.1])
    assert torch.equal(world.numbers(tenth), plain.numbers(tenth))  # of few numbers, a decimal
    assert not torch.equal(world.numbers(torch.cat([EIGHTHS, tenth]))[-1:], plain.numbers(tenth))
    assert world.numbers(torch.tensor([math.inf])).tolist() == [CODE_OF_INFINITY]
    assert world.numbers(torch.zeros(0)).shape == (0,)
    with pytest.raises(UnreachedError, match="a large constant with infinities or NaN"):
        world.numbers(torch.cat([EIGHTHS, torch.tensor([math.inf])]))


def test_large_constants_to_the_bit() -> None:
    world = RunWorld(CodeKind.BITS)
    made = world.numbers(EIGHTHS)
    assert made.unique().numel() == 198
    assert torch.equal(made[:99] ^ SIGN, made[99:])
    assert torch.equal(made, torch.tensor([world.number_of(value) for value in EIGHTHS.tolist()]))
    zeros = [world.number_of(each) for each in (0.0, -0.0)]
    assert zeros[0] ^ zeros[1] == SIGN


def test_a_python_number_is_rounded_to_32_bits_unless_there_are_64() -> None:
    rounded = float(np.float32(0.1))
    assert RunWorld(CodeKind.BITS).number_of(0.1) == RunWorld(CodeKind.BITS).number_of(rounded)
    wide = RunWorld(CodeKind.BITS, of_64_bits=True)
    assert wide.number_of(0.1) != wide.number_of(rounded)


@pytest.mark.parametrize("kind", CodeKind)
def test_symbols_are_smaller_and_larger_than_every_constant(kind: CodeKind) -> None:
    world = RunWorld(kind)
    numbers = torch.tensor([-2.5, 0.0, 0.25, 7.0, math.inf])
    assert world.keys(world.numbers(numbers)).tolist() == numbers.tolist()
    x = world.symbols("x", (2000,))
    keys = world.keys(x)
    size = keys[keys != 0].abs().nan_to_num(1.0)
    assert float(size.max()) > 1e30
    assert float(size.min()) < 1e-30
    assert 300 < int((size > 1e5).sum()) < 800
    negative = x ^ SIGN if kind is CodeKind.BITS else P - x
    assert torch.equal(world.keys(negative).nan_to_num(9.0), (-keys).nan_to_num(9.0))


POOLS: list[tuple[Any, ...]] = [([2, 2],), ([3], [2], [1]), ([2, 3], [1, 2], [1, 1]), ([2, 2], [1, 1], [0, 0], [2, 1])]


@pytest.mark.parametrize("options", POOLS)
def test_max_pools_of_numbers(options: tuple[Any, ...]) -> None:
    world = RunWorld(CodeKind.REALS)
    kernel = options[0] * 2 if len(options[0]) == 1 else options[0]
    made = LOOKED_INTO["max_pool2d"](world, symbols(IMAGE, world), kernel, *options[1:])
    wanted = torch.ops.aten.max_pool2d(IMAGE, *options)
    assert torch.equal(made.codes, world.numbers(wanted))
    with pytest.raises(UnreachedError, match="ceil_mode"):
        LOOKED_INTO["max_pool2d"](world, symbols(IMAGE, world), [2, 2], [2, 2], [0, 0], [1, 1], True)


# ---- lookups -----------------------------------------------------------------------------------------


def test_lookups_by_numbers_and_by_symbols() -> None:
    for kind in CodeKind:
        world = RunWorld(kind)
        table, other = (symbolic(torch.zeros(5, 3), name, world) for name in ("table", "other"))
        rows = torch.tensor([[4, 0]])
        assert same_codes(LOOKED_INTO["embedding"](world, table, rows), table[rows], world)
        at, elsewhere = (Symbols(world.symbols(name, (2,)), torch.int64, world) for name in ("at", "elsewhere"))
        made = LOOKED_INTO["embedding"](world, table, at)
        assert (tuple(made.shape), made.dtype) == ((2, 3), torch.float32)
        assert same_codes(made, LOOKED_INTO["embedding"](world, table, at), world)
        for one, index in ((other, at), (table, elsewhere), (table.flip(0), at)):
            assert not bool((LOOKED_INTO["embedding"](world, one, index).codes == made.codes).any())
        wide = Symbols(at.codes[:, None], torch.int64, world)
        found = lookup_of_op("coreai.gather_nd", world, [table, wide])
        assert found is not None
        assert same_codes(found, made, world)
        assert lookup_of_op("coreai.gather_nd", world, [table, rows]) is None
        assert lookup_of_op("coreai.add", world, [table, wide]) is None
        with pytest.raises(UnreachedError, match="by several symbolic indices"):
            lookup_of_op("coreai.gather_nd", world, [table, Symbols(at.codes[None], torch.int64, world)])
        with pytest.raises(UnreachedError, match="a table of booleans"):
            looked_up(world, torch.ones(5, 3, dtype=torch.bool), at)


# ---- convolutions that are not looked into -----------------------------------------------------------


def convolved(world: World, x: Any, weight: Any, bias: Any, padding: Any, **options: Any) -> Any:
    given = {"stride": [1], "dilation": [1], "transposed": False, "output_padding": [0], "groups": 1} | options
    return OPAQUE["convolution"](
        world, x, weight, bias, given["stride"], padding, given["dilation"], given["transposed"],
        given["output_padding"], given["groups"],
    )  # fmt: skip


def test_convolutions_are_functions_of_all_that_they_are_given() -> None:
    for kind in CodeKind:
        world = RunWorld(kind)
        x, weight, bias = (
            symbolic(torch.zeros(shape), name, world)
            for name, shape in (("x", (1, 2, 8, 8)), ("weight", (4, 2, 3, 3)), ("bias", (4,)))
        )
        made = convolved(world, x, weight, None, [0])
        assert same_codes(made, convolved(world, x, weight, None, [0, 0], stride=[1, 1]), world)
        assert tuple(made.shape) == (1, 4, 6, 6)
        assert not same_codes(made, convolved(world, x, weight.flip(0), None, [0]), world)
        assert not same_codes(made, convolved(world, x.flip(2), weight, None, [0]), world)
        wide = convolved(world, x, weight, None, [1, 2])
        padded = convolved(world, F.pad(x, (2, 2, 1, 1), value=0.0), weight, None, [0])
        assert same_codes(wide, padded, world) == (kind is CodeKind.REALS)
        shifted = convolved(world, x, weight, bias, [0])
        assert same_codes(shifted, made + bias.reshape(-1, 1, 1), world) == (kind is CodeKind.REALS)
        back = [convolved(world, x, weight.mT.transpose(0, 1), None, [each], transposed=True) for each in (0, 1)]
        assert [tuple(each.shape) for each in back] == [(1, 4, 10, 10), (1, 4, 8, 8)]


# ---- entry points as lists ---------------------------------------------------------------------------


def test_an_entry_point_without_names_counts_its_values() -> None:
    module = program({"x": "2xf32"}, lambda x: x)
    graph = module.graph("main")
    for kind in ("arg_attrs", "res_attrs"):
        graph.properties.pop(kind)
    made = flat(module, "main")
    assert ([*made.inputs], [*made.outputs]) == (["0"], ["0"])
    with pytest.raises(NotComparedError, match="the entry point 'other' is gone"):
        flat(module, "other")
