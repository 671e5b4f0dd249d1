"""Questions about open sizes that PyTorch asks while an op is taken apart: none is a reason to refuse a program."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export
from torch.nn.functional import linear

from patcomp import AIProgram, ConversionWarning, EvaluationError, TorchConverter, UnsupportedError
from patcomp.frontend_torch.decomposition.size_questions import SizeQuestions
from patcomp.patterns import RuleSet, decomposition, example
from tests.frontend_torch.models import Function
from tests.helpers.ways import BATCHES, WAYS


class Of(nn.Module):
    """A function, or a layer, as a model."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        result = self.function(x)
        return result[0] if isinstance(result, tuple) else result


VECTOR = torch.linspace(-2, 2, 5)

MODELS: dict[str, tuple[Callable[[], Callable[[Tensor], Any]], tuple[int, ...]]] = {
    "lstm": (lambda: nn.LSTM(5, 3, batch_first=True, bidirectional=True), (2, 2, 5)),
    "gru": (lambda: nn.GRU(5, 3, batch_first=True), (3, 1, 5)),
    "rnn": (lambda: nn.RNN(5, 3, batch_first=True), (2, 1, 5)),
    "two convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3)), (2, 3, 8, 8)),
    "convolution": (lambda: nn.Conv1d(3, 4, 3, stride=2), (2, 3, 9)),
    "transposed": (lambda: nn.ConvTranspose1d(3, 4, 3), (2, 3, 9)),
    "norms": (lambda: nn.Sequential(nn.BatchNorm1d(6), nn.GroupNorm(2, 6), nn.LayerNorm(8)), (2, 6, 8)),
    "pooling": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2)), (2, 3, 8, 8)),
    "softmax": (lambda: nn.Softmax(-1), (2, 3, 8)),
    "vector of weights": (lambda: lambda x: linear(x.softmax(-1), VECTOR), (2, 4, 5)),
    "windows": (lambda: lambda x: x.unfold(-1, 4, 2).transpose(-1, -2).flatten(-2), (2, 3, 24)),
    "the diagonal": (lambda: lambda x: x.diagonal_scatter(x[:, :, 0], 0, 1, 2), (2, 3, 5)),
    "spectra": (lambda: lambda x: torch.stft(x, 8, 4, return_complex=True).abs(), (2, 12)),
}


def converted(exported: ExportedProgram) -> AIProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)
        return TorchConverter().add_exported_program(exported).to_coreai()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MODELS)
def test_every_batch_converts_in_three_ways(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    layer, shape = MODELS[name]
    torch.manual_seed(0)
    model = Of(layer()).eval()
    for batch, dim in BATCHES.items():
        exported = export(model, (torch.randn(shape),), dynamic_shapes=({0: dim()},))
        for way, change in WAYS.items():
            program = converted(change(exported))
            for size in (2, 17) if batch != "from 1" else (1, 2, 17):
                x = torch.randn(size, *shape[1:])
                torch.testing.assert_close(program.run(x), model(x), rtol=1e-4, atol=1e-5, msg=f"{batch} {way} {size}")
    assert "frozen" not in capfd.readouterr().err
    assert not exported.module()(torch.randn(shape)).isnan().any()  # the program is as it was


@torch.library.custom_op("size_questions::f", mutates_args=())
def asks(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] <= 7 else x * 3


@asks.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@decomposition("size_questions.f", examples=[example("4x3xf32")])
def by_size(x: Tensor) -> Tensor:
    "one of two formulas, by the number of rows"
    return x * 2 if x.shape[0] <= 7 else x * 3


@decomposition("size_questions.f", examples=[example("4x3xf32")])
def by_number(x: Tensor) -> Tensor:
    "a formula that makes a number of the rows of the example"
    return x * torch.full((int(x.shape[0]), 1), 2.0)


@decomposition("size_questions.f", examples=[example("4x3xf32")])
def by_layout(x: Tensor) -> Tensor:
    "a formula that asks how the tensor lies in memory, which changes nothing"
    return (x.clone() if x.shape[0] > 5 else x) * 2


def asking(rule: Any, rows: int = 4, high: int | None = None, op: Any = asks) -> AIProgram:
    exported = export(Of(op), (torch.ones(rows, 3),), dynamic_shapes=({0: Dim("n", min=1, max=high)},))
    return TorchConverter(catalog=[RuleSet([rule])]).add_exported_program(exported).to_coreai()


def test_an_answer_that_matters_is_a_guard() -> None:
    with pytest.warns(ConversionWarning, match=r"exported for sizes where n <= 7; program.run checks this"):
        program = asking(by_size)
    x = torch.ones(7, 3)
    assert torch.equal(program.run(x), x * 2)
    with pytest.raises(EvaluationError, match="n <= 7"):
        program.run(torch.ones(8, 3))
    with pytest.warns(ConversionWarning, match=r"exported for sizes where n > 7|8 <= n|n >= 8"):
        assert torch.equal(asking(by_size, rows=9).run(torch.ones(8, 3)), torch.full((8, 3), 3.0))


def test_an_answer_that_the_limits_give_is_not_asked() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asking(by_size, high=7)


def test_an_answer_that_does_not_matter_is_no_guard() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = asking(by_layout, high=7)
    x = torch.ones(7, 3)
    assert torch.equal(program.run(x), x * 2)


def test_a_formula_for_one_size_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="PyTorch decomposes the op for one size of a dynamic dimension only"):
        asking(by_number)


@torch.library.custom_op("size_questions::parity", mutates_args=())
def asks_parity(x: Tensor) -> Tensor:
    return x * (2 if x.shape[0] % 2 == 0 else 3)


@asks_parity.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@decomposition("size_questions.parity", examples=[example("4x3xf32")])
def by_remainder(x: Tensor) -> Tensor:
    "a formula for an even number of rows"
    return x * 2 if x.shape[0] % 2 == 0 else x * 3


@decomposition("size_questions.f", examples=[example("4x3xf32")])
def by_a_large_size(x: Tensor) -> Tensor:
    "one of two formulas, by a number of elements that no small example has"
    return x * 2 if x.numel() <= 3000 else x * 3


@decomposition("size_questions.f", examples=[example("4x3xf32")])
def nearly(x: Tensor) -> Tensor:
    "a formula that differs by a few units only"
    return x * 2 if x.shape[0] <= 7 else x * 2 + 1


@pytest.mark.parametrize(
    ("op", "rule", "guard", "right", "wrong"),
    [(asks_parity, by_remainder, "n % 2 == 0", 6, 7), (asks, by_a_large_size, r"3\*n <= 3000", 1000, 1001)],
)
def test_any_condition_that_matters_is_a_guard(op: Any, rule: Any, guard: str, right: int, wrong: int) -> None:
    with pytest.warns(ConversionWarning, match=f"exported for sizes where {guard}; program.run checks this"):
        program = asking(rule, op=op)
    assert torch.equal(program.run(torch.ones(right, 3)), torch.full((right, 3), 2.0))
    with pytest.raises(EvaluationError, match=guard):
        program.run(torch.ones(wrong, 3))


def test_an_open_length_that_a_condition_makes_one() -> None:
    """The layer is unrolled for the one step of the example; the open length is squeezed, although its type is open."""
    torch.manual_seed(0)
    layer = torch.nn.GRU(1, 3)
    last = Of(lambda x: layer(torch.tensor_split(x, 3, 0)[2])[0])
    with torch.no_grad():
        program = converted(export(last, (torch.randn(4, 2, 1),), dynamic_shapes=({0: Dim.AUTO},)))
        x = torch.randn(4, 2, 1)
        torch.testing.assert_close(program.run(x), last(x))
    with pytest.raises(EvaluationError, match="exported for sizes where"):
        program.run(torch.randn(7, 2, 1))


def test_integers_must_be_equal() -> None:
    x = torch.full((4, 3), 10**6)
    exported = export(Of(asks), (x,), dynamic_shapes=({0: Dim("n", min=1)},))
    with pytest.warns(ConversionWarning, match="exported for sizes where n <= 7"):
        TorchConverter(catalog=[RuleSet([nearly])]).add_exported_program(exported).to_coreai()


def test_a_program_for_smaller_sizes_asks_nothing_new() -> None:
    "the lengths of slices are computed only if that needs no further condition"

    def rows(x: Tensor) -> Any:
        return asks(x.flatten()[:7].unsqueeze(1))

    exported = export(Of(rows), (torch.ones(4, 3),), dynamic_shapes=({1: Dim("n", min=1)},))
    with pytest.warns(ConversionWarning, match="program.run refuses this size"):
        program = TorchConverter(catalog=[RuleSet([by_size])]).add_exported_program(exported).to_coreai()
    x = torch.ones(4, 3)
    assert torch.equal(program.run(x), torch.full((7, 1), 2.0))
    with pytest.raises(EvaluationError, match="size 1 in dimension 1"):
        program.run(torch.ones(4, 1))


def test_an_op_that_needs_known_sizes_says_so_without_symbols() -> None:
    exported = export(Of(torch.linalg.qr), (torch.randn(5, 5),), dynamic_shapes=({0: Dim("n", min=2)},))
    with pytest.raises(UnsupportedError, match="decomposes this op for known sizes only; export with") as raised:
        TorchConverter().add_exported_program(exported)
    assert "Min(" not in str(raised.value)


# ---- which sizes are tried -------------------------------------------------------------------------


@torch.library.custom_op("size_questions::of_two", mutates_args=())
def of_two(x: Tensor, y: Tensor, n: int) -> Tensor:
    return x * y.sum() + n


@of_two.register_fake
def _(x: Tensor, y: Tensor, n: int) -> Tensor:
    return torch.empty_like(x)


N, M = sympy.symbols("n m", integer=True, positive=True)


class Trials:
    """Questions about the op `of_two`, which gets tensors of n and m elements, and the number n.

    Args:
        n, m: the open sizes.
        element: the type of the elements.
        error: how much the trials add to the right result.
        largest: the largest number that they take.
        check: what the program checks of its inputs before.

    Attributes:
        inputs: what was tried.
    """

    def __init__(
        self,
        n: Any,
        m: Any,
        element: torch.dtype = torch.float32,
        *,
        error: float = 0,
        largest: int = 4,
        check: Callable[[Tensor, Tensor], None] = lambda x, y: None,
    ):
        def function(x: Tensor, y: Tensor) -> Tensor:
            check(x, y)
            return of_two(x, y, x.shape[0])  # type: ignore[no-any-return]

        inputs = torch.ones(1000, dtype=element), torch.ones(900, dtype=element)
        exported = export(Function(function), inputs, dynamic_shapes=(({0: n}, {0: m}),))
        (self.node,) = (node for node in exported.graph.nodes if "of_two" in str(node.target))
        self.questions, self.inputs = SizeQuestions(exported), list[tuple[Any, ...]]()
        sizes = (source.meta["val"].shape[0] for source in self.node.all_input_nodes[:2])
        self.symbols = dict(zip((N, M), (size.node.expr for size in sizes), strict=True))
        self.error, self.largest = error, largest

    def __call__(self, *values: Any) -> Tensor:
        self.inputs.append(values)
        if values[0].max() > self.largest:
            raise IndexError("there is no such row")
        return of_two(*values) + self.error

    def of(self, condition: sympy.Basic) -> list[tuple[int, ...]]:
        """Ask about a condition on n and m, and return the sizes that are tried then."""
        self.inputs.clear()
        self.questions.settle(self.node, self, [condition.xreplace(self.symbols)])
        return [(len(x), len(y), n) for x, y, n in self.inputs]


@pytest.mark.parametrize(
    ("condition", "n", "expected"),
    [
        (N <= 7, Dim("n", min=1), [8, 9, 15]),
        (N <= 7, Dim("n", min=1, max=1000), [8, 9, 15]),
        (N <= 999, Dim("n", min=1, max=1000), [1000]),
        (N >= 1000, Dim("n", min=990), [990, 991, 992]),
        (N <= 1010, Dim("n", min=990), [1011, 1023, 1024]),
        (sympy.Ne(N + 1, 1000), Dim("n", min=1), [999]),
        (sympy.Ne(N, 2**20), Dim("n", min=1), [2**20]),
        (N >= 1, Dim("n", min=1), []),
    ],
)
def test_the_smallest_sizes_against_a_condition_are_tried(condition: Any, n: Dim, expected: list[int]) -> None:
    assert Trials(n, Dim("m", min=3)).of(condition) == [(size, 4, size) for size in expected]


@pytest.mark.parametrize("size", [7, 15, 16, 17, 33])
def test_usual_sizes_are_tried_of_each_dimension(size: int) -> None:
    assert Trials(Dim("n", min=1), Dim("m", min=4)).of(sympy.Ne(N, M + size - 4))[0] == (size, 4, size)


def test_of_several_sizes_no_powers_are_tried() -> None:
    assert Trials(Dim("n", min=1), Dim("m", min=4)).of(sympy.Ne(N, M + 60)) == []


def test_only_sizes_that_the_program_takes_are_tried() -> None:
    def even(x: Tensor, y: Tensor) -> None:
        torch._check(x.shape[0] % 2 == 0)

    def different(x: Tensor, y: Tensor) -> None:
        even(x, y)
        torch._check(x.shape[0] != 2 * y.shape[0])

    trials = Trials(Dim.DYNAMIC, Dim.DYNAMIC, check=even)
    assert trials.of(N <= 7) == [(8, 3, 8), (16, 3, 16), (32, 3, 32)]
    assert [m for _, m, _ in trials.of(M <= 7)] == [8, 9, 15]
    trials = Trials(Dim.DYNAMIC, Dim.DYNAMIC, check=different)
    assert trials.of(N <= 7) == [(8, 2, 8), (8, 3, 8), (16, 2, 16)]


def test_what_is_right_is_no_condition_and_what_is_wrong_is_one_once() -> None:
    right, wrong = (Trials(Dim("n", min=1), Dim("m", min=1), error=error) for error in (0, 0.5))
    assert len(right.of(N <= 7)) == 3
    assert list(right.questions.conditions) == []
    assert len(wrong.of(N <= 7)) == 1
    assert list(wrong.questions.conditions) == [(N <= 7).xreplace(wrong.symbols)]
    assert wrong.of(N <= 7) == []


def test_what_is_too_large_to_be_tried_is_a_condition() -> None:
    trials = Trials(Dim("n", min=1), Dim("m", min=1))
    assert trials.of(N <= 2**26) == []
    assert len(trials.questions.conditions) == 1


def test_integers_that_are_tried_may_be_indices() -> None:
    trials = Trials(Dim("n", min=8), Dim("m", min=1), torch.int64)
    trials.of(N >= 9)
    assert trials.inputs[0][0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]


def test_where_other_integers_are_errors_there_are_zeros() -> None:
    trials = Trials(Dim("n", min=8), Dim("m", min=1), torch.int64, largest=3)
    trials.of(N >= 9)
    assert [int(x.max()) for x, _, _ in trials.inputs] == [4, 0]
    assert list(trials.questions.conditions) == []
    never = Trials(Dim("n", min=8), Dim("m", min=1), torch.int64, largest=-1)
    never.of(N >= 9)
    assert len(never.questions.conditions) == 1
