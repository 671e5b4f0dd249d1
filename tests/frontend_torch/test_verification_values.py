"""The parts of a verification one by one: the model's numbers, twins, and values inside a program."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import AIProgram, TorchConverter
from patcomp.authoring import Aten
from patcomp.errors import EvaluationError
from patcomp.evaluate.expectation import Expectation, Run
from patcomp.evaluate.machine import Machine
from patcomp.evaluate.partial_sums import PartialSumMachine
from patcomp.evaluate.twin import Twin, Wider, twins_of
from patcomp.evaluate.verification import OutputError
from patcomp.ir import coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, RuleSet, normalization
from tests.catalog.recovering import Calling
from tests.helpers.programs import program

ATEN = torch.ops.aten


def converted(model: nn.Module, *inputs: Tensor) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model, inputs)).to_coreai()


def on_evaluator(program: AIProgram, model: Any, *inputs: Tensor, **options: Any) -> Any:
    return program.verify_against(model, inputs, backends=["evaluator"], **options)


def errors_of(model: Any, inputs: tuple[Tensor, ...], outputs: dict[str, Tensor]) -> dict[str, OutputError]:
    """The errors of given outputs of a model, by the names of its program."""
    expectation = Expectation.of(model, inputs, converted(model, *inputs).signature())
    return {each.name: each for each in expectation.errors("evaluator", lambda *given: outputs, None)}


# ---- the model's own numbers ------------------------------------------------------------------------


def test_a_model_that_writes_to_its_input_leaves_it() -> None:
    model, x = Calling(lambda x: x.add_(1.0) * 2), torch.ones(3)
    expectation = Expectation.of(model, (x,), converted(model, x.clone()).signature())
    assert torch.equal(x, torch.ones(3))
    assert all(torch.equal(value, torch.ones(3)) for value in expectation.given.values())
    assert any(torch.equal(value, torch.full((3,), 4.0)) for value in expectation.references.values())


class Draws(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand(3)


def test_noise_is_given_by_name_or_drawn() -> None:
    x, noise, other = torch.ones(3), torch.tensor([0.25, 0.5, 0.75]), torch.zeros(3)
    exported = torch.export.export(Draws(), (x,))
    signature = TorchConverter(random="inputs").add_exported_program(exported).to_coreai().signature()
    for inputs, wanted in (({"x": x, "rand_noise": noise}, noise), ((x,), other)):
        given = Expectation.of(Draws(), inputs, signature, lambda values: {"rand_noise": other} | dict(values))
        assert torch.equal(given.given["rand_noise"], wanted)
        assert [value.tolist() for value in given.references.values()] == [(x + wanted).tolist()]
    assert {"x", "rand_noise"} == given.given.keys()


def test_a_program_that_no_model_was_converted_to_takes_names_from_its_outputs() -> None:
    model, x = nn.BatchNorm1d(3).eval(), torch.randn(2, 3)
    signature = replace(converted(model, x).signature(), call=None)
    expectation = Expectation.of(model, (x,), signature)
    assert [*expectation.references] == [spec.name for spec in signature.outputs]
    assert torch.equal(*expectation.references.values(), model(x))
    assert expectation.states == {}
    with pytest.raises(EvaluationError, match="the model returned 2 tensors, but the program has 1 outputs"):
        Expectation.of(lambda x: (x, x, 3), (x,), signature)


class Adds(nn.Module):
    total: Tensor

    def __init__(self, step: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((3,), 5.0))
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x * self.step)
        return self.total * 2


def test_a_buffer_is_compared_before_and_after_the_call() -> None:
    model, x = Adds(), torch.ones(3)
    program = converted(model, x)
    expectation = Expectation.of(model, (x,), program.signature())
    assert torch.equal(model.total, torch.full((3,), 5.0))
    assert [value.tolist() for value in expectation.states.values()] == [[5.0] * 3]
    (state,) = expectation.states
    assert torch.equal(expectation.references[state], torch.full((3,), 6.0))
    assert on_evaluator(program, model, x)
    wrong = on_evaluator(program, Adds(2.0), x)
    assert {error.name: error.passed for error in wrong.errors}[state] is False


class Picks(nn.Module):
    """Integers and floats of a product, in half precision if `kind` says so."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 512)
        if kind == "weights":
            self.linear.half()

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.to(self.linear.weight.dtype)).sort(-1).indices


@pytest.mark.parametrize("kind", ["weights", "none"])
def test_integers_that_weights_of_half_precision_change_are_counted(kind: str) -> None:
    """Neither the input nor the output is of half precision."""
    model, x = Picks(kind), torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    (name,) = converted(model, x).output_names()
    (error,) = errors_of(model, (x,), {name: model(x).int()}).values()
    assert (error.half_loss > 0.0) is (kind == "weights")
    if kind == "weights":
        wide = Picks("none")
        wide.load_state_dict({key: value.float() for key, value in model.state_dict().items()})
        assert error.half_loss == pytest.approx(float((wide(x) != model(x)).double().mean()))


def test_an_input_of_half_precision_that_is_not_read_changes_no_integers() -> None:
    """The twin of what is computed in float32 is one in float64, which says nothing about half precision."""
    module = program({"x": "2xf32", "h": "2xf16"}, lambda x, h: coreai.cast(coreai.broadcasting_add(x, 1e8), "si32"))
    inputs = {"x": torch.ones(2), "h": torch.ones(2).half()}
    expectation = Expectation.of_program(module, inputs, {}, "main")
    assert expectation.is_half
    assert not torch.equal(expectation.twins["y0"].value, expectation.references["y0"])
    (error,) = expectation.errors("evaluator", lambda *given: dict(expectation.references), None)
    assert error.half_loss == 0.0


class Attends(nn.Module):
    """Attention refuses operands of different types before any of its ops runs."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Parameter(torch.linspace(-1, 1, 24).reshape(1, 1, 3, 8).half())

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, self.key, self.key)


def test_weights_are_widened_before_the_model_runs() -> None:
    model, x = Attends(), torch.linspace(-2, 2, 16).reshape(1, 1, 2, 8).half()
    (twin,) = Expectation.of(model, (x,), converted(model, x).signature()).twins.values()
    key = model.key.float()
    torch.testing.assert_close(twin.value, nn.functional.scaled_dot_product_attention(x.float(), key, key))


ONES = torch.ones(3).half()


@pytest.mark.parametrize(
    ("backend", "tolerance", "evaluated", "rounded", "passed"),
    [
        ("runtime", None, ONES, ONES + 1, True),
        ("runtime", None, ONES, ONES, False),
        ("runtime", None, ONES + 1, ONES + 1, False),
        ("runtime", 0.1, ONES, ONES + 1, False),
        ("evaluator", None, ONES, ONES + 1, False),
    ],
)
def test_partial_sums_explain_one_of_two_outputs(
    backend: str, tolerance: float | None, evaluated: Tensor, rounded: Tensor, passed: bool
) -> None:
    def evaluate(machine: type[Machine]) -> Run:
        made = rounded if issubclass(machine, PartialSumMachine) else evaluated
        return lambda values, states: {"a": ONES, "b": made}

    expectation = Expectation(torch.sin, {}, {}, {"a": ONES, "b": ONES}, dict)
    runs: dict[str, Run] = {backend: lambda values, states: {"a": ONES, "b": ONES + 1}}
    first, second = expectation.verification(runs, tolerance, evaluate).errors
    assert (first.passed, first.reference, first.partial_sums) == (True, "eager", 0.0)
    assert (second.passed, second.partial_sums) == (passed, 1.0 if passed else 0.0)


def test_what_passes_is_not_explained() -> None:
    def evaluate(machine: type[Machine]) -> Run:
        raise AssertionError

    expectation = Expectation(torch.sin, {}, {}, {"a": ONES}, dict)
    (error,) = expectation.verification({"runtime": lambda values, states: {"a": ONES}}, None, evaluate).errors
    assert error.passed


def test_outputs_may_be_tensors_arrays_and_numbers() -> None:
    references = {"a": torch.ones(2).bfloat16(), "b": torch.ones(2), "c": torch.tensor(3), "state": torch.ones(2)}
    expectation = Expectation(torch.sin, {"x": ONES}, {"state": torch.zeros(2)}, references, dict)
    made = {"a": torch.ones(2).bfloat16(), "b": np.ones(2, np.float32), "c": 3, "more": 4}

    def run(values: Any, states: dict[str, Any]) -> dict[str, Any]:
        assert (values, states) == ({"x": ONES}, {"state": expectation.states["state"]})
        states["state"] = np.ones(2, np.float32)
        return made

    errors = expectation.errors("evaluator", run, None)
    assert [(error.name, error.passed) for error in errors] == [(name, True) for name in references]


@pytest.mark.parametrize("as_module", [True, False])
def test_functions_have_twins_too(as_module: bool) -> None:
    def function(x: Tensor) -> tuple[Tensor, int]:
        return x * 0.1, 3

    x = torch.ones(3).half()
    signature = converted(Calling(function), x).signature()
    expectation = Expectation.of(Calling(function) if as_module else function, (x,), signature)
    (twin,) = expectation.twins.values()
    assert twin.value.tolist() == pytest.approx([0.1] * 3, rel=1e-6)
    assert [value.dtype for value in expectation.given.values()] == [torch.float16]


def test_a_value_may_be_returned_twice() -> None:
    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x + 1
        return y, y

    model, x = Calling(twice), torch.ones(3)
    signature = converted(model, x).signature()
    assert signature.call is not None
    assert len(signature.call.results) == 2
    references = Expectation.of(model, (x,), signature).references
    assert {name: value.tolist() for name, value in references.items()} == dict.fromkeys(
        (spec.name for spec in signature.outputs), [2.0] * 3
    )


def test_a_function_has_no_buffers() -> None:
    """So the states of the program are not compared."""
    x = torch.ones(3)
    expectation = Expectation.of(lambda x: x * 12, (x,), converted(Adds(), x).signature())
    assert expectation.states == {}
    assert [value.tolist() for value in expectation.references.values()] == [[12.0] * 3]


class InHalf(nn.Module):
    """A model that does not run in float32."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float16:
            raise TypeError
        return x.argsort()


def test_integers_without_a_twin_have_no_known_loss() -> None:
    model, x = InHalf(), torch.tensor([3.0, 1.0, 2.0]).half()
    (name,) = converted(model, x).output_names()
    (error,) = errors_of(model, (x,), {name: model(x).int()}).values()
    assert (error.passed, error.half_loss) == (True, 0.0)


HALVES, SORTED = torch.ones(4).half(), torch.tensor([0, 1, 2, 3])
CHOSEN: dict[str, tuple[Tensor, Twin | None, dict[str, Any], float]] = {
    "another choice": (SORTED, Twin(torch.tensor([0, 1, 3, 2]), torch.float16), {"x": HALVES}, 0.5),
    "the same choice": (SORTED, Twin(SORTED.clone(), torch.float16), {"x": HALVES}, 0.0),
    "bools": (SORTED > 0, Twin(SORTED > 2, torch.bfloat16), {"x": HALVES}, 0.5),
    "beside numbers": (SORTED, Twin(SORTED + 1, torch.float16), {"n": 3, "x": HALVES}, 1.0),
    "floats": (SORTED.float(), Twin(SORTED + 1.0, torch.float32), {"x": HALVES}, 0.0),
    "complex numbers": (SORTED + 1j, Twin(SORTED + 1.0 + 1j, torch.float32), {"x": HALVES}, 0.0),
    "nothing": (SORTED[:0], Twin(SORTED[:0], torch.float16), {"x": HALVES}, 0.0),
    "of another shape": (SORTED, Twin(SORTED[:3], torch.float16), {"x": HALVES}, 0.0),
    "no twin": (SORTED, None, {"x": HALVES}, 0.0),
    "in float32": (SORTED, Twin(SORTED + 1, torch.float16), {"x": SORTED.float()}, 0.0),
    "beside float64": (SORTED, Twin(SORTED + 1, torch.float32), {"x": HALVES}, 0.0),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_the_share_of_integers_that_half_precision_changes(name: str) -> None:
    reference, twin, given, share = CHOSEN[name]
    twins = {} if twin is None else {"y": twin}
    expectation = Expectation(torch.sin, given, {}, {"y": reference}, lambda: twins)
    (error,) = expectation.errors("evaluator", lambda *_: {"y": reference.clone()}, None)
    assert (error.passed, error.half_loss) == (True, share)


@pytest.mark.parametrize(
    ("x", "to", "of"),
    [
        (torch.ones(3).bfloat16(), torch.float32, torch.bfloat16),
        (torch.arange(3), torch.bfloat16, torch.bfloat16),
        (torch.arange(3), torch.int32, torch.float16),
        (torch.ones(3).half(), torch.bfloat16, torch.float16),
    ],
)
def test_the_type_beside_which_a_float32_model_is_a_twin(x: Tensor, to: torch.dtype, of: torch.dtype) -> None:
    """That of the inputs, or of the outputs; float16 by default. The model gets its inputs in float32."""
    seen: list[torch.dtype] = []

    def wide(x: Tensor) -> Tensor:
        seen.append(x.dtype)
        return x + 1.0

    model = Calling(lambda x: (x * 2).to(to))
    expectation = Expectation.of(model, (x,), converted(model, x).signature(), float32_model=wide)
    (twin,) = expectation.twins.values()
    assert (twin.of, twin.value.tolist()) == (of, [each + 1.0 for each in x.tolist()])
    assert seen == [torch.float32 if x.is_floating_point() else torch.int64]


# ---- twins --------------------------------------------------------------------------------------------


def of_half(kind: str) -> Callable[[Tensor], Tensor]:
    """A product of half precision in a model with inputs and outputs in float32."""
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))

    def product(x: Tensor) -> Tensor:
        return (x.to(torch.float16) @ weight.to(torch.float16)).to(torch.float32).cumsum(-1)

    if kind == "branch":
        return lambda x: torch.cond(x.sum() > 99, lambda x: x.sin(), product, (x,))
    if kind == "other branch":
        return lambda x: torch.cond(x.sum() < 99, product, lambda x: x.sin(), (x,))
    return product


@pytest.mark.parametrize("kind", ["casts", "branch", "other branch"])
def test_the_twin_of_a_model_of_half_precision_computes_in_float32(kind: str) -> None:
    model, x = Calling(of_half(kind)), torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    expectation = Expectation.of(model, (x,), converted(model, x).signature())
    (twin,) = expectation.twins.values()
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    assert (twin.of, twin.name, twin.value.dtype) == (torch.float16, "float32 twin", torch.float32)
    torch.testing.assert_close(twin.value, (x @ weight).cumsum(-1))
    assert not torch.equal(twin.value, next(iter(expectation.references.values())))


def test_operators_without_keywords_are_widened() -> None:
    wider = Wider({torch.float16: torch.float32})
    made = wider.__torch_dispatch__(ATEN.add.Tensor, (), (torch.ones(2).half(), 2**-12))
    assert (made.dtype, made.tolist()) == (torch.float32, [1 + 2**-12] * 2)


def test_a_loop_has_a_twin() -> None:
    def doubled(wider: Wider) -> dict[str, Tensor]:
        with wider:
            return dict(enumerate(torch.ops.higher_order.while_loop(  # type: ignore[arg-type]
                lambda i, x: i < 3, lambda i, x: (i + 1, x * 0.1), (torch.tensor(0), torch.ones(2).half()), ()
            )))  # fmt: skip

    twins = twins_of(doubled)
    assert twins[1].value.tolist() == pytest.approx([1e-3, 1e-3], rel=1e-6)  # type: ignore[index]


def test_other_operators_with_bodies_have_no_twin() -> None:
    """A scan has as many operands as a loop or a branch, and would run as one."""
    operands = (lambda i: i < 3, lambda i: (i + 1,), (torch.tensor(0),), ())
    for kind in (torch.ops.higher_order.while_loop, torch.ops.higher_order.scan):
        with nullcontext() if "while" in kind.name() else pytest.raises(NotImplementedError, match="scan has no twin"):
            assert Wider({}).__torch_dispatch__(kind, (), operands) == (3,)


def test_complex_numbers_of_half_precision_have_a_float32_twin() -> None:
    def run(wider: Wider) -> dict[str, Tensor]:
        with wider:
            y = torch.view_as_complex(torch.full((2, 2), 0.1).half()) * 1
            return {"y": torch.view_as_real(y)}

    twin = twins_of(run)["y"]
    assert (twin.of, twin.name, twin.value.dtype) == (torch.float16, "float32 twin", torch.float32)


def test_a_model_that_checks_its_types_has_no_twin() -> None:
    """Nor one in a type that the check does not know: float64 would not say what half precision loses."""

    def only_half(wider: Wider) -> dict[str, Tensor]:
        with wider:
            y = torch.ones(2).half() + 1
        if y.dtype == torch.float32:
            raise TypeError
        return {"y": y}

    assert twins_of(only_half) == {}


def test_the_bits_of_a_float_have_no_twin() -> None:
    def run(dtype: torch.dtype) -> Callable[[Wider], dict[str, Tensor]]:
        def bits(wider: Wider) -> dict[str, Tensor]:
            x = torch.ones(2)
            with wider:
                return {"y": (x * 0.3).view(dtype).clone()}

        return bits

    assert twins_of(run(torch.int32)) == {}
    assert twins_of(lambda wider: {"y": wider.widened(torch.ones(2)).view(torch.float64)})["y"].of == torch.float32


def test_the_narrowest_type_decides() -> None:
    def run(wider: Wider) -> dict[str, Tensor]:
        with wider:
            return {"y": torch.ones(2) * 0.1 + torch.ones(2, dtype=torch.bfloat16) + torch.ones(2).half()}

    assert twins_of(run)["y"].of == torch.bfloat16
    assert twins_of(lambda wider: {"y": torch.ones(2, dtype=torch.int32)}) == {}


# ---- values inside a program --------------------------------------------------------------------------------


def test_a_given_tolerance_holds_for_small_and_exact_inner_values() -> None:
    """It grows with the magnitude of values that differ, and changes neither for equal values nor for small ones."""

    class Layers(nn.Module):
        def __init__(self, error: float) -> None:
            super().__init__()
            self.large, self.small = Calling(lambda x: x * 1000.0 + error), Calling(lambda x: x * 1e-3)

        def forward(self, x: Tensor) -> Tensor:
            return self.small(self.large(x) - 1000.0)

    x = torch.linspace(0.5, 1.0, 8)
    program = converted(Layers(0.0), x)
    found = on_evaluator(program, Layers(0.0), x, by="module", tolerance=1e-4).check()
    tolerances = {each.module: each.error.tolerance for each in found.modules}
    assert tolerances == {"large": pytest.approx(1e-4), "small": pytest.approx(1e-4)}


def test_custom_operators_before_lowering_run_by_pytorch() -> None:
    """Of a tensor, a list of tensors and numbers; the search for a departure passes through the import."""
    library = torch.library.Library("verified", "DEF")
    library.define("joined(Tensor[] xs, float by, SymInt n) -> (Tensor, Tensor)")
    library.impl("joined", lambda xs, by, n: (torch.cat(xs) * by, xs[0] * n), "CompositeExplicitAutograd")

    class Joins(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a, b = torch.ops.verified.joined([x, x + 1], 2.0, 3)
            return a[: x.shape[0]] + b

    converter = TorchConverter()

    @converter.register_torch_lowering("verified::joined")
    def lower_joined(values_map: Any, node: Any, loc: Any) -> Any:
        first, second = (values_map[each.name] for each in node.args[0])
        joined = coreai.concat(0, [first, second], loc=loc)
        return coreai.broadcasting_mul(joined, 2.5, loc=loc), coreai.broadcasting_mul(first, 3.0, loc=loc)

    x = torch.linspace(1, 2, 4)
    program = converter.add_exported_program(torch.export.export(Joins(), (x,))).to_coreai()
    departure = on_evaluator(program, Joins(), x, by="module").departure
    assert departure is not None
    assert (departure.stage, departure.rule) == ("lower", "verified.joined")


@normalization("aten.sub.Tensor", name="a wrong sub")
def wrong_sub(op: OpView, aten: Aten) -> Value:
    op.ignore("alpha", because="this rule is wrong")
    return aten.add.Tensor(op.result, op["self"], op["other"])


def test_a_wrong_rule_beside_a_custom_operator_is_found() -> None:
    """Which runs with the sizes that it gets as integers."""
    library = torch.library.Library("beside", "DEF")
    library.define("tiled(Tensor x, SymInt n, SymInt[] sizes) -> Tensor")
    library.impl("tiled", lambda x, n, sizes: (x * n).reshape(sizes).clone(), "CompositeExplicitAutograd")

    class Tiles(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.beside.tiled(x - 1.0, x.shape[0], [x.shape[0], 1])

    converter = TorchConverter(catalog=[RuleSet([wrong_sub])])

    @converter.register_torch_lowering("beside::tiled")
    def lower_tiled(values_map: Any, node: Any, loc: Any) -> Any:
        return coreai.expand_dims(coreai.broadcasting_mul(values_map[node.args[0].name], 4.0, loc=loc), [1], loc=loc)

    x, rows = torch.linspace(1, 2, 4), torch.export.Dim("rows", min=2)
    exported = torch.export.export(Tiles(), (x,), dynamic_shapes=({0: rows},))
    departure = on_evaluator(converter.add_exported_program(exported).to_coreai(), Tiles(), x, by="module").departure
    assert departure is not None
    assert (departure.stage, departure.rule) == ("normalize", wrong_sub.name)
