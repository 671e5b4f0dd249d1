"""Verifications: true only when they passed, shown as a table, and an error that names the worst output."""

from __future__ import annotations

import io
import json
import math
from typing import Any, get_type_hints

import pytest
import torch
from rich.console import Console
from torch import nn

import patcomp
from patcomp import AIProgram, EvaluationError, MismatchError, TorchConverter, Verification
from patcomp.emit.native import Native
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.expectation import Expectation
from patcomp.evaluate.twin import Twin
from patcomp.evaluate.verification import ModuleError, OutputError

X = torch.tensor([[1.0, -2.0, 3.0]])


class TwoOutputs(nn.Module):
    def __init__(self, shift: float = 0.0, scale: float = 1.0):
        super().__init__()
        self.shift, self.scale = shift, scale

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + self.shift, x * self.scale


@pytest.fixture(scope="module")
def program() -> AIProgram:
    exported = torch.export.export(TwoOutputs(), (X,))
    return TorchConverter().add_exported_program(exported, output_names=["sum", "product"]).to_coreai()


def verified(program: AIProgram, model: Any, inputs: Any = (X,)) -> Verification:
    return program.verify_against(model, inputs, backends=["evaluator"])


def test_it_is_true_only_when_it_passed(program: AIProgram) -> None:
    right, wrong = verified(program, TwoOutputs()), verified(program, TwoOutputs(shift=0.25))
    assert bool(right) is right.passed is True
    assert bool(wrong) is wrong.passed is False
    assert isinstance(right, patcomp.Verification)


@pytest.mark.parametrize(
    ("expected", "given"),
    [(torch.float32, torch.int32), (torch.int64, torch.float32), (torch.bool, torch.int32), (torch.uint8, torch.bool),
     (torch.complex64, torch.float32)],
)  # fmt: skip
def test_elements_of_another_kind_are_no_rounding(expected: torch.dtype, given: torch.dtype) -> None:
    ones = torch.ones(3)
    with pytest.raises(EvaluationError, match=r"output 'y' has elements of type \w+, eager's has \S+"):
        compare("y", "evaluator", ones.to(expected), ones.to(given))
    assert compare("y", "evaluator", ones.to(expected), ones.to(expected)).passed


@pytest.mark.parametrize(
    ("expected", "given"), [(torch.int64, torch.int32), (torch.float64, torch.float32), (torch.bfloat16, torch.float16)]
)
def test_elements_of_another_width_are_compared(expected: torch.dtype, given: torch.dtype) -> None:
    ones = torch.ones(3)
    assert compare("y", "evaluator", ones.to(expected), ones.to(given)).passed


def test_its_type_is_declared() -> None:
    hints = AIProgram.verify_against.__annotations__
    assert hints["return"] == "Verification"
    assert get_type_hints(Verification.check, {"Verification": Verification})["return"] is Verification


def test_check_returns_it_or_names_the_worst_output(program: AIProgram) -> None:
    right = verified(program, TwoOutputs())
    assert right.check() is right
    expected = (
        "output 'product' on the evaluator differs from eager PyTorch by 1.5, which is more than the tolerance of "
        "0.00015; 2 of 2 comparisons failed"
    )
    with pytest.raises(MismatchError) as error:
        verified(program, TwoOutputs(shift=0.25, scale=0.5)).check()
    assert str(error.value) == expected
    assert isinstance(error.value, AssertionError)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_on_one_side_only_fails(program: AIProgram, value: float) -> None:
    wrong = verified(program, lambda x: (torch.full_like(x, value), x))
    assert not wrong
    assert wrong.max_abs == math.inf
    nan, inf = (0, 3) if math.isinf(value) else (3, 0)
    error = wrong.errors[0]
    assert (error.nan, error.inf, error.expected_nan, error.expected_inf) == (0, 0, nan, inf)
    assert f"| -inf | 0, 0 | {nan}, {inf} |" in " ".join(str(wrong).split())
    with pytest.raises(MismatchError, match=r"'sum' .* infinitely, since only one of both is NaN or infinite"):
        wrong.check()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_on_both_sides_passes(program: AIProgram, value: float) -> None:
    assert verified(program, TwoOutputs(), (torch.tensor([[1.0, value, 3.0]]),)).check()


def test_infinities_of_other_signs_and_large_integers_differ() -> None:
    assert compare("y", "evaluator", torch.tensor([math.inf]), torch.tensor([-math.inf])).max_abs == math.inf
    large = torch.tensor([2**60])
    assert compare("y", "evaluator", large, large + 1).max_abs == 1.0
    assert compare("y", "evaluator", large, large.clone()).max_abs == 0.0


def test_tolerances_depend_on_the_type() -> None:
    """What passes in float32 is wrong in float64, and integers must be equal."""
    one, small = torch.ones(3), 5e-5
    assert compare("y", "evaluator", one, one + small).passed
    assert not compare("y", "evaluator", one.double(), one.double() + small).passed
    assert not compare("y", "evaluator", one.int(), one.int() + 1).passed
    assert compare("y", "evaluator", one.int(), one.int() + 1, tolerance=1.0).passed
    assert compare("y", "evaluator", one.half(), one.half() + 2**-9).passed
    assert not compare("y", "evaluator", one.half(), one.half() + 2**-7).passed


class Small(nn.Module):
    """Outputs near 1e-5, 9 % of which a model with another factor gets wrong."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 1e-5 * self.factor


@pytest.mark.parametrize("size", [1e-30, 1e-5, 1.0, 1e6])
def test_the_tolerance_of_a_float_goes_by_its_magnitude(size: float) -> None:
    for dtype, close, far in ((torch.float32, 5e-5, 2e-4), (torch.float64, 5e-9, 2e-8)):
        y = torch.tensor([1.0, -0.5, 0.25], dtype=dtype) * size
        assert compare("y", "evaluator", y, y * (1 + close)).passed
        assert not compare("y", "evaluator", y, y * (1 + far)).passed
        error = compare("y", "evaluator", y, y)
        assert error.tolerance == pytest.approx(error.relative_to * {torch.float32: 1e-4, torch.float64: 1e-8}[dtype])
        assert error.relative_to == pytest.approx(size)
        absolute = compare("y", "evaluator", y, y * (1 + far), tolerance=size)
        assert (absolute.passed, absolute.relative_to) == (True, 0.0)


def test_a_wrong_program_with_small_outputs_fails() -> None:
    program = TorchConverter().add_exported_program(torch.export.export(Small(1.09), (X,))).to_coreai()
    assert verified(program, Small(1.09)).check()
    wrong = verified(program, Small(1.0))
    with pytest.raises(MismatchError, match=r"by 8\.96e-07, which is more than the tolerance of 9\.95e-10"):
        wrong.check()
    assert "|   1.0e-09 |     1.0e-05 |" in str(wrong)


def test_one_large_element_does_not_hide_the_errors_of_small_ones() -> None:
    y = torch.cat([torch.tensor([1e4]), torch.linspace(1e-3, 2e-3, 100), torch.zeros(200)])
    wrong = torch.where(y < 1, y * 1.09, y)
    error = compare("y", "evaluator", y, wrong)
    assert error.max_abs < error.tolerance
    assert error.median_rel == pytest.approx(0.09, rel=0.01)
    with pytest.raises(
        MismatchError, match=r"by 0\.0894 of its median magnitude in the median, which is more than 0\.0001"
    ):
        Verification((error,)).check()
    assert compare("y", "evaluator", y, wrong, tolerance=1.0).passed
    assert compare("y", "evaluator", y, torch.where(y < 1, y * 1.00005, y)).passed


class Cancels(nn.Module):
    """What is left of a sum is rounding, and twice as much in another order."""

    def __init__(self, shift: float = 0.0):
        super().__init__()
        self.shift = shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1000.0) - 1000.0 - x + self.shift


def test_what_is_left_after_cancellation_is_compared_with_a_float64_twin() -> None:
    x = torch.linspace(-1, 1, 101)[None]
    program = TorchConverter().add_exported_program(torch.export.export(Cancels(), (x,))).to_coreai()
    eager, run = Cancels()(x), {"evaluator": lambda values, states: {program.output_names()[0]: -Cancels()(x)}}
    verification = Expectation.of(Cancels(), (x,), program.signature()).verification(run, None).check()
    (error,) = verification.errors
    assert (error.reference, error.tolerance) == ("float64 twin", pytest.approx(3 * float(eager.abs().max()), rel=1e-3))
    assert verification.notes == (
        f"note: output {error.name!r}: rounding moves PyTorch's own result by {float(eager.abs().max()):.1e}, "
        "so the comparison says little; verify with other inputs",
    )
    assert not verified(program, Cancels(shift=1e-3), (x,))


def test_random_numbers_have_no_twin() -> None:
    """A twin would draw other numbers, beside which everything passes."""
    program = TorchConverter().add_exported_program(torch.export.export(TwoOutputs(), (X,))).to_coreai()
    assert not verified(program, lambda x: (x + torch.rand(3), x))
    assert not verified(program, lambda x: (nn.functional.dropout(x, 0.5), x))


@pytest.mark.parametrize("value", [0.0, 0.5, math.nan])
def test_outputs_that_say_little_are_noted(value: float) -> None:
    model = lambda x: (torch.full_like(x, value), x * 1.0)  # noqa: E731
    program = TorchConverter().add_exported_program(torch.export.export(_Calls(model), (X,))).to_coreai()
    verification = verified(program, model).check()
    (note,) = verification.notes
    name = program.output_names()[0]
    assert note == (
        f"note: output {name!r}: every element is {value!r} in PyTorch, so the comparison says little; "
        "verify with other inputs"
    )
    assert str(verification).endswith(note)
    assert json.loads(json.dumps(verification.to_dict()))["errors"][0]["note"]


class _Calls(nn.Module):
    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class Autocast(nn.Module):
    """float32 outputs of half precision: `kind` says how it came about."""

    def __init__(self, kind: str, factor: float = 1.0):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.kind, self.factor = nn.Linear(64, 64), kind, factor
        if kind == "weights":
            self.linear.half()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "autocast":
            with torch.autocast("cpu", dtype=torch.float16):
                y = self.linear(x)
        elif self.kind == "casts":
            y = self.product(x)
        elif self.kind == "branch":
            y = torch.cond(x.sum() > 99, lambda x: x.sin(), self.product, (x,))
        else:
            y = self.linear(x.half())
        return y.float().mean(0) * self.factor

    def product(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x.half(), self.linear.weight.half(), self.linear.bias.half()).float()


@pytest.mark.parametrize("kind", ["autocast", "casts", "weights", "branch"])
def test_float32_outputs_of_half_precision_have_a_twin(kind: str, native: Native) -> None:
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    program = TorchConverter().add_exported_program(torch.export.export(Autocast(kind), (x,))).to_coreai()
    run = {"runtime": lambda values, states: native.run(program.module, values)}
    right = Expectation.of(Autocast(kind), (x,), program.signature()).verification(run, None).check()
    assert {error.element_type for error in right.errors} == {"f32"}
    assert {error.reference for error in right.errors} == {"float32 twin"}
    assert not Expectation.of(Autocast(kind, 1.02), (x,), program.signature()).verification(run, None)


def test_a_float32_output_beside_half_precision_stays_exact() -> None:
    """Only what comes from half precision may be as far from PyTorch as half precision is."""
    model = _Calls(lambda x: (x.half() * 0.3, torch.tanh(x)))
    program = TorchConverter().add_exported_program(torch.export.export(model, (X,))).to_coreai()
    assert verified(program, model)
    assert not verified(program, lambda x: (x.half() * 0.3, torch.tanh(x) * 1.0005))


class Sums(nn.Module):
    """A long sum in half precision; eager PyTorch rounds after each step."""

    def __init__(self, dtype: torch.dtype, shift: float = 0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.1, 1.0, 64).to(dtype))
        self.shift = shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x[:, 0] * self.weight[0]
        for index in range(1, 64):
            total = total + x[:, index] * self.weight[index]
        return total + self.shift


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_compared_with_a_float32_twin(dtype: torch.dtype) -> None:
    x = torch.linspace(-1, 3, 128).reshape(2, 64).to(dtype)
    program = TorchConverter().add_exported_program(torch.export.export(Sums(dtype), (x,))).to_coreai()
    right = verified(program, Sums(dtype), (x,)).check()
    (error,) = right.errors
    twin = Sums(torch.float32)
    twin.weight.data = Sums(dtype).weight.data.float()
    with torch.no_grad():
        expected, eager = twin(x.float()), Sums(dtype)(x).float()
    assert error.reference == "float32 twin"
    assert error.max_abs == pytest.approx(float((program.run(x).float() - expected).abs().max()))
    assert error.tolerance >= 3 * float((eager - expected).abs().max())
    wrong = verified(program, Sums(dtype, shift=float(3 * error.tolerance)), (x,))
    assert not wrong.passed
    with pytest.raises(MismatchError, match="differs from the float32 twin of the model by"):
        wrong.check()
    exact = program.verify_against(Sums(dtype), (x,), backends=["evaluator"], tolerance=0.5)
    assert (exact.errors[0].reference, exact.errors[0].tolerance) == ("eager", 0.5)


def test_what_half_precision_overflows_never_passes() -> None:
    """The twin is finite where eager is infinite: a program that is infinite there, too, is wrong, and one that is
    close to the twin is right."""
    eager, twin = torch.tensor([math.inf, 1.0]).half(), Twin(torch.tensor([6.55e4, 1.0]), torch.float16)

    def error(given: list[float], tolerance: float | None = None) -> OutputError:
        return compare("y", "evaluator", eager, torch.tensor(given).half(), tolerance, lambda: twin)

    assert (error([math.inf, 1.0]).overflows, error([math.inf, 1.0]).passed) == (1, False)
    assert (error([math.nan, 1.0], 1e9).overflows, error([math.nan, 1.0], 1e9).passed) == (1, False)
    near = error([6.5e4, 1.0])
    assert (near.passed, near.reference, near.overflows) == (True, "float32 twin", 0)
    assert not error([6e4, 1.0]).passed
    assert error([6e4, 1.0], 6000.0).passed
    assert not error([6.5e4, 1.0], 10.0).passed


def test_infinities_of_the_model_pass_in_half_precision() -> None:
    """Where the model in float32 is infinite, and where a mask stands for minus infinity, nothing overflowed."""
    eager = torch.tensor([math.inf, -math.inf, 1.0]).half()
    for wide in ([math.inf, -math.inf, 1.0], [math.inf, -3.4e38, 1.0]):
        twin = Twin(torch.tensor(wide), torch.float16)
        assert compare("y", "evaluator", eager, eager.clone(), twin=lambda twin=twin: twin).passed
    masked = Twin(torch.tensor([math.inf, -1e29, 1.0]), torch.float16)
    assert compare("y", "evaluator", eager, eager.clone(), twin=lambda: masked).overflows == 1
    exact = Twin(torch.tensor([1e39, -1e39, 1.0], dtype=torch.float64), torch.float32)  # of a model in float32
    wide_eager = eager.float()
    assert compare("y", "evaluator", wide_eager, wide_eager.clone(), twin=lambda: exact).passed


def test_a_target_that_overflows_is_told_from_the_model_in_float32() -> None:
    eager = torch.tensor([1e5, 1.0])
    error = compare("y", "evaluator", eager, torch.tensor([math.inf, 1.0]).half())
    assert (error.overflows, error.passed) == (1, False)


def test_an_output_without_a_float32_twin_says_so() -> None:
    eager = torch.tensor([math.nan, 1.0]).half()
    error = compare("y", "evaluator", eager, eager.clone())
    assert error.passed
    assert error.note == "1 elements are NaN and 0 infinite, and the model does not run in float32"


def test_a_half_output_far_from_float32_is_told() -> None:
    twin = Twin(torch.tensor([4.0, 1.0]), torch.float16)
    far, near = torch.tensor([3.0, 1.0]).half(), torch.tensor([3.95, 1.0]).half()
    assert compare("y", "evaluator", far, far.clone(), twin=lambda: twin).half_loss == pytest.approx(0.25)
    assert compare("y", "evaluator", near, near.clone(), twin=lambda: twin).half_loss == 0.0


def test_it_becomes_plain_data(program: AIProgram) -> None:
    verification = verified(program, TwoOutputs(shift=0.25))
    data = json.loads(json.dumps(verification.to_dict(), allow_nan=False))
    assert (data["passed"], data["tolerance"], data["departure"]) == (False, None, None)
    assert [(each["name"], each["passed"], each["psnr"]) for each in data["errors"]][1] == ("product", True, "inf")


def test_nothing_compared_is_no_success(program: AIProgram) -> None:
    nothing = Verification((), 1e-4)
    assert not nothing
    with pytest.raises(MismatchError, match="nothing was compared"):
        nothing.check()
    for backends in ([], "evaluator"):
        with pytest.raises(ValueError, match=r"backends must be a list, such as \['evaluator', 'runtime'\]"):
            program.verify_against(TwoOutputs(), (X,), backends=backends)


def test_python_results_are_compared_too() -> None:
    class Counts(nn.Module):
        def __init__(self, count: float):
            super().__init__()
            self.count = count

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, float]:
            return x + 1, self.count * 1

    program = TorchConverter().add_exported_program(torch.export.export(Counts(3), (X,))).to_coreai()
    assert verified(program, Counts(3))
    with pytest.raises(EvaluationError, match="the model returned 4, which was 3 when it was exported"):
        verified(program, Counts(4))
    with pytest.raises(EvaluationError, match="the model returned 2 tensors, but the program has 1 outputs"):
        verified(program, lambda x: (x, x, 3))
    program = TorchConverter().add_exported_program(torch.export.export(Counts(1e20), (X,))).to_coreai()
    assert verified(program, Counts(1e20))  # an equal number, which is another object


def test_it_prints_as_a_plain_table(program: AIProgram, capsys: pytest.CaptureFixture[str]) -> None:
    print(program.verify_against(TwoOutputs(shift=0.25), (X,), backends=["evaluator"], tolerance=1e-4))
    # fmt: off
    assert capsys.readouterr().out == (
        "against eager PyTorch: FAILED at tolerance 0.0001\n"
    "+---------+-----------+--------+---------------+-----------+-------------+---------+------------+-----------+\n"
    "| output  | backend   | result | max abs error | tolerance | relative to | max rel | median rel | PSNR (dB) |\n"
    "+---------+-----------+--------+---------------+-----------+-------------+---------+------------+-----------+\n"
    "| sum     | evaluator | FAILED |       2.5e-01 |   1.0e-04 |             | 7.7e-02 |    1.4e-01 |        22 |\n"
    "| product | evaluator | passed |       0.0e+00 |   1.0e-04 |             | 0.0e+00 |    0.0e+00 |       inf |\n"
    "+---------+-----------+--------+---------------+-----------+-------------+---------+------------+-----------+\n"
    )
    # fmt: on
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, width=100).print(verified(program, TwoOutputs()))
    assert "\x1b[" in stream.getvalue()


def test_a_tensor_is_the_only_input(program: AIProgram) -> None:
    assert verified(program, TwoOutputs(), X)
    assert verified(program, TwoOutputs(), [X])
    two = torch.export.export(_Adds(), (X, X + 1))
    program = TorchConverter().add_exported_program(two).to_coreai()
    message = r"number of tensors among the inputs is 1, but the program takes 2 \(a: 1x3xf32, b: 1x3xf32\)"
    with pytest.raises(EvaluationError, match=message):
        verified(program, _Adds(), X)


class _Adds(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - b


def test_keywords_are_paired_by_name() -> None:
    program = TorchConverter().add_exported_program(torch.export.export(_Adds(), (X, X + 1))).to_coreai()
    assert verified(program, _Adds(), {"b": X, "a": X + 2})


def test_outputs_of_the_runtime_in_types_that_numpy_lacks(native: Native) -> None:
    """The runtime gives bfloat16 as an array of `ml_dtypes`, which PyTorch does not take."""

    class Narrowed(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.bfloat16() * self.scale, x.bfloat16().sum()

    program = TorchConverter().add_exported_program(torch.export.export(Narrowed(2.0), (X,))).to_coreai()

    def run(inputs: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        return native.run(program.module, inputs)

    for scale, passes in ((2.0, True), (3.0, False)):
        expectation = Expectation.of(Narrowed(scale), (X,), program.signature())
        verification = expectation.verification({"runtime": run}, 1e-4)
        assert verification.passed is passes


def test_many_modules_are_printed_in_part() -> None:
    """The wrong ones, in the order of the program; the least exact ones if all are right."""
    x = torch.ones(3)
    errors = [compare(f"v{index}", "evaluator", x, x + (index % 3 == 0) * index / 10) for index in range(100)]
    modules = tuple(ModuleError(f"layers.{i}", f"v{i}", "", error) for i, error in enumerate(errors))
    text = str(Verification(tuple(errors[:1]), modules=modules))
    assert "on the evaluator: 33 of 100 failed, 20 shown" in text
    rows = [line for line in text.splitlines() if line.startswith("| layers.")]
    assert [row.split()[1] for row in rows] == [f"layers.{index}" for index in range(3, 63, 3)]
    right = tuple(each for each in modules if each.error.passed)
    rows = [line for line in str(Verification((), modules=right)).splitlines() if line.startswith("| layers.")]
    assert len(rows) == 20
