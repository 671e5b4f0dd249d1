"""What the report ranks by: the loss of the outputs by each weight alone, or of the channels of the weight."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import AIProgram, ExternalizeSpec, TorchConverter, mark_for_externalization
from patcomp.compression import CompressionReport, Scheme
from patcomp.compression.measures import decibels, loss_of, relative_error
from patcomp.compression.scheme import Layout
from patcomp.compression.schemes.sparse import Elements
from patcomp.program import examples

ROWS = Layout((0,), 1)


def converted(model: nn.Module, *inputs: Tensor) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model.eval(), inputs)).to_coreai()


def outlying() -> nn.Module:
    """Six equal blocks, and in one of them a column of outliers, as real checkpoints have them."""
    torch.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(6) for m in (nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU())])
    with torch.no_grad():
        model[10].weight[:, 3] *= 60.0
    return model.eval()


X = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))


def report_of(program: AIProgram, config: Any, **options: Any) -> CompressionReport:
    report = program.compress(config, **options).compression
    assert report is not None
    return report


def test_the_report_has_what_an_output_loses_by_each_weight_alone() -> None:
    program = converted(outlying(), X)
    report = report_of(program, "w4", inputs=(X,), calibrate=False)
    assert report.measure == "outputs"
    for weight in report.weights:
        alone = report_of(program, {"names": {weight.name: "w4"}}, inputs=(X,), calibrate=False)
        assert [weight.signal] == pytest.approx(list(alone.output_psnr.values()), abs=0.01)
    assert min(report.weights, key=lambda each: each.signal).name == "10.weight"
    assert "signal: of the outputs for the examples, if this weight alone is compressed" in str(report)
    assert report.as_dict()["measure"] == "outputs"


@pytest.mark.parametrize("options", [{}, {"inputs": (X,), "measure": "weights", "calibrate": False}])
def test_outliers_do_not_hide_what_a_weight_loses(options: dict[str, Any]) -> None:
    report = report_of(converted(outlying(), X), "w4", **options)
    assert report.measure == "weights"
    first, second, *_ = sorted(report.weights, key=lambda each: each.signal)
    assert first.name == "10.weight"
    assert first.signal < second.signal - 15
    assert "signal: of the weight's own channels, which need not be that of the outputs" in str(report)


def test_a_budget_goes_by_the_same_measure() -> None:
    report = report_of(converted(outlying(), X), "w8", bits_per_weight=4.5)
    sizes = {weight.name: weight.after for weight in report.weights}
    assert max(sizes, key=sizes.__getitem__) == "10.weight"


def test_a_measure_has_what_it_needs() -> None:
    program = converted(nn.Linear(64, 64), X)
    with pytest.raises(ValueError, match="measure='outputs' needs inputs="):
        program.compress("w8", measure="outputs")
    with pytest.raises(ValueError, match="measure is 'outputs', 'weights' or None, got 'psnr'"):
        program.compress("w8", measure="psnr")  # type: ignore[arg-type]


def test_a_very_large_program_is_measured_by_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    program = converted(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), X)
    monkeypatch.setattr(examples, "_MOST_WORK", 2 * 2 * 4096)
    assert report_of(program, "w8", inputs=(X,)).measure == "outputs"
    monkeypatch.setattr(examples, "_MOST_WORK", 2 * 2 * 4096 - 1)
    assert report_of(program, "w8", inputs=(X,)).measure == "weights"
    assert report_of(program, "w8", inputs=(X,), measure="outputs").measure == "outputs"


@pytest.mark.parametrize(("work", "count"), [(2**14, 1), (2**14 - 1, 1), (3 * 2**14 + 1, 3), (2**20, 4), (0, 1)])
def test_larger_programs_are_measured_on_fewer_examples(work: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = converted(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), X)  # 2 weights that read 2^13 elements
    monkeypatch.setattr(examples, "_WORK", work)
    given = examples.Examples.of(program, [(X / each,) for each in range(1, 7)], "main")
    signal = given.signal(always=False)
    assert signal is not None
    assert len(signal.__self__.runs) == count  # type: ignore[attr-defined]


def test_the_worst_of_several_examples_counts() -> None:
    program = converted(nn.Linear(64, 64), X)
    several = report_of(program, "w4", inputs=[(X,), (X.flip(0) * 3,), (X.cos(),)], calibrate=False).weights[0].signal
    alone = [report_of(program, "w4", inputs=(each,), calibrate=False).weights[0].signal
             for each in (X, X.flip(0) * 3, X.cos())]  # fmt: skip
    assert several == min(alone)


# ---- the run of the rest --------------------------------------------------------------------------


class Several(nn.Module):
    """Two outputs, a state that is read and written, a graph that is called twice, branches, and a shared weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.inner, self.last = nn.Linear(64, 64), Inner(), nn.Linear(64, 64)
        self.register_buffer("seen", torch.zeros(8, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        from torch._higher_order_ops.cond import cond

        x = self.inner(torch.tanh(self.first(x)))
        self.seen.add_(x)
        y = cond(x.sum() > 0, lambda x: self.last(x), lambda x: self.last(x) / 2, (x,))
        return self.inner(y + self.seen), self.first(y)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(x))


@pytest.mark.parametrize("externalized", [False, True])
def test_states_graphs_and_branches(externalized: bool) -> None:
    """The rest of a run gives what a whole run gives, in the order of the program and in any other."""
    model = Several().eval()
    with mark_for_externalization(model, [ExternalizeSpec(Inner, "inner", [])] if externalized else []):
        program = TorchConverter().add_exported_program(torch.export.export(model, (X,))).to_coreai()
    assert ("coreai.invoke" in str(program)) == externalized
    report = report_of(program, "w4", inputs=(X,), calibrate=False)
    assert len(report.weights) == 3
    for weight in report.weights:
        alone = report_of(program, {"names": {weight.name: "w4"}}, inputs=(X,), calibrate=False)
        assert weight.signal == pytest.approx(min(alone.output_psnr.values()), abs=0.01)
    given = examples.Examples.of(program, (X,), "main")
    signal = examples.Alone(given, 1).signal
    weights = list(examples.weights_of(program.module))
    found = {}
    for weight in [*reversed(weights), *weights]:
        values = examples.to_tensor(dict(model.named_parameters())[weight.name].detach()).numpy() * 0.9
        found.setdefault(weight.name, []).append(signal(weight, Elements(values)))
    assert all(first == second for first, second in found.values())


def test_weights_of_another_entry_point_are_not_known() -> None:
    converter = TorchConverter()
    for name in ("main", "other"):
        torch.manual_seed(len(name))
        converter.add_exported_program(torch.export.export(nn.Linear(64, 64), (X,)), entrypoint_name=name)
    program = converter.to_coreai()
    report = report_of(program, "w4", inputs=(X,))
    assert [weight.signal is None for weight in report.weights] == [False, True]
    assert report_of(program, "w8", bits_per_weight=4.5, inputs=(X,)).after <= 4.5 * 2 * 4096 / 8


# ---- the error of a weight ------------------------------------------------------------------------


def error_of(exact: Any, made: Any, layout: Layout = ROWS) -> float:
    return relative_error(np.float32(exact), Elements(np.float32(made)), layout)


def test_the_relative_error() -> None:
    assert error_of([[3, 4], [6, 8]], [[3, 3], [6, 8]]) == pytest.approx(1 / 50)  # rows: 1/25 and 0
    assert error_of([[3, 4], [6, 8]], [[3, 4], [6, 8]]) == 0
    assert error_of([[100, 1], [100, 1]], [[100, 0], [100, 0]]) == pytest.approx(0.5)  # half of the columns are lost
    assert error_of([[100, 100], [1, 1]], [[100, 100], [0, 0]]) == pytest.approx(0.5)  # half of the rows are
    assert error_of([[1, 1], [1e-9, 0]], [[1, 1], [0.5, 0]]) == pytest.approx(0.5)  # a lost one counts 1
    assert error_of([[2, 2], [0, 0]], [[2, 2], [1, 0]]) == pytest.approx(1 / 8)  # of none, by the mean length
    assert error_of(np.zeros((2, 2)), np.zeros((2, 2))) == 0
    assert error_of(np.zeros((0, 2)), np.zeros((0, 2))) == 0


@pytest.mark.parametrize(("kept", "summed"), [((0, 2), 1), ((0, 1), 2), ((1, 0), 2)])
def test_channels_of_stacks(kept: tuple[int, ...], summed: int) -> None:
    """The channels of each matrix count apart."""
    random = np.random.default_rng(0)
    exact = random.standard_normal((3, 4, 5)).astype(np.float32)
    made = exact + 0.1 * random.standard_normal(exact.shape).astype(np.float32)
    matrices, close = (Layout(kept, summed).matrices(each) for each in (exact, made))
    wanted = max(
        np.mean(((matrices - close) ** 2).sum(axis) / (matrices**2).sum(axis)) for axis in (1, 2)
    )  # fmt: skip
    assert error_of(exact, made, Layout(kept, summed)) == pytest.approx(wanted, rel=1e-5)


def test_kernels_belong_to_both_channels() -> None:
    exact = np.ones((2, 3, 5, 5))
    made = exact.copy()
    made[0, 0] = 0
    assert error_of(exact, made) == pytest.approx((1 / 3) / 2)


def test_decibels() -> None:
    assert decibels(0.01) == pytest.approx(20)
    assert decibels(0) == math.inf
    assert loss_of(20) == pytest.approx(0.01)
    assert loss_of(math.inf) == 0
    assert loss_of(-math.inf) == 1e30
    exact = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    stored = Scheme.parse("w8").store(exact, ROWS, np.dtype("f4"))
    assert decibels(relative_error(exact, stored, ROWS)) > 38
