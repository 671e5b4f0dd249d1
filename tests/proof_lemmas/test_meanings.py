"""What PyTorch's ops mean on symbols: over the reals what they compute of numbers, to the bit what tells them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (as everyone calls it)

from patcomp.pytorch import pytree
from patcomp_lab.proof.lemmas import LEMMAS
from patcomp_lab.proof.outcome import symbolic
from patcomp_lab.proof.symbols import Symbols, UnreachedError, same_codes
from patcomp_lab.proof.worlds import CodeKind, World

# ---- over the reals ------------------------------------------------------------------------------

X = torch.tensor([[1.0, 2.0, -4.0], [0.5, 3.0, 8.0]])
Y = torch.tensor([[3.0, -2.0, 0.25], [5.0, 1.0, -0.5]])
Z = torch.tensor([[2.0, 1.0, -1.0], [4.0, -3.0, 0.5], [1.0, 1.0, 2.0]])
SQUARES = torch.tensor([[4.0, 9.0, 0.25], [1.0, 16.0, 25.0]])
IMAGE = (torch.arange(32.0) % 7 - 3).reshape(1, 2, 4, 4)
KERNEL = (torch.arange(24.0) % 5 - 2).reshape(3, 2, 2, 2)
WILD = torch.tensor([[torch.inf, 1.0, torch.nan], [-torch.inf, -0.0, 2.0]])

RATIONAL: dict[str, tuple[Callable[..., Any], *tuple[Tensor, ...]]] = {
    "add": (lambda x, y: x + y, X, Y),
    "add with alpha": (lambda x, y: torch.add(x, y, alpha=3), X, Y),
    "add a number": (lambda x: 2 + x + 0.5, X),
    "add and broadcast": (lambda x, y: x[:, :1] + y[0], X, Y),
    "add in place": (lambda x, y: x.clone().add_(y), X, Y),
    "sub": (lambda x, y: x - y, X, Y),
    "sub with alpha": (lambda x, y: torch.sub(x, y, alpha=3), X, Y),
    "rsub": (lambda x: 3 - x, X),
    "rsub with alpha": (lambda x, y: torch.rsub(x, y, alpha=2), X, Y),
    "mul": (lambda x, y: x * y, X, Y),
    "div": (lambda x, y: x / y, X, Y),
    "neg": (lambda x: -x, X),
    "reciprocal": (lambda x: x.reciprocal(), X),
    "square": (lambda x: x.square(), X),
    "abs": (lambda x: (x * 3).abs(), X),
    "abs of infinities": (lambda x: x.abs(), WILD[:, :1]),
    **{f"power {n}": (lambda x, n=n: x**n, SQUARES) for n in (-1, 1, 2, 3, 0.5, -0.5)},
    "powers of two": (lambda x: torch.pow(x, torch.full((2, 3), 2.0)), X),
    "power of a tensor of one": (lambda x: torch.pow(x, torch.tensor(2.0)), X),
    "sqrt": (lambda x: x.sqrt(), SQUARES),
    "rsqrt": (lambda x: x.rsqrt(), SQUARES),
    "sum": (lambda x: x.sum(), X),
    "sum of an axis": (lambda x: x.sum(-1), X),
    "sum that keeps an axis": (lambda x: x.sum([0], keepdim=True), X),
    "sum of nothing": (lambda x: x[:, :0].sum(1), X),
    "sum of axes": (lambda x: x.sum((2, 0)), IMAGE),
    "mean": (lambda x: x.mean(1), X),
    "mean of all": (lambda x: x.mean(), X),
    "prod": (lambda x: x.prod(1), X),
    "prod of nothing": (lambda x: x[:, :0].prod(1), X),
    "var": (lambda x: x.var(1), X),
    "var without a correction": (lambda x: x.var(0, correction=0, keepdim=True), X),
    "cumsum": (lambda x: x.cumsum(0), X),
    "cumsum of the last axis": (lambda x: x.cumsum(-1), X),
    "cumsum of a number": (lambda x: x[0, 0].cumsum(0), X),
    "product": (lambda x, z: x @ z, X, Z),
    "stacked products": (lambda x, z: torch.stack([x, -x]) @ z, X, Z),
    "bmm": (lambda x, z: torch.bmm(x[None], z[None]), X, Z),
    "mv": (lambda z, x: torch.mv(z, x[0]), Z, X),
    "dot": (lambda x, y: torch.dot(x[0], y[1]), X, Y),
    "addmm": (lambda y, x, z: torch.addmm(y, x, z, beta=2, alpha=3), Y, X, Z),
    "addmm of one": (lambda y, x, z: torch.addmm(y, x, z), Y, X, Z),
    "linear": (lambda x, z, y: F.linear(x, z, y[0]), X, Z, Y),
    "conv2d": (lambda x, w: F.conv2d(x, w), IMAGE, KERNEL),
    "conv2d with options": (
        lambda x, w, y: F.conv2d(x, w, y[0], stride=(1, 2), padding=(1, 0), dilation=(2, 1)), IMAGE, KERNEL, Y,
    ),
    "conv2d of one stride": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), IMAGE, KERNEL),
    "conv1d of groups": (lambda x, w: F.conv1d(x[0].mT, w[:, :1, 0].repeat(4, 1, 1)[:8], groups=4), IMAGE, KERNEL),
    "avg_pool1d": (lambda x: F.avg_pool1d(x[0], 2), IMAGE),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (2, 3), stride=1, padding=1), IMAGE),
    "avg_pool2d without its padding": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), IMAGE),
    "avg_pool2d to the end": (lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), IMAGE),
    "avg_pool2d to the end, padded": (lambda x: F.avg_pool2d(x, 2, 3, 1, ceil_mode=True), IMAGE),
    "avg_pool2d by a divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=5), IMAGE),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), IMAGE),
    "adaptive_avg_pool": (lambda x: [F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_avg_pool1d(x[0], 3)], IMAGE),
    "amax": (lambda x: x.amax(1), X),
    "amin that keeps an axis": (lambda x: x.amin(0, keepdim=True), X),
    "amax of NaN": (lambda x: x.amax(1), WILD),
    "max of an axis": (lambda x: x.max(1), X),
    "min of all": (lambda x: x.min(), X),
    "max of two": (lambda x, y: torch.max(x, y), X, Y),
    "max that keeps an axis": (lambda x: x.max(0, keepdim=True), X),
    "sort": (lambda x: x.sort(1, descending=True), X),
    "sort of the first axis": (lambda x: torch.sort(x, dim=0), X),
    "topk": (lambda x: x.topk(2, 1), X),
    "topk of the least": (lambda x: torch.topk(x, 1, dim=0, largest=False), X),
    "cummax": (lambda x: x.cummax(1), X),
    "cummin": (lambda x: x.cummin(0), X),
    "maximum": (lambda x, y: torch.maximum(x, y), X, Y),
    "minimum with NaN": (lambda x, y: torch.minimum(x, y), WILD, Y),
    "relu": (lambda x: x.relu(), X),
    "clamp": (lambda x: x.clamp(-2.0, 2.5), X),
    "clamp from below": (lambda x: x.clamp(min=0.75), X),
    "clamp_max": (lambda x: x.clamp_max(0.75), X),
    "comparisons": (lambda x, y: [x > y, x >= y, x < y, x <= y, x == y, x != y], X, Y.abs()),
    "comparisons with itself": (lambda x: [x > x, x >= x, x < x, x <= x], WILD),
    "comparisons with a number": (lambda x: [x > 2.0, x >= 2, x < 2, x == 2, x.ne(2.0)], X),
    "isnan and isinf": (lambda x: [x.isnan(), x.isinf(), x.logical_not()], WILD),
    "where": (lambda x, y: torch.where(x > 1, x, y), X, Y),
    "where with a number": (lambda x: torch.where(x > 1, x, 2.0), X),
    "casts": (lambda x: [x.half().float() * 2, x.double(), x.bool(), x.bfloat16().half()], X),
    "new tensors": (lambda x: [x + torch.full_like(x, 3.0), x * torch.ones_like(x), x + x.new_zeros(3)], X),
    "new tensors of a shape": (lambda x: [x.new_full((2,), 4.0) - x[0, 0], torch.zeros_like(x) + x], X),
    "moves": (lambda x: [x.flip(1), x.roll(1, 0), torch.cat([x, x]), F.pad(x, (1, 0), value=2.0), x.triu()], X),
    "fills": (lambda x: [x.masked_fill(x > 1, -1.0), x.index_fill(1, torch.tensor([0]), 5.0)], X),
    "addcmul": (lambda x, y: torch.addcmul(x, x, y, value=2), X, Y),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.25), X, Y),
}  # fmt: skip
"""A function of tensors, which gives rational numbers, and its operands."""


def symbols(values: Tensor, world: World) -> Symbols:
    return Symbols(world.numbers(values), values.dtype, world)


def differences(expected: Any, given: Any, world: World) -> list[int]:
    """The numbers of the results that differ."""
    pairs = zip(*map(pytree.tree_leaves, (expected, given)), strict=True)
    return [index for index, (left, right) in enumerate(pairs) if not _are_same(left, right, world)]


def _are_same(expected: Tensor, given: Tensor, world: World) -> bool:
    if not isinstance(given, Symbols):
        return torch.equal(expected, given)
    return given.dtype == expected.dtype and torch.equal(world.numbers(expected), given.codes)


@pytest.mark.parametrize("number", [0, 1])
def test_over_the_reals_symbols_of_numbers_compute_numbers(number: int) -> None:
    wrong = {}
    for name, (function, *operands) in RATIONAL.items():
        world = World(CodeKind.REALS, number, casts_are_exact=True)
        expected = function(*operands)
        if found := differences(expected, function(*(symbols(each, world) for each in operands)), world):
            wrong[name] = found
    assert wrong == {}


# ---- pairs of functions --------------------------------------------------------------------------

BITS, REALS = CodeKind.BITS, CodeKind.REALS
COMMUTES = "x + y = y + x"
WIDER = "a wider type has every number"
Row = tuple[Callable[..., Any], Callable[..., Any], set[CodeKind], set[str]]


def same(one: Callable[..., Any], other: Callable[..., Any], *kinds: CodeKind, by: str = "") -> Row:
    """Two functions of symbols, in which worlds they are equal, and by which lemma they are so to the bit."""
    return one, other, set(kinds), {by} - {""}


PAIRS: dict[str, Row] = {
    "a sum and itself": same(lambda x, y: x + y, lambda x, y: x + y, BITS, REALS),
    "a sum the other way": same(lambda x, y: x + y, lambda x, y: y + x, REALS, by=COMMUTES),
    "a product the other way": same(lambda x, y: x * y, lambda x, y: y * x, REALS, by="x * y = y * x"),
    "a difference the other way": same(lambda x, y: x - y, lambda x, y: y - x),
    "a quotient the other way": same(lambda x, y: x / y, lambda x, y: y / x),
    "a negative difference": same(lambda x, y: x - y, lambda x, y: -(y - x), REALS),
    "a difference as a sum": same(lambda x, y: x - y, lambda x, y: x + -y, REALS, by="x + -y = x - y"),
    "times one": same(lambda x, y: x * 1, lambda x, y: x, REALS, by="x * 1 = x"),
    "one times": same(lambda x, y: torch.ones_like(x) * x, lambda x, y: x, REALS, by="x * 1 = x"),
    "divided by one": same(lambda x, y: x / 1, lambda x, y: x, REALS, by="x / 1 = x"),
    "one divided by": same(lambda x, y: 1 / x, lambda x, y: x),
    "plus minus zero": same(lambda x, y: x + -0.0, lambda x, y: x, REALS, by="x + -0 = x"),
    "minus zero plus": same(lambda x, y: torch.full_like(x, -0.0) + x, lambda x, y: x, REALS, by="x + -0 = x"),
    "plus zero": same(lambda x, y: x + 0.0, lambda x, y: x, REALS),
    "minus zero": same(lambda x, y: x - 0.0, lambda x, y: x, REALS, by="x - 0 = x"),
    "zero minus": same(lambda x, y: 0.0 - x, lambda x, y: -x, REALS),
    "times minus one": same(lambda x, y: x * -1, lambda x, y: -x, REALS, by="x * -1 = -x"),
    "times minus one as it is": same(lambda x, y: x * -1, lambda x, y: x),
    "times two": same(lambda x, y: x * 2, lambda x, y: x + x, REALS),
    "times a tensor that is not all one": same(lambda x, y: x * torch.tensor([1.0, 1.0, 2.0]), lambda x, y: x),
    "twice negative": same(lambda x, y: x.neg().neg(), lambda x, y: x, BITS, REALS),
    "negative": same(lambda x, y: -x, lambda x, y: x),
    "sums in another order": same(lambda x, y: (x + y) + 1, lambda x, y: x + (y + 1), REALS),
    "alpha": same(lambda x, y: torch.add(x, y, alpha=2), lambda x, y: x + 2 * y, REALS),
    "another alpha": same(lambda x, y: torch.add(x, y, alpha=2), lambda x, y: torch.add(x, y, alpha=3)),
    "square": same(lambda x, y: x.square(), lambda x, y: x * x, BITS, REALS),
    "power of two": same(lambda x, y: x**2, lambda x, y: x * x, BITS, REALS),
    "power of three": same(lambda x, y: x**3, lambda x, y: x * x * x, REALS),
    "power of a half": same(lambda x, y: x**0.5, lambda x, y: x.sqrt(), REALS),
    "power of minus a half": same(lambda x, y: x**-0.5, lambda x, y: x.rsqrt(), REALS),
    "powers": same(lambda x, y: x**1.5, lambda x, y: x**2.5),
    "sqrt squared": same(lambda x, y: x.sqrt() * x.sqrt(), lambda x, y: (x * x).sqrt()),
    "rsqrt": same(lambda x, y: x.rsqrt(), lambda x, y: 1 / x.sqrt(), REALS),
    "sigmoid": same(lambda x, y: x.sigmoid(), lambda x, y: 1 / (1 + (-x).exp()), REALS),
    "tanh": same(lambda x, y: x.tanh(), lambda x, y: 2 * (2 * x).sigmoid() - 1, REALS),
    "expm1": same(lambda x, y: x.expm1(), lambda x, y: x.exp() - 1, REALS),
    "log1p": same(lambda x, y: x.log1p(), lambda x, y: (1 + x).log(), REALS),
    "erfc": same(lambda x, y: x.erfc(), lambda x, y: 1 - x.erf(), REALS),
    "silu": same(lambda x, y: F.silu(x), lambda x, y: x * x.sigmoid(), REALS),
    "gelu": same(lambda x, y: F.gelu(x), lambda x, y: x * 0.5 * (1 + (x * 0.5**0.5).erf()), REALS),
    "gelu by tanh": same(
        lambda x, y: F.gelu(x, approximate="tanh"),
        lambda x, y: x * 0.5 * (1 + ((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)).tanh()), REALS,
    ),
    "both gelus": same(lambda x, y: F.gelu(x), lambda x, y: F.gelu(x, approximate="tanh")),
    "softmax": same(lambda x, y: x.softmax(1), lambda x, y: x.exp() / x.exp().sum(1, keepdim=True), REALS),
    "softmax of another axis": same(lambda x, y: x.softmax(1), lambda x, y: x.softmax(0)),
    "softmax and the same": same(lambda x, y: x.softmax(1), lambda x, y: x.mT.softmax(0).mT, BITS, REALS),
    "log_softmax": same(lambda x, y: x.log_softmax(1), lambda x, y: x.softmax(1).log()),
    "log_softmax by sums": same(
        lambda x, y: x.log_softmax(1), lambda x, y: x - x.exp().sum(1, keepdim=True).log(), REALS
    ),
    "other functions": same(lambda x, y: x.sin(), lambda x, y: x.cos()),
    "other options": same(lambda x, y: x.round(decimals=1), lambda x, y: x.round(decimals=2)),
    "atan2 the other way": same(torch.atan2, lambda x, y: torch.atan2(y, x)),
    "hypot the other way": same(torch.hypot, lambda x, y: torch.hypot(y, x), REALS),
    "div rounded": same(lambda x, y: torch.div(x, y, rounding_mode="floor"), lambda x, y: (x / y).floor(), BITS, REALS),
    "div rounded otherwise": same(
        lambda x, y: torch.div(x, y, rounding_mode="floor"), lambda x, y: torch.div(x, y, rounding_mode="trunc")
    ),
    "in 64 bits": same(lambda x, y: x.double().sin().float(), lambda x, y: x.sin()),
    "in 16 bits": same(lambda x, y: x.half().sin().float(), lambda x, y: x.sin()),
    "to 16 bits and back": same(lambda x, y: x.half().float(), lambda x, y: x),
    "to both types of 16 bits": same(lambda x, y: x.half().float(), lambda x, y: x.bfloat16().float()),
    "to 16 bits twice": same(lambda x, y: x.half().float().half(), lambda x, y: x.half(), REALS, by=WIDER),
    "to 64 bits and back": same(lambda x, y: x.double().float(), lambda x, y: x, REALS, by=WIDER),
    "a sum of 16 bits in 32": same(
        lambda x, y: x.half() + y.half(), lambda x, y: (x.half().float() + y.half().float()).half(), BITS
    ),
    "a sum in 16 bits": same(lambda x, y: x.half() + y.half(), lambda x, y: (x + y).half()),
    "a sum of the last axis in another order": same(lambda x, y: x.sum(1), lambda x, y: x.flip(1).sum(1), REALS),
    "sums of other axes": same(lambda x, y: x.sum(0), lambda x, y: x[:, :2].sum(1)),
    "mean": same(lambda x, y: x.mean(1), lambda x, y: x.sum(1) / 3, BITS, REALS),
    "a sum of one": same(lambda x, y: x[:, :1].sum(1), lambda x, y: x[:, 0], BITS, REALS),
    "a sum and a product": same(lambda x, y: x.sum(1), lambda x, y: x.prod(1)),
    "product of matrices": same(lambda x, y: x @ y.mT, lambda x, y: (y @ x.mT).mT, REALS),
    "product by a linear layer": same(lambda x, y: x @ y.mT, F.linear, BITS, REALS),
    "products of other rows": same(lambda x, y: x @ y.mT, lambda x, y: x @ y.flip(0).mT),
    "cumsum": same(lambda x, y: x.cumsum(1)[:, -1], lambda x, y: x.sum(1), REALS),
    "cumprod": same(lambda x, y: x.cumprod(1), lambda x, y: x.mT.cumprod(0).mT, BITS, REALS),
    "cumprod of another axis": same(lambda x, y: x.cumprod(1), lambda x, y: x.cumprod(0)),
    "maximum the other way": same(torch.maximum, lambda x, y: torch.maximum(y, x), BITS, REALS),
    "maximum and minimum": same(torch.maximum, torch.minimum),
    "maximum as a choice": same(torch.maximum, lambda x, y: torch.where(x > y, x, y), REALS),
    "amax in another order": same(lambda x, y: x.amax(1), lambda x, y: x.flip(1).amax(1), BITS, REALS),
    "amax and amin": same(lambda x, y: x.amax(1), lambda x, y: x.amin(1)),
    "relu": same(lambda x, y: x.relu(), lambda x, y: x.clamp(min=0), BITS, REALS),
    "not above": same(lambda x, y: x <= y, lambda x, y: ~(x > y), REALS),
    "turned comparison": same(lambda x, y: x < y, lambda x, y: y > x, BITS, REALS),
    "strict comparison": same(lambda x, y: (x < x) | (x < y), lambda x, y: x <= y, REALS),
}  # fmt: skip


def test_pairs_of_functions() -> None:
    """In worlds of both kinds; a lemma makes a pair equal to the bit only if it is the right one."""
    wrong = []
    for name, (one, other, kinds, by) in PAIRS.items():
        for kind, allowed, is_equal in (
            (REALS, (), REALS in kinds),
            (BITS, (), BITS in kinds),
            (BITS, set(LEMMAS) - by, BITS in kinds),
            (BITS, by, BITS in kinds or bool(by)),
        ):
            answers = []
            for number in range(3):
                world = World(kind, number, allowed=allowed)
                x, y = (symbolic(torch.zeros(16, 3), each, world) for each in "xy")
                answers.append(same_codes(one(x, y), other(x, y), world))
                if by and is_equal and kind is BITS and world.lemmas != by:
                    wrong.append(f"{name}: lemmas {world.lemmas}")
            if all(answers) != is_equal:
                wrong.append(f"{name} {kind.value}, with {sorted(allowed)}: {answers}")
    assert wrong == []


UNREACHED: tuple[Callable[[Tensor], Any], ...] = (
    lambda x: x.argmax(1), lambda x: x.argmin(), lambda x: x.nonzero(), lambda x: x[0, 0].item(), lambda x: x.int(),
    lambda x: x.view(torch.int32), lambda x: x[:, :1].var(1), lambda x: torch.zeros(2, 3).add_(x),
    lambda x: x * torch.ones(3, dtype=torch.complex64),
)  # fmt: skip


@pytest.mark.parametrize("kind", CodeKind)
def test_what_symbols_do_not_reach(kind: CodeKind) -> None:
    world = World(kind)
    for function in UNREACHED:
        with pytest.raises(UnreachedError):
            function(Symbols(world.symbols("x", (2, 3)), torch.float32, world))
