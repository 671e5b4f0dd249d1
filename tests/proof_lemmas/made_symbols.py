"""The codes of symbols: what each meaning of an op gives, what moves symbols, and what constants and orders are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812  (as everyone calls it)

from patcomp_lab.proof.lemmas import LEMMAS
from patcomp_lab.proof.outcome import symbolic
from patcomp_lab.proof.run import worlds as of_runs
from patcomp_lab.proof.run.worlds import LOOKED_INTO, OPAQUE, RunWorld, looked_up, opaque
from patcomp_lab.proof.scalars import common_dtype
from patcomp_lab.proof.symbols import MEANINGS, Symbols, same_codes
from patcomp_lab.proof.worlds import CODE_OF_INFINITY, MINUS_INFINITY, SIGN, CodeKind, P, World
from tests.proof_lemmas.fingerprints import Lines, attempt, shown, table

BITS, REALS = CodeKind.BITS, CodeKind.REALS
FLOATS = (torch.float32, torch.float16)
ALL = {*LEMMAS}


def _worlds() -> list[World]:
    return [World(BITS), World(BITS, allowed=ALL), World(REALS)]


def _symbols(name: str, shape: tuple[int, ...], dtype: torch.dtype, world: World) -> Any:
    if dtype.is_floating_point:
        return symbolic(torch.zeros(shape, dtype=dtype), name, world)
    return Symbols(world.symbols(name, shape), dtype, world)


ARGUMENTS: tuple[Callable[[Any, Any], tuple[tuple[Any, ...], dict[str, Any]]], ...] = (
    lambda x, y: ((x,), {}),
    lambda x, y: ((x, y), {}),
    lambda x, y: ((x, y), {"alpha": 2}),
    lambda x, y: ((x, y), {"rounding_mode": "floor"}),
    lambda x, y: ((x, 1), {}),
    lambda x, y: ((1, x), {}),
    lambda x, y: ((x, -1.0), {}),
    lambda x, y: ((-1.0, x), {}),
    lambda x, y: ((x, 2), {}),
    lambda x, y: ((x, 3), {}),
    lambda x, y: ((x, 0.5), {}),
    lambda x, y: ((x, -0.5), {}),
    lambda x, y: ((x, -0.0), {}),
    lambda x, y: ((-0.0, x), {}),
    lambda x, y: ((x, 0.0), {}),
    lambda x, y: ((x, torch.tensor([2.0, 2.0, 2.0])), {}),
    lambda x, y: ((x, torch.tensor([2.0, 2.0, 1.0])), {}),
    lambda x, y: ((x, torch.tensor(2)), {}),
    lambda x, y: ((x, [1]), {}),
    lambda x, y: ((x, [0, 1], True), {}),
    lambda x, y: ((x, 0, True), {}),
    lambda x, y: ((x, 1), {"dtype": torch.float64}),
    lambda x, y: ((x, torch.float16), {}),
    lambda x, y: ((x, torch.bfloat16), {}),
    lambda x, y: ((x, torch.float64), {}),
    lambda x, y: ((x, torch.bool), {}),
    lambda x, y: ((x, torch.int8), {}),
    lambda x, y: ((x, torch.int64), {}),
    lambda x, y: ((x, "tanh"), {}),
    lambda x, y: ((x, [2], 3.0), {}),
    lambda x, y: ((x, y.mT), {}),
    lambda x, y: ((x, x, y.mT), {"beta": 2, "alpha": 3}),
    lambda x, y: ((x[:2, :2], x, y.mT), {"alpha": 3}),
    lambda x, y: ((x[0], y[0]), {}),
    lambda x, y: ((x[0, 0], 0), {}),
    lambda x, y: ((x[:, :0], 1), {}),
    lambda x, y: ((x[:, :1], 1), {}),
    lambda x, y: ((x[:, :1], [1], 0), {}),
    lambda x, y: ((x, 2, 1, False), {}),
    lambda x, y: ((x[None], [2], [1], [1], True, False), {}),
    lambda x, y: ((x[None, None], [2, 2], (), 0, False, True, 3), {}),
    lambda x, y: ((x[None], [2]), {}),
    lambda x, y: ((x, -1.0, 2.0), {}),
)
"""Arguments that an op may take; `x` and `y` are symbols of the shape (2, 3)."""


TAKEN = {"_unary": 1, "_binary": 17, "_over_the_reals": 1, "_comparison": 5, "_like": 5, "_chosen": 5}
"""How many of the arguments are for ops of one or of two operands, by the function that makes their meaning."""


def _computed(name: str) -> list[str]:
    lines = []
    for place, arguments in enumerate(ARGUMENTS[: TAKEN.get(MEANINGS[name].__qualname__.partition(".")[0])]):
        for world in _worlds():
            for dtype in FLOATS if world.kind is BITS and not world.allowed and place < 8 else FLOATS[:1]:
                x, y = (_symbols(each, (2, 3), dtype, world) for each in "xy")
                args, kwargs = arguments(x, y)
                lines.append(attempt(MEANINGS[name], world, *args, **kwargs))
        world = World(BITS)
        args, kwargs = arguments(*(_symbols(each, (2, 3), torch.int32, world) for each in "xy"))
        lines.append(attempt(MEANINGS[name], world, *args, **kwargs))
    return lines


@table
def meanings() -> Lines:
    """All that is computed, by the name of the op, on arguments that fit it and on others."""
    return {name: _computed(name) for name in MEANINGS}


INDEX = torch.tensor([1, 0, 1])
FLAGS = torch.tensor([True, False, True])
NUMBERS = torch.tensor([0.5, -0.0, 3.0])
MOVES: dict[str, Callable[[Any, Any], Any]] = {
    "views": lambda x, y: [x.mT, x.reshape(6), x[0], x[:, 1:], x.unsqueeze(0), x.expand(2, 2, 3), x.view(3, 2)],
    "cat": lambda x, y: [torch.cat([x, y]), torch.stack([x, y], 1), torch.cat([x, NUMBERS[None].to(x.dtype)])],
    "zeros": lambda x, y: [x.tril(), x.triu(1)],
    "diag_embed": lambda x, y: x.diag_embed(),
    "diagonal": lambda x, y: [x.diagonal(), x.flip(0), x.roll(1, 1), x.repeat(2, 1), x.tile(2)],
    "im2col": lambda x, y: F.unfold(x[None, None], (2, 2)),
    "reflection": lambda x, y: F.pad(x[None], (1, 1), mode="reflect"),
    "replication": lambda x, y: F.pad(x[None], (2, 1), mode="replicate"),
    "padding": lambda x, y: [F.pad(x, (1, 0)), torch.constant_pad_nd(x, [0, 1], 2.5), torch.constant_pad_nd(x, [1, 1])],
    "fill": lambda x, y: [x.masked_fill(FLAGS, 2.0), x.masked_fill(FLAGS, y[0, 0]), x.index_fill(1, INDEX, 0.5)],
    "in place": lambda x, y: [x.clone().zero_(), x.clone().fill_(2.0), x.clone().copy_(y), x.clone().mul_(y)],
    "in place of an operand": lambda x, y: [y.add_(x), y],
    "where": lambda x, y: [torch.where(FLAGS, x, y), torch.where(FLAGS, x, NUMBERS), torch.where(FLAGS, x, 1.5)],
    "where of integers": lambda x, y: torch.where(FLAGS, x, INDEX),
    "gather": lambda x, y: [x.gather(1, INDEX[None]), x.index_select(1, INDEX), x[:, INDEX], x.take(INDEX)],
    "scatter": lambda x, y: [x.scatter(1, INDEX[None, :2], y), x.scatter(1, INDEX[None, :1], 2.0)],
    "index_put": lambda x, y: x.index_put((INDEX,), y[0]),
    "accumulate": lambda x, y: x.index_put((INDEX,), y[0], accumulate=True),
    "masked_scatter": lambda x, y: x.masked_scatter(FLAGS, y),
    "select_scatter": lambda x, y: [x.select_scatter(y[0], 0, 1), x.slice_scatter(y[:, :1], 1, 1, 2)],
    "bits": lambda x, y: x.view(torch.int32),
    "the same type": lambda x, y: x.view(x.dtype),
    "another type": lambda x, y: [x.to(torch.float64), x.half(), x.bfloat16().float(), x.bool()],
    "item": lambda x, y: x[0, 0].item(),
    "out": lambda x, y: torch.add(x, y, out=torch.empty(2, 3)),
    "complex": lambda x, y: x * torch.ones(3, dtype=torch.complex64),
    "unknown": lambda x, y: torch.linalg.qr(x),
    "decomposed": lambda x, y: [F.leaky_relu(x), F.hardtanh(x), torch.addcmul(x, x, y), x.std(1), x.logsumexp(1)],
    "mixed types": lambda x, y: [x + y.half(), torch.cat([x, y.double()]), x * NUMBERS.double()],
    "numbers": lambda x, y: [x + NUMBERS, NUMBERS * x, x.maximum(NUMBERS), x < NUMBERS],
    "convolutions": lambda x, y: [F.conv1d(x[None], y[None, :, :2]), F.conv1d(x[None], y[:, None, :2], groups=2)],
    "transposed convolution": lambda x, y: F.conv_transpose1d(x[None], y[:, None]),
    "order": lambda x, y: [x.max(1), x.min(), x.sort(1), x.topk(2), x.cummax(0), x.clamp(min=0), x.amax(), x.isnan()],
}


@table
def dispatched() -> Lines:
    """What PyTorch hands to symbols."""
    found: dict[str, list[str]] = {}
    for name, function in MOVES.items():
        lines = found[name] = []
        for world in _worlds():
            for dtype in (torch.float32, torch.float16, torch.int32):
                lines.append(attempt(function, *(_symbols(each, (2, 3), dtype, world) for each in "xy")))
    return found


CONSTANTS = [
    *(float(np.float32(n / d)) for d in (3, 7, 60, 61, 62, 63, 64, 65, 66, 67) for n in (1, 5, d + 1)),
    *(float(np.float32(f"{n}e-{places}")) for n in (1, 12, 1234, 12345, 123456, 1234567) for places in (1, 4, 6)),
    *(math.sqrt(number) for number in (0.1, 0.12, 1.234, 12.345, 123.456, 1e-7, 2e6, 12345678.0)),
    *(float(np.float32(math.sqrt(number))) for number in (0.1, 0.12, 1.234, 12.345, 1e-7, 7.7)),
    1 / 4096, 1 / 8192, 4097 / 4096, 3 / 8192, 1e-30, 1e30, math.pi, 1 / math.pi, -math.e, -1 / math.e, 0.0, -0.0, -2.5,
    math.inf, -math.inf, math.nan, 5e-324, 1e38,
]  # fmt: skip
WILD = (0, 1, 5, P - 1, CODE_OF_INFINITY, MINUS_INFINITY, P + 3)


@table
def constants() -> Lines:
    worlds = [
        World(BITS),
        World(REALS),
        World(REALS, 1),
        RunWorld(BITS),
        RunWorld(REALS),
        RunWorld(BITS, of_64_bits=True),
    ]
    found: dict[str, list[str]] = {}
    for place, world in enumerate(worlds):
        lines = found[f"world {place}"] = [f"{number} {world.number_of(number)}" for number in CONSTANTS]
        lines.append(shown(world.keys(world.numbers(torch.tensor(CONSTANTS[:20])))))
        x = world.symbols("x", (40,))
        lines += [shown(each) for each in (x, world.keys(x), world.keys(x ^ SIGN), world.keys(torch.tensor(WILD)))]
        lines += [shown(world.negated(torch.tensor(WILD))), shown(world.oracle(("f", 1), x, x[:1]))]
        if world.kind is REALS:
            wild = torch.tensor(WILD)
            lines += [shown([world.inverse(x), world.root(x), world.is_positive(x), world.root(wild)])]
            for name in ("add", "sub", "mul", "div"):
                lines.append(shown(world.arithmetic(name, wild[:, None], wild)))
            for dtype in (torch.float16, torch.bfloat16, torch.float32):
                numbers = torch.cat([x[:3], world.numbers(torch.tensor([0.5, 0.1, 2049.0])), wild])
                made = world.cast(numbers, torch.float32, dtype)
                lines.append(shown([made, world.cast(made, dtype, torch.float32)]))
                lines.append(shown(world.cast(world.cast(made, dtype, torch.float32), torch.float32, dtype)))
        for count in (1, 63, 64, 65, 100):
            values = torch.arange(count) / 7 - 3
            lines.append(shown(world.numbers(values)))
            lines.append(shown(world.numbers(torch.cat([torch.zeros(4096), values]))))
    return found


IMAGE = (1, 2, 4, 4)
OF_RUNS: dict[str, Callable[[RunWorld, Any], Any]] = {
    "opaque": lambda w, x: opaque(w, "aten.exp", (x,), {}),
    "opaque of another op": lambda w, x: opaque(w, "aten.sin", (x,), {}),
    "opaque of two results": lambda w, x: opaque(w, "aten.native_layer_norm", (x, [4], None, None, 1e-5), {}),
    "opaque of halves": lambda w, x: opaque(w, "aten.mul.Tensor", (x, torch.ones(4).half()), {}),
    "opaque integers": lambda w, x: opaque(w, "aten.argmax", (x,), {"dim": 1}),
    "pool": lambda w, x: OPAQUE["max_pool2d_with_indices"](w, x, [2, 2], [1], [1, 0], [1, 2]),
    "pool of equal options": lambda w, x: OPAQUE["max_pool2d"](w, x, [2, 3], (), 1, 1),
    "pool to the end": lambda w, x: OPAQUE["max_pool2d"](w, x, [2, 2], (), 0, 1, True),
    "lookup": lambda w, x: looked_up(w, x[0, 0], _symbols("i", (2, 3), torch.int64, w)),
    "lookup of integers": lambda w, x: looked_up(w, torch.arange(6).reshape(3, 2), _symbols("i", (2,), torch.int64, w)),
    "lookup of booleans": lambda w, x: looked_up(w, FLAGS[:, None], _symbols("i", (2,), torch.int64, w)),
    "lookup of nothing": lambda w, x: looked_up(w, x[0, 0][:0], _symbols("i", (2,), torch.int64, w)),
    "embedding": lambda w, x: [
        OPAQUE["embedding"](w, x[0, 0], i) for i in (INDEX, _symbols("i", (2,), torch.int64, w))
    ],
    "gather": lambda w, x: [
        of_runs.lookup_of_op("coreai.gather_nd", w, [x[0, 0], _symbols("i", (2, n), torch.int64, w)]) for n in (1, 2)
    ],
    "another gather": lambda w, x: of_runs.lookup_of_op("coreai.gather_nd", w, [x, INDEX]),
    "convolution": lambda w, x: OPAQUE["convolution"](
        w, x, x[:, :, :2, :3], torch.tensor([2.0]), [1], [1, 2], [1], False, [0], 1
    ),
    "transposed": lambda w, x: OPAQUE["convolution"](w, x, x.mT[0, :, None], None, [2], [1], [1], True, [1], 1),
    "layer norm": lambda w, x: LOOKED_INTO["native_layer_norm"](w, x, [4], NUMBERS[:1], NUMBERS[:1], 1e-5),
    "plain layer norm": lambda w, x: LOOKED_INTO["native_layer_norm"](w, x, [4, 4], None, None, 1e-5),
    "group norm": lambda w, x: LOOKED_INTO["native_group_norm"](w, x, NUMBERS[:2], NUMBERS[:2], 1, 2, 16, 2, 1e-5),
    "batch norm": lambda w, x: LOOKED_INTO["_native_batch_norm_legit_no_training"](
        w, x, None, NUMBERS[:2], NUMBERS[1:], torch.ones(2), 0.1, 1e-5
    ),
    "attention": lambda w, x: LOOKED_INTO["scaled_dot_product_attention"](w, x, x, x),
    "causal attention": lambda w, x: LOOKED_INTO["scaled_dot_product_attention"](w, x, x, x, is_causal=True, scale=2.0),
    "masked attention": lambda w, x: LOOKED_INTO["scaled_dot_product_attention"](
        w, x, x, x, torch.arange(16).reshape(4, 4) % 3 > 0
    ),
    "added mask": lambda w, x: LOOKED_INTO["scaled_dot_product_attention"](w, x, x, x, x[0, 0]),
    "attention of groups": lambda w, x: LOOKED_INTO["scaled_dot_product_attention"](
        w, x, x[:, :1], x[:, :1], enable_gqa=True
    ),
}


@table
def parts_of_networks() -> Lines:
    """What ops mean in the worlds of parts of networks."""
    found: dict[str, list[str]] = {}
    for name, function in OF_RUNS.items():
        lines = found[name] = []
        for world in (RunWorld(BITS), RunWorld(REALS), RunWorld(REALS, 1)):
            for dtype in FLOATS:
                lines.append(attempt(function, world, _symbols("x", IMAGE, dtype, world)))
    return found


@table
def types_of_results() -> Lines:
    wide, small = torch.ones((), dtype=torch.float64), INDEX.to(torch.int8)
    given = [torch.ones(2), torch.ones(2).half(), wide, INDEX, FLAGS, small, 1, 2.0, True]
    lines = [attempt(common_dtype, a, b) for a in given for b in given]
    lines += [attempt(common_dtype, a) for a in given] + [attempt(common_dtype, None, a, "text") for a in given]
    return {"dtype_of": lines, "same_codes": _same()}


def _same() -> list[str]:
    lines = []
    for world in (World(BITS), World(REALS)):
        x = _symbols("x", (3,), torch.float32, world)
        given = [
            x, x[:2], NUMBERS, NUMBERS + 1e-7, NUMBERS.half(), NUMBERS * math.nan, INDEX, INDEX.int(), INDEX + 1, FLAGS,
            Symbols(world.numbers(NUMBERS), torch.float32, world), x[:0], NUMBERS[:0], torch.tensor([0.5, 0.0, 3.0]),
        ]  # fmt: skip
        lines += [attempt(same_codes, a, b, world) for a in given for b in given]
    return lines
