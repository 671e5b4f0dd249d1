"""Weights that several ops read, in several orders: rounding by examples does not make an output worse."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from patcomp import AIProgram, ExternalizeSpec, TorchConverter, mark_for_externalization
from patcomp.composite_ops import GatherMM
from patcomp.compression import CompressionReport, Weight, weights_of
from patcomp.errors import ConversionWarning
from patcomp.evaluate.two_roundings import worse


class Calling(nn.Module):
    """A function of an input and of parameters of some shapes."""

    def __init__(self, function: Callable[..., object], *shapes: tuple[int, ...]):
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.parts = nn.ParameterList(nn.Parameter(torch.randn(shape) / 8) for shape in shapes)

    def forward(self, x: Tensor) -> object:
        return self.function(x, *self.parts)


def converted(model: nn.Module, x: Tensor) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model.eval(), (x,))).to_coreai()


def drawn(*shape: int, seed: int = 1) -> Tensor:
    """Inputs that lie mostly in a quarter of the directions."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(shape[-1] // 4, shape[-1], generator=generator)
    return torch.randn(*shape[:-1], shape[-1] // 4, generator=generator) @ directions / shape[-1] ** 0.5


def errors(program: AIProgram, small: AIProgram, x: Tensor) -> list[float]:
    wanted, made = (each.run({each.input_names()[0]: x}).values() for each in (program, small))
    return [float((one - two).norm() / one.norm()) for one, two in zip(wanted, made, strict=True)]


def loop(x: Tensor, weight: Tensor) -> Tensor:
    from torch._higher_order_ops.cond import cond

    x = cond(x.sum() > 0, lambda x: torch.tanh(x @ weight), lambda x: torch.tanh(x @ weight) / 2, (x,))
    return x @ weight


SQUARE, STACK = (64, 64), (4, 64, 48)

READERS = {
    "weight and left operand": (lambda x, a, b: (x + a @ b, x @ a), (SQUARE, SQUARE), 1),
    "tied and transposed": (lambda x, w: functional.linear(functional.linear(x, w).relu(), w.T), ((64, 64),), 0),
    "tied and not square": (lambda x, w: functional.linear(functional.linear(x, w).relu(), w.T), ((48, 64),), 0),
    "the same axis twice": (lambda x, w: torch.tanh(x @ w) @ w, (SQUARE,), 1),
    "one more axis": (lambda x, w: x.view(4, 16, 64) @ w[None], (SQUARE,), 1),
    "permuted": (lambda x, w: x @ w.permute(1, 0), (SQUARE,), 1),
    "permuted stack": (lambda x, w: x @ w.permute(2, 1, 0), ((48, 64, 4),), 1),
    "both axes of a stack": (lambda x, w: x @ w @ w.mT, (STACK,), 0),
    "lookup and head": (lambda x, w: (x + functional.embedding(torch.arange(64), w)) @ w.T, (SQUARE,), 0),
    "convolution and product": (lambda x, w: functional.conv1d(x.T[None], w[..., None])[0].T @ w.T, (SQUARE,), 0),
    "grouped convolution": (lambda x, w: functional.conv1d(x.T[None], w, groups=4), ((64, 16, 3),), 0),
    "two convolutions": (
        lambda x, w: functional.conv1d(x.T[None], w, padding=1)[..., :60] + functional.conv1d(x.T[None], w, dilation=2),
        ((64, 64, 3),), 1,
    ),
    "convolution forth and back": (
        lambda x, w: functional.conv_transpose1d(functional.conv1d(x.T[None], w).relu(), w), ((64, 64, 3),), 0
    ),
    "convolution of one dimension": (lambda x, w: functional.conv1d(x.T[None], w, padding=1), ((64, 64, 3),), 1),
    "convolution with a turned kernel": (
        lambda x, w: functional.conv2d(x.T[None, :, None], w.mT, padding=1), ((64, 64, 3, 2),), 0
    ),
    "branches": (loop, (SQUARE,), 1),
}  # fmt: skip
"""A function, its weights, and how many of them are rounded by examples."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheme", ["w8", "w4_block32", "pal4"])
@pytest.mark.parametrize("name", READERS)
def test_no_reader_is_spoiled(name: str, scheme: str) -> None:
    function, shapes, by_examples = READERS[name]
    x = drawn(64, 64)
    program = converted(Calling(function, *shapes), x)
    plain, small = (
        program.compress({"scheme": scheme, "threshold": 1}, inputs=(x,), calibrate=calibrate)
        for calibrate in (False, True)
    )
    for error, other in zip(errors(program, small, x), errors(program, plain, x), strict=True):
        assert error <= 1.3 * other
    report = small.compression
    assert report is not None
    assert len(report.weights) == len(shapes)
    assert sum(weight.by_examples for weight in report.weights) == by_examples
    assert not [note for note in report.notes if "does not divide" not in note]


def test_a_slice_keeps_the_whole_weight_in_floats() -> None:
    program = converted(Calling(lambda x, w, v: (x @ w[:, :32], x @ w, x @ v), SQUARE, SQUARE), drawn(8, 64))
    small = program.compress("w8", inputs=(drawn(8, 64),)).compression
    assert small is not None
    assert [weight.name for weight in small.weights] == ["parts.1"]
    assert "coreai.slice reads it" in str(small)


class Step(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SQUARE) / 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(functional.linear(x, self.weight)) @ self.weight


def test_a_graph_that_is_called_twice_with_one_weight() -> None:
    torch.manual_seed(0)
    step, x = Step(), drawn(64, 64)
    model = nn.Sequential(step, nn.Linear(64, 64), step).eval()
    with mark_for_externalization(model, [ExternalizeSpec(Step, "step", [])]):
        exported = torch.export.export(model, (x,))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    plain, small = (program.compress("w4_block32", inputs=(x,), calibrate=calibrate) for calibrate in (False, True))
    assert errors(program, small, x)[0] <= 1.1 * errors(program, plain, x)[0]
    assert small.compression is not None
    assert {weight.name: weight.by_examples for weight in small.compression.weights} == {
        "1.weight": True, "2.weight": False,
    }  # fmt: skip


def weights(function: Callable[..., object], *shapes: tuple[int, ...]) -> list[Weight]:
    return list(weights_of(converted(Calling(function, *shapes), drawn(64, 64)).module))


def test_the_readers_of_a_weight() -> None:
    (tied,) = weights(lambda x, w: functional.linear(functional.linear(x, w), w.T), (48, 64))
    assert sorted((reader.layout.channels, reader.layout.summed) for reader in tied.readers) == [(0, 1), (1, 0)]
    assert not tied.has_one_layout
    (twice,) = weights(lambda x, w: (x @ w) @ w, SQUARE)
    assert [reader.layout.summed for reader in twice.readers] == [0, 0]
    assert twice.has_one_layout
    (stack,) = weights(lambda x, w: x @ w.permute(2, 1, 0), (48, 64, 4))
    assert (stack.layout.kept, stack.layout.summed, stack.kinds) == ((2, 0), 1, ("matmul",))
    (more,) = weights(lambda x, w: x.view(4, 16, 64) @ w[None], SQUARE)
    assert (more.layout.kept, more.layout.summed) == ((1,), 0)


# ---- what the examples spoil is not used -----------------------------------------------------------


def unlike(x: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two products by one weight: its rounding makes up for what the first product's inputs lose, and the inputs of the
    second product lose nothing."""
    return (x @ first) @ second, torch.flip(x, [0]) @ second


SPOILING = {"scheme": "w8", "names": {"parts.0": "sparse90"}}


def test_an_output_that_becomes_worse_takes_the_rounding_back() -> None:
    x = drawn(64, 64)
    program = converted(Calling(unlike, SQUARE, SQUARE), x)
    plain = program.compress(SPOILING)
    with pytest.warns(ConversionWarning, match=r"output \w+: the error is .* with rounding by examples"):
        small = program.compress(SPOILING, inputs=(x,))
    assert small.module.text() == plain.module.text()
    assert errors(program, small, x) == errors(program, plain, x)
    report = small.compression
    assert isinstance(report, CompressionReport)
    (note,) = report.notes
    assert "all weights are rounded to the nearest instead" in note
    assert note in str(report)
    assert report.as_dict()["notes"] == [note]
    assert not any(weight.by_examples for weight in report.weights)


def test_one_of_several_examples_takes_it_back() -> None:
    """The examples count together, and those that are not spoiled do not hide the one that is."""
    x = drawn(64, 64)
    program = converted(Calling(unlike, SQUARE, SQUARE), x)
    with pytest.warns(ConversionWarning, match="all weights are rounded to the nearest instead"):
        small = program.compress(SPOILING, inputs=[(x,), (torch.zeros_like(x),), (x / 10,)])
    assert small.compression is not None
    assert not any(weight.by_examples for weight in small.compression.weights)


class Cache(nn.Module):
    """The second of these products goes into a state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ParameterList(nn.Parameter(torch.randn(SQUARE) / 8) for _ in range(2))
        self.register_buffer("seen", torch.zeros(SQUARE))

    def forward(self, x: Tensor) -> Tensor:
        first, second = unlike(x, *self.parts)
        self.seen.copy_(second)
        return first


def test_a_state_counts_as_an_output_does() -> None:
    x = drawn(64, 64)
    with pytest.warns(ConversionWarning, match=r"\(state b_seen: the error is"):
        converted(Cache(), x).compress(SPOILING, inputs=(x,))


def test_nothing_is_said_where_nothing_is_worse() -> None:
    x = drawn(64, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = converted(nn.Linear(64, 64), x).compress("w4", inputs=(x,)).compression
    assert report is not None
    assert not [note for note in report.notes if "does not divide" not in note]
    assert report.weights[0].by_examples


EXACT = torch.linspace(-1, 1, 10_000)


@pytest.mark.parametrize(
    ("exact", "found", "plain", "is_worse"),
    [
        (EXACT, EXACT * 1.011, EXACT * 1.01, False), (EXACT, EXACT * 1.014, EXACT * 1.01, True),
        (EXACT, EXACT * 1.01, EXACT * 1.5, False), (EXACT, EXACT, EXACT, False),
        (EXACT, EXACT * (1 + 1e-7), EXACT, False), (EXACT, EXACT * (1 + 1e-5), EXACT, True),
        (EXACT[:1], EXACT[:1] * 1.1, EXACT[:1] * 1.01, False), (EXACT[:1], EXACT[:1] * 3, EXACT[:1] * 1.01, True),
        (EXACT[:16], EXACT[:16] * 1.02, EXACT[:16] * 1.01, False),
        (EXACT[:16], EXACT[:16] * 1.03, EXACT[:16] * 1.01, True),
        (EXACT, EXACT * torch.nan, EXACT * 1.5, True), (EXACT * torch.nan, EXACT * torch.nan, EXACT, False),
        (EXACT / 0, EXACT / 0, EXACT / 0, False), (EXACT * 0, EXACT + 1, EXACT * 0 + 0.1, True),
        (EXACT.to(torch.complex64), EXACT * 1.5j, EXACT + 0j, True),
        (torch.arange(10), torch.arange(10), torch.arange(10) + 1, False),
        (torch.arange(10), torch.arange(10).clamp(max=7), torch.arange(10), False),
        (torch.arange(10), torch.arange(10).clamp(max=4), torch.arange(10), True),
        (torch.arange(10), torch.arange(10) + 1, torch.arange(10).clamp(max=7), True),
        (torch.ones(0), torch.ones(0), torch.ones(0), False),
    ],
)  # fmt: skip
def test_worse_beyond_chance(exact: Tensor, found: Tensor, plain: Tensor, is_worse: bool) -> None:
    assert bool(worse([exact], [found], [plain])) is is_worse


def test_all_examples_count_together() -> None:
    one, two = EXACT[:5000], EXACT[5000:]
    assert not worse([one, two], [one * 1.015, two], [one * 1.01, two * 1.01])
    assert "0.02 of the output with rounding by examples, 0.01 without" in worse([one, two], [one * 1.02, two * 1.02],
                                                                                [one * 1.01, two * 1.01])  # fmt: skip
    flags = torch.ones(40, dtype=torch.bool)
    assert worse([flags, flags], [~flags, flags], [flags, flags]).startswith("40 of 80 elements change")


def routed(seed: int) -> tuple[Tensor, Tensor]:
    """Rows that lie in directions of the expert that they choose, and the choice."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(4, (300, 1), generator=generator)
    directions = torch.randn(4, 6, 32, generator=torch.Generator().manual_seed(3))
    return (torch.randn(300, 1, 6, generator=generator) @ directions[chosen[:, 0]]).reshape(300, 1, 1, 32), chosen


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.product, self.weight = GatherMM(), nn.Parameter(torch.randn(4, 32, 64) / 6)

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        return self.product(x, self.weight, rhs_indices=chosen)


def test_an_expert_is_rounded_by_the_rows_that_choose_it() -> None:
    exported = torch.export.export(Experts().eval(), routed(0))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    plain, small = program.compress("w2_block32"), program.compress("w2_block32", inputs=[routed(1), routed(2)])
    wanted, near, close = (each.run(*routed(5)) for each in (program, plain, small))
    assert (close - wanted).norm() < 0.7 * (near - wanted).norm()
