"""What a model checks of the values of its inputs: `program.run` checks it too, straight, decomposed and saved."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

from patcomp import AIProgram, ConversionWarning, EvaluationError, TorchConverter, get_decomp_table
from patcomp.frontend_torch.interface.value_checks import warning
from patcomp.interface.checks import ValueChecks
from tests.helpers.ways import WAYS as THREE_WAYS


class Of(nn.Module):
    """A function as a model with a buffer."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function
        self.register_buffer("limit", torch.tensor(2.0))

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self, *args)


def number_in_range(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= 2)
    return x * k


def with_a_message(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    torch._assert_async((x > -5).all(), "x is above -5")
    return x * n


def all_of_a_tensor(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """What transformers' `torch_compilable_check` does."""
    torch._check_tensor_all(n.sum() == x.shape[1], lambda: "sizes do not fit")
    return x * 2


def of_a_buffer(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    torch._assert_async((x < m.limit).all(), "x is below the limit")
    return x + n


def number_of_selected(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    rows = x.nonzero()
    torch._check(rows.shape[0] > 1)
    return rows * 2


def exact_number_of_selected(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """Export replaces the size by the number that was checked."""
    torch._check(x.nonzero().shape[0] == 6)
    return x * 2


def size_of_a_slice(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    k = n.item()
    torch._check_is_size(k)
    torch._check(k <= x.shape[1])
    return x[:, :k].sum()


def in_a_branch(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x < 3).all(), "x is below 3")
        return x + 1

    return torch.cond(x.sum() > 0, checked, lambda x: x - 1, (x,))


X = torch.ones(2, 3)
ONE = torch.tensor(1)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], str]] = {
    "a number": (number_in_range, (X, ONE), (X, torch.tensor(5)), "n <= 2"),
    "the other limit": (number_in_range, (X, ONE), (X, torch.tensor(-1)), "n >= 0"),
    "a message": (with_a_message, (X, ONE), (X - 9, ONE), "all(x > -5) (x is above -5)"),
    "all of a tensor": (all_of_a_tensor, (X, torch.tensor([1, 2])), (X, torch.tensor([2, 2])), "all(sum(n) == 3)"),
    "a buffer": (of_a_buffer, (X, ONE), (X + 1, ONE), "all(x < limit) (x is below the limit)"),
    "what is selected": (number_of_selected, (X, ONE), (X * 0, ONE), "nonzero(x).shape[0] >= 2"),
    "exactly so many": (exact_number_of_selected, (X, ONE), (X * 0, ONE), "nonzero(x).shape[0] >= 6"),
    "a slice": (size_of_a_slice, (X, ONE), (X, torch.tensor(4)), "n <= 3"),
    "a branch": (in_a_branch, (X, ONE), (X + 5, ONE), "cond hold: x is below 3"),
}
"""Function, inputs that are right, inputs that are wrong, words of the condition."""


WAYS = dict(THREE_WAYS) | {"by PyTorch's table": lambda exported: exported.run_decompositions()}


def converted(exported: ExportedProgram) -> AIProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)
        return TorchConverter().add_exported_program(exported, input_names=["x", "n"]).to_coreai()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_a_check_that_does_not_hold_is_an_error(name: str, way: str):
    function, right, wrong, words = CASES[name]
    model = Of(function)
    program = converted(WAYS[way](export(model, right, strict=False)))
    torch.testing.assert_close(program.run(*right), model(*right), check_dtype=False)
    with pytest.raises(
        EvaluationError, match=r"the model checks that .*, which does not hold for these inputs"
    ) as error:
        program.run(*wrong)
    assert words in str(error.value)
    assert all(len(line) < 200 for line in str(error.value).splitlines())


def check(condition: Callable[..., Any]) -> Callable[..., Any]:
    """A model that checks what a condition computes of the inputs: of a tensor, or of its value."""

    def function(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        found = condition(x, n)
        torch._check(found.item() if isinstance(found, torch.Tensor) else found)
        return x * 2

    return function


def directly(condition: Callable[..., Any]) -> Callable[..., Any]:
    def function(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._assert_async(condition(x, n))
        return x * 2

    return function


def chosen(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sum() < 9, lambda x: x.sum() > -6, (x,))


TWO = torch.tensor([1, 2])
TEXTS: dict[str, tuple[Callable[..., Any], tuple[Any, Any], tuple[Any, Any], list[str]]] = {
    "not equal": (check(lambda x, n: n.item() != 2), (X, ONE), (X, ONE + 1), ["sym_not(n == 2)"]),
    "either of tensors": (check(lambda x, n: (n == 2) | (n == 1)), (X, ONE), (X, ONE * 3), ["(n == 2) or (n == 1)"]),
    "both of tensors": (check(lambda x, n: (n > 0) & (n != 2)), (X, ONE), (X, ONE * 2), ["(n > 0) and (n != 2)"]),
    "either": (
        check(lambda x, n: torch.logical_or(n == 2, n == 1)), (X, ONE), (X, ONE * 3), ["(n == 2) or (n == 1)"]
    ),
    "both": (check(lambda x, n: torch.logical_and(n > 0, n < 2)), (X, ONE), (X, ONE * 2), ["(n > 0) and (n < 2)"]),
    "a remainder": (check(lambda x, n: n.item() % 2 == 1), (X, ONE), (X, ONE * 2), ["(n % 2) == 1"]),
    "two numbers": (
        check(lambda x, n: n[0].item() < n[1].item()), (X, TWO), (X, TWO * 0),
        ["(select(n, 0, 0)) < (select(n, 0, 1))"],
    ),
    "a product": (
        check(lambda x, n: n[0].item() * n[1].item() > 0), (X, TWO), (X, -TWO * ONE.new_tensor([1, 0])),
        ["((select(n, 0, 0)) * (select(n, 0, 1))) > 0"],
    ),
    "a float": (check(lambda x, n: x.sum().item() < 7.5), (X, ONE), (X * 2, ONE), ["sum(x) < 7.5"]),
    "either of numbers": (
        check(lambda x, n: (n.item() == 2) | (n.item() == 1)), (X, ONE), (X, ONE * 3), ["(n == 1) or (n == 2)"]
    ),
    "flags": (
        check(lambda x, n: (n > 3).item() | (n < 2).item()), (X, ONE), (X, ONE * 2), ["(n > 3) or (n < 2)"]
    ),
    "both of numbers": (
        check(lambda x, n: (n.item() > 0) & (n.item() < 3)), (X, ONE), (X, ONE * 3),
        ["n >= 1", "n <= 2", "(n > 0) and (n < 3)"],
    ),
    "complex numbers": (
        directly(lambda x, n: (x * 2j).abs().sum() > n), (X, ONE), (X * 0, ONE), ["sum(abs(mul(x))) > n"]
    ),
    "a branch": (
        directly(chosen), (X, ONE), (-X, ONE), ["getitem(cond(sum(x) > 0, true_graph_0, false_graph_0), 0)"]
    ),
    "a tensor": (directly(lambda x, n: n > 0), (X, ONE), (X, -ONE), ["n > 0"]),
    "every element": (
        directly(lambda x, n: torch.ops.aten._is_all_true(x > n)), (2 * X, ONE), (X, ONE), ["all(x > n)"]
    ),
    "much": (
        directly(lambda x, n: (((x + n) * 2).exp().sum() * 3).abs() > 0), (X, ONE), (-X * 1000, ONE),
        ["(abs(sum(exp(mul)) * 3)) > 0"],
    ),
}  # fmt: skip
"""Function, inputs that are right, inputs that are wrong, the checks."""


@pytest.mark.parametrize("name", TEXTS)
def test_checks_are_listed_in_terms_of_the_inputs(name: str):
    function, right, wrong, texts = TEXTS[name]
    program = converted(export(Of(function), right, strict=False))
    assert list(program.signature().checks) == texts
    program.run(*right)
    with pytest.raises(EvaluationError, match="which does not hold for these inputs"):
        program.run(*wrong)


SELECTED: dict[str, tuple[Callable[..., Any], int | None, list[str]]] = {
    "as many as elements": (check(lambda x, n: x.nonzero().shape[0] <= 27), 9, []),
    "fewer than elements": (check(lambda x, n: x.nonzero().shape[0] <= 26), 9, ["nonzero(x).shape[0] <= 26"]),
    "of any number": (check(lambda x, n: x.nonzero().shape[0] <= 27), None, ["nonzero(x).shape[0] <= 27"]),
    "exactly": (
        check(lambda x, n: (x.nonzero() * 2).shape[0] == 6), 9,
        [f"nonzero(x).shape[0] {relation} 6" for relation in (">=", "<=", "==")],
    ),
    "at least one": (check(lambda x, n: x.nonzero().shape[0] >= 1), 9, ["nonzero(x).shape[0] >= 1"]),
    "at least one count": (
        check(lambda x, n: x.int().flatten().bincount().shape[0] >= 1), 9, ["bincount(flatten(to(x))).shape[0] >= 1"]
    ),
    "with a size": (
        check(lambda x, n: x.nonzero().shape[0] * 2 <= x.shape[0] * 3), 9,
        ["(2 * nonzero(x).shape[0]) <= (3 * x.shape[0])"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SELECTED)
def test_a_number_of_selected_elements_is_checked_if_it_may_be_larger(name: str):
    function, most, texts = SELECTED[name]
    sizes = (({0: Dim("rows", min=1, max=most)}, {}),)
    program = converted(export(Of(function), (X, ONE), dynamic_shapes=sizes, strict=False))
    assert list(program.signature().checks) == texts


ATEN = torch.ops.aten
LIMITS: dict[str, tuple[Any, dict[str, int], list[int], list[int], list[str]]] = {
    "both": (ATEN.sym_constrain_range, {"min": 1, "max": 3}, [1, 3], [0, 4], ["1 <= n <= 3"]),
    "the smallest": (ATEN.sym_constrain_range, {"min": 1}, [1, 9], [0], ["1 <= n"]),
    "the largest": (ATEN.sym_constrain_range, {"max": 3}, [-1, 3], [4], ["n <= 3"]),
    "none": (ATEN.sym_constrain_range, {}, [-1, 4], [], []),
    "of a size": (ATEN.sym_constrain_range_for_size, {}, [0, 9], [-1], ["0 <= n"]),
    "the largest size": (ATEN.sym_constrain_range_for_size, {"max": 3}, [0, 3], [-1, 4], ["0 <= n <= 3"]),
    "the smallest size": (ATEN.sym_constrain_range_for_size, {"min": 2}, [2, 9], [1], ["2 <= n"]),
}
"""Op, limits, numbers that are right, numbers that are wrong, the checks."""


@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_numbers_as_older_exports_state_them(name: str):
    """PyTorch 2.13 removes these ops from a program, and checks their limits by comparisons."""
    op, limits, right, wrong, texts = LIMITS[name]
    exported = export(Of(lambda m, x, n: x * n.item()), (X, ONE), strict=False)
    (item,) = (node for node in exported.graph.nodes if "item" in node.name)
    with exported.graph.inserting_after(item):
        exported.graph.call_function(op.default, (item,), limits)
        exported.graph.call_function(ATEN._assert_scalar.default, (True, "always"))
    program = converted(exported)
    assert list(program.signature().checks) == texts
    for number in right:
        assert torch.equal(program.run(X, torch.tensor(number)), X * number)
    for number in wrong:
        with pytest.raises(EvaluationError, match=f"the model checks that {texts[0]}, which does not hold"):
            program.run(X, torch.tensor(number))


@pytest.mark.parametrize(("limits", "texts"), [({}, []), ({"max": 4}, ["0 <= nonzero(x).shape[0] <= 4"])])
def test_a_number_of_selected_elements_is_never_below_0(limits: dict[str, int], texts: list[str]):
    exported = export(Of(lambda m, x, n: (rows := x.nonzero()) * rows.shape[0]), (X, ONE), strict=False)
    size = next(node for node in exported.graph.nodes if "sym_size" in node.name)
    with exported.graph.inserting_after(size):
        exported.graph.call_function(ATEN.sym_constrain_range_for_size.default, (size,), limits)
    assert list(converted(exported).signature().checks) == texts


@pytest.mark.parametrize(("count", "words"), [(4, "n > 3; program.run"), (5, "n > 3 and 1 more; program.run")])
def test_a_warning_lists_four_checks(count: int, words: str):
    (problem,) = warning(ValueChecks(tuple(f"n > {index}" for index in range(count)), lambda values: None))
    assert f"the model checks that n > 0; n > 1; n > 2; {words} checks this" in str(problem)
    assert list(warning(None)) == []


def test_the_signature_and_a_warning_list_the_checks():
    exported = export(Of(number_in_range), (X, ONE), strict=False)
    with pytest.warns(
        ConversionWarning, match="checks that n >= 0; n <= 2; program.run checks this, but an asset cannot"
    ):
        program = TorchConverter().add_exported_program(exported, input_names=["x", "n"]).to_coreai()
    assert program.signature().checks == ("n >= 0", "n <= 2")
    assert "check  n <= 2" in str(program.signature())


def test_verification_checks_the_values_too():
    """The function leaves the check out, so that only the program has it."""
    program = converted(export(Of(number_in_range), (X, ONE), strict=False))
    assert program.verify_against(lambda x, n: x * n, (X, ONE), backends=["evaluator"])
    with pytest.raises(EvaluationError, match="the model checks that n <= 2"):
        program.verify_against(lambda x, n: x * n, (X, torch.tensor(5)), backends=["evaluator"])


QUIET: dict[str, Callable[..., Any]] = {
    "nonzero": lambda m, x, n: x.nonzero() * 2,
    "a column of nonzero": lambda m, x, n: x.nonzero().unbind(1)[0] + 1,
    "nonzero as a tuple": lambda m, x, n: x.nonzero(as_tuple=True)[1],
    "nonzero of all": lambda m, x, n: x.flatten().nonzero().squeeze(1),
    "where": lambda m, x, n: torch.where(x > 0)[0],
    "argwhere": lambda m, x, n: torch.argwhere(x > 0),
    "unique": lambda m, x, n: torch.unique(x),
    "a mask": lambda m, x, n: x[x > 0].sum(),
    "indices": lambda m, x, n: x[torch.where(x > 0)],
    "item": lambda m, x, n: x * n.item(),
    "masked_select": lambda m, x, n: x.masked_select(x > 0),
    "bincount": lambda m, x, n: x.int().flatten().bincount(minlength=4),
    "rows": lambda m, x, n: x[(x > 0).any(1)],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sizes", [None, (({0: Dim("rows", min=1, max=9)}, {}),)], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", QUIET)
def test_what_always_holds_is_no_check(name: str, sizes: Any):
    exported = torch.export.export(Of(QUIET[name]), (X, ONE), dynamic_shapes=sizes, strict=False)
    for each in (exported, exported.run_decompositions(), exported.run_decompositions(get_decomp_table())):
        program = converted(each)
        assert program.checks == {}
        assert program.signature().checks == ()


def test_checks_belong_to_fixed_shapes_and_compressed_programs_too():
    exported = export(
        Of(number_in_range), (X, ONE), dynamic_shapes=(({0: Dim("rows", min=1, max=9)}, {}),), strict=False
    )
    program = converted(exported)
    fixed = program.specialize({"rows": 4})
    program.set_static_shape_config("main", {"two": {"x": (2, 3)}})
    for each, rows, entrypoint in ((fixed, 4, "main"), (program, 2, "main_two")):
        with pytest.raises(EvaluationError, match="the model checks that n <= 2"):
            each.run(torch.ones(rows, 3), torch.tensor(3), entrypoint=entrypoint)


def test_an_input_may_have_the_name_of_a_function_of_python():
    class Model(nn.Module):
        def forward(self, input: torch.Tensor, sum: torch.Tensor) -> torch.Tensor:
            torch._check((input.sum() == sum).item())
            return input * 2

    program = TorchConverter().add_exported_program(export(Model(), (X, ONE * 6))).to_coreai()
    assert program.signature().checks == ("sum(input) == sum",)
    assert torch.equal(program.run(X, ONE * 6), X * 2)
    with pytest.raises(EvaluationError, match="the model checks that"):
        program.run(X, ONE)


def test_sizes_of_inputs_stay_guards():
    def below_the_other(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] <= n.shape[0])
        return x.sum() + n.sum()

    sizes = (({0: Dim("rows", min=2, max=8)}, {0: Dim("others", min=2, max=8)}),)
    program = converted(export(Of(below_the_other), (X, torch.ones(5)), dynamic_shapes=sizes, strict=False))
    assert program.checks == {}
    with pytest.raises(EvaluationError, match="exported for sizes where rows <= others"):
        program.run(torch.ones(6, 3), torch.ones(5))


def test_ops_that_only_checks_read_need_no_rule():
    """No rule takes eigenvalues of a matrix that is not symmetric, or rows without repetition."""

    def function(m: Of, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        torch._check((torch.linalg.eigvals(x).real.sum() < 9).item())
        torch._check((torch.unique(x, dim=0)[0].sum() < 9).item())
        return x * 2

    small, large = torch.eye(3), 9 * torch.eye(3)
    exported = export(Of(function), (small, ONE))
    for way in WAYS.values():
        program = converted(way(exported))
        assert torch.equal(program.run(small, ONE), small * 2)
        with pytest.raises(EvaluationError, match="the model checks that"):
            program.run(large, ONE)
        assert not any(">= 0" in text for text in program.signature().checks)
