"""`torch.cond`, `while_loop`, `scan`, `map` and `associative_scan`, nested and with captures, beside eager PyTorch."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch.nn import functional

from patcomp import AIProgram, TorchConverter, UnsupportedError
from patcomp.emit.native import Native
from patcomp.ir import parse_module, to_text
from tests.frontend_torch.branches import Captures, assert_agrees, zero
from tests.helpers.as_users_run import AS_USERS_RUN
from tests.helpers.workers import in_one_worker

pytestmark = AS_USERS_RUN

Case = tuple[Callable[..., Any], list[tuple[Any, ...]]]


def predicate(value: bool) -> torch.Tensor:
    return torch.tensor(value)


X = torch.rand(2, 3) + 0.1
ROWS = torch.randn(5, 3)


# ---- the models ------------------------------------------------------------------------------------


def branches(m: Captures, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: m.linear(m.norm(x)) + 1, lambda x: x - m.weight, (x,))


def several_results(m: Captures, x: torch.Tensor, p: torch.Tensor) -> Any:
    return torch.cond(p, lambda x: (x + 1, {"at": x.argmax(-1)}), lambda x: (x * 2, {"at": x.argmin(-1)}), (x,))


def integer_of_both_branches(m: Captures, x: torch.Tensor) -> Any:
    """Export knows what the second result is."""
    return torch.cond(x.sum() > 0, lambda x: (x + 1, 3), lambda x: (x * 2, 3), (x,))[0]


def predicate_of_one_element(m: Captures, x: torch.Tensor) -> Any:
    return torch.cond((x > 0).all(0, keepdim=True).all(1), lambda x: x + 1, lambda x: x - 1, (x,))


def alike(m: Captures, x: torch.Tensor, y: torch.Tensor) -> Any:
    """Conditionals that differ in one value, or one constant, must not be merged."""
    condition = x.sum() > 0
    a, b = (torch.cond(condition, lambda x: x + 1, lambda x: x - 1, (value,)) for value in (x, y))
    return a, b, torch.cond(condition, lambda x: x + 2, lambda x: x - 1, (x,))


def taken_apart(m: Captures, x: torch.Tensor) -> Any:
    """Ops of branches that no rule takes."""
    ones = torch.ones(1, 3, 3)
    return torch.cond(x.sum() > 0, torch.special.i0e, lambda x: torch.addbmm(x, x[None], ones), (x,))


def attentions(m: Captures, x: torch.Tensor) -> Any:
    """A composite that export keeps whole, and one that is written out."""

    def rms_norm(x: torch.Tensor) -> torch.Tensor:
        return m.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def attend(x: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(x, x, x)

    return torch.cond(x.sum() > 0, attend, rms_norm, (x,))


def loop(m: Captures, start: torch.Tensor, x: torch.Tensor) -> Any:
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, m.norm(m.linear(x)) + m.weight), (start, x))


def loop_until(m: Captures, x: torch.Tensor, limit: torch.Tensor) -> Any:
    """The condition depends on carried and on captured values."""
    return while_loop(lambda x: x.abs().max() < limit, lambda x: (x * 1.5,), (x,))


def conditional_in_loop(m: Captures, x: torch.Tensor, p: torch.Tensor) -> Any:
    def inner(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 1, m.linear, lambda x: x - 1, (x,))

    def body(i: torch.Tensor, x: torch.Tensor) -> Any:
        return i + 1, torch.cond(p, inner, lambda x: x * 2, (x,))

    return while_loop(lambda i, x: i < 3, body, (zero(), x))


def loop_in_conditional(m: Captures, x: torch.Tensor, n: torch.Tensor) -> Any:
    def repeated(x: torch.Tensor, n: torch.Tensor) -> Any:
        return while_loop(lambda i, x: i < n, lambda i, x: (i + 1, m.linear(x)), (zero(), x))[1]

    return torch.cond(x.sum() > 0, repeated, lambda x, n: x.sin(), (x, n))


def loop_in_loop(m: Captures, x: torch.Tensor, n: torch.Tensor) -> Any:
    def body(i: torch.Tensor, x: torch.Tensor) -> Any:
        return i + 1, while_loop(lambda j, x: j < i, lambda j, x: (j + 1, x + m.weight * j), (zero(), x))[1]

    return while_loop(lambda i, x: i < n, body, (zero(), x))


def loop_in_loop_old_value(m: Captures, x: torch.Tensor) -> Any:
    """The runtime would give the inner loop the memory of `x`, which is read after it."""

    def body(i: torch.Tensor, x: torch.Tensor, total: torch.Tensor) -> Any:
        inner = while_loop(lambda j, v: j < 2, lambda j, v: (j + 1, v + 1), (zero(), x * 1))[1]
        return i + 1, inner, total + x * 3

    return while_loop(lambda i, x, total: i < 3, body, (zero(), x, x * 0))


SQUARE = torch.randn(3, 3)


def moving_loop(move: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """The runtime computes what a loop carries in place, and would read what it has just written."""

    def moved(m: Captures, x: torch.Tensor) -> Any:
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, move(x)), (zero(), x * 1))

    return moved


def loop_until_flipped(m: Captures, x: torch.Tensor) -> Any:
    """The runtime would compute the condition where the value is that the loop returns."""

    def goes_on(x: torch.Tensor) -> torch.Tensor:
        return (x.flip(0) + torch.roll(x, 1, 0)).max() < 4

    return while_loop(goes_on, lambda x: (x.abs() + 1,), (x,))


def loop_in_even_steps(m: Captures, x: torch.Tensor, y: torch.Tensor) -> Any:
    """The runtime would compute the remainder where the second value is that the loop returns."""

    def goes_on(i: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (i < 3) & (i % 2 == 0)

    return while_loop(goes_on, lambda i, x, y: (i + 1, y * 0.5, x.clone()), (zero(), x * 1, y * 1))[1:]


def chosen_from_outside(m: Captures, x: torch.Tensor, y: torch.Tensor) -> Any:
    """Neither branch computes anything, in a loop."""

    def body(i: torch.Tensor, x: torch.Tensor) -> Any:
        return i + 1, torch.cond(x.sum() > 0, lambda x, y: x.clone(), lambda x, y: y.clone(), (x, y)) * 0.5

    return while_loop(lambda i, x: i < 3, body, (zero(), x * 1))


def counted(m: Captures, x: torch.Tensor) -> Any:
    """A carried Python integer."""
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + i), (0, x))[1]


def recurrence(m: Captures, state: torch.Tensor, rows: torch.Tensor) -> Any:
    return scan(lambda c, x: (torch.tanh(m.linear(c) + x * m.weight), c * 2), state, rows)


def recurrence_back(m: Captures, state: torch.Tensor, rows: torch.Tensor) -> Any:
    return scan(lambda c, x: (c + x, c * 2), state, rows, dim=1, reverse=True)


def recurrence_of_trees(m: Captures, state: Any, rows: Any) -> Any:
    def combine(c: dict[str, torch.Tensor], x: list[torch.Tensor]) -> Any:
        after = {"a": c["a"] + x[0], "b": c["b"] * x[1].sum()}
        return after, (c["a"] * 1, x[1] > 0, c["b"].to(torch.bfloat16))

    return scan(combine, state, rows)


def recurrence_in_conditional(m: Captures, state: torch.Tensor, rows: torch.Tensor, p: torch.Tensor) -> Any:
    def scanned(c: torch.Tensor, x: torch.Tensor) -> Any:
        return scan(lambda c, x: (c + x, c * 2), c, x)

    return torch.cond(p, scanned, lambda c, x: (c * 1, x * 2), (state, rows))


def conditional_in_recurrence(m: Captures, state: torch.Tensor, rows: torch.Tensor) -> Any:
    def combine(c: torch.Tensor, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda c, x: c + x, lambda c, x: m.linear(c), (c, x)), c * 2

    return scan(combine, state, rows)


def mapped(m: Captures, rows: torch.Tensor, other: torch.Tensor) -> Any:
    return map_rows(lambda x, y: (m.linear(x) + y).sum(), rows, other)


def mapped_trees(m: Captures, rows: Any) -> Any:
    return map_rows(lambda x: (x[0] + 1, ~x[1], x[1].sum()), rows)


def mapped_in_mapped(m: Captures, x: torch.Tensor) -> Any:
    return map_rows(lambda row: map_rows(lambda y, r: y * r.sum(), row, row * 1), x)


def affine(a: list[torch.Tensor], b: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return a[0] * b[0], a[1] * b[0] + b[1]


def prefixes(m: Captures, rows: list[torch.Tensor]) -> Any:
    return associative_scan(affine, rows, 0, combine_mode="generic")


def suffixes(m: Captures, rows: list[torch.Tensor]) -> Any:
    return associative_scan(affine, rows, 1, reverse=True, combine_mode="generic")


def prefixes_as_an_op(m: Captures, x: torch.Tensor, y: torch.Tensor) -> Any:
    """What is exported for other devices: for the CPU, `associative_scan` itself exports slices."""

    def combine(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> list[torch.Tensor]:
        return [a * c, b * c + d]

    return torch.ops.higher_order.associative_scan(combine, [x, y], ())


EACH_BRANCH: list[tuple[Any, ...]] = [(X,), (-X,)]
CASES: dict[str, Case] = {
    "cond": (branches, EACH_BRANCH),
    "cond with several results": (several_results, [(X, predicate(True)), (X, predicate(False))]),
    "cond with an integer": (integer_of_both_branches, EACH_BRANCH),
    "cond of one element": (predicate_of_one_element, EACH_BRANCH),
    "conds alike": (alike, [(X, 3 * X), (-X, 3 * X)]),
    "cond of what is taken apart": (taken_apart, EACH_BRANCH),
    "cond of composites": (attentions, [(torch.rand(1, 2, 4, 3),), (-torch.rand(1, 2, 4, 3),)]),
    "while": (loop, [(torch.tensor(0), X), (torch.tensor(4), X), (torch.tensor(9), X)]),
    "while on values": (loop_until, [(X, torch.tensor(100.0)), (X, torch.tensor(0.01))]),
    "cond in while": (conditional_in_loop, [(X, predicate(True)), (-X, predicate(True)), (X, predicate(False))]),
    "while in cond": (loop_in_conditional, [(X, torch.tensor(3)), (X, torch.tensor(0)), (-X, torch.tensor(3))]),
    "while in while": (loop_in_loop, [(X, torch.tensor(4)), (X, torch.tensor(1))]),
    "while in while, old value": (loop_in_loop_old_value, [(X,)]),
    "while with a flip": (moving_loop(lambda x: x.flip(1)), [(SQUARE,)]),
    "while with a roll": (moving_loop(lambda x: torch.roll(x, 1, 0)), [(SQUARE,)]),
    "while with a product": (moving_loop(lambda x: x @ x), [(SQUARE,)]),
    "while with repetition": (moving_loop(lambda x: torch.minimum(x, x.exp().repeat(2, 1)[1:4])), [(SQUARE,)]),
    "while until something of a flip": (loop_until_flipped, [(SQUARE,), (SQUARE + 9,)]),
    "while with a condition in steps": (loop_in_even_steps, [(X[0], X[1])]),
    "while with a choice": (chosen_from_outside, [(SQUARE.abs(), SQUARE), (-SQUARE.abs(), SQUARE)]),
    "while with an integer": (counted, [(X,)]),
    "scan": (recurrence, [(torch.zeros(3), ROWS)]),
    "scan of one": (recurrence, [(torch.zeros(3), ROWS[:1])]),
    "scan back along 1": (recurrence_back, [(torch.zeros(5), ROWS)]),
    "scan of trees": (
        recurrence_of_trees,
        [({"a": torch.zeros(3), "b": torch.ones(())}, [ROWS[:4], torch.randn(4, 2, 2)])],
    ),
    "scan in cond": (recurrence_in_conditional, [(X[0], ROWS, predicate(True)), (X[0], ROWS, predicate(False))]),
    "cond in scan": (conditional_in_recurrence, [(X[0], ROWS)]),
    "map": (mapped, [(ROWS, X[0])]),
    "map of trees": (mapped_trees, [([torch.arange(4), torch.randn(4, 2) > 0],)]),
    "map in map": (mapped_in_mapped, [(ROWS,)]),
    "associative_scan": (prefixes, [([torch.rand(5, 3), torch.rand(5, 3)],)]),
    "associative_scan back along 1": (suffixes, [([torch.rand(3, 5), torch.rand(3, 5)],)]),
}
each_case = pytest.mark.parametrize("name", in_one_worker(CASES))


@cache
def converted(name: str) -> tuple[Captures, torch.export.ExportedProgram, AIProgram]:
    function, inputs = CASES[name]
    model = Captures(function).eval()
    exported = torch.export.export(model, inputs[0])
    return model, exported, TorchConverter().add_exported_program(exported).to_coreai()


@pytest.mark.sampled(2)
@each_case
def test_agrees_with_eager_on_evaluator_and_runtime(name: str, native: Native) -> None:
    model, _, program = converted(name)
    for inputs in CASES[name][1]:
        assert_agrees(model, program, inputs, native)


@pytest.mark.sampled(3)
@each_case
def test_every_stage_reads_back(name: str) -> None:
    _, _, program = converted(name)
    for stage, text in program.stages.items():
        assert to_text(parse_module(text)) == text, stage


@pytest.mark.sampled(3)
@each_case
def test_converts_to_the_same_bytes_and_leaves_the_program_alone(name: str) -> None:
    _, exported, program = converted(name)
    before = str(exported)
    again = TorchConverter().add_exported_program(exported).to_coreai()
    assert again.text(locations=True) == program.text(locations=True)
    assert str(exported) == before


def test_branches_are_regions_of_one_op() -> None:
    text = converted("cond")[2].stages["import"]
    assert text.count("coreai.if") == 1
    assert re.search(r"coreai\.if %gt \{\s+%true_graph_0_native_layer_norm_0.* = aten\.native_layer_norm", text)


def test_composites_inside_of_branches_are_calls_of_graphs() -> None:
    _, _, program = converted("cond of composites")
    assert program.composites == {"rms_norm": 1, "scaled_dot_product_attention": 1}
    assert [op.parent_op().name for op in program.module.op.walk() if op.name == "coreai.invoke"] == ["coreai.if"] * 2


def test_associative_scan_as_an_op(native: Native) -> None:
    model, inputs = Captures(prefixes_as_an_op).eval(), (torch.rand(5, 3), torch.rand(5, 3))
    exported = torch.export.export(model, inputs)
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert "coreai.while" in str(program)
    assert_agrees(Captures(lambda m, *rows: prefixes(m, list(rows))), program, inputs, native)


def test_a_predicate_known_at_export_leaves_one_branch() -> None:
    model = Captures(lambda m, x: torch.cond(x.shape[0] > 1, lambda x: x + 1, lambda x: x - 1, (x,)))
    program = TorchConverter().add_exported_program(torch.export.export(model, (X,))).to_coreai()
    assert "coreai.if" not in str(program)
    assert program.verify_against(model, (X,), backends=["evaluator"]).passed


def test_branches_that_hand_on_constants_and_values_from_outside(native: Native) -> None:
    def function(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def first(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.clone(), x + 1, torch.zeros(3), torch.ones(3), y.clone(), torch.zeros(3, dtype=torch.bool)

        def second(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return y.clone(), y + 2, torch.full((3,), 4.0), x.clone(), torch.ones(3), torch.ones(3, dtype=torch.bool)

        return torch.cond(x.sum() > 0, first, second, (x, y))

    x, y = torch.randn(3).abs(), torch.randn(3)
    program = TorchConverter().add_exported_program(torch.export.export(Captures(function), (x, y))).to_coreai()
    for given in (x, -x):
        outputs = native.run(program.module, dict(zip(program.input_names(), (given, y), strict=True)))
        for name, expected in zip(program.output_names(), Captures(function)(given, y), strict=True):
            torch.testing.assert_close(torch.from_numpy(outputs[name]), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
def test_branches_that_compute_with_constants_only(dtype: torch.dtype, native: Native) -> None:
    def function(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        constant = torch.full((2, 3), 3.0)

        def first(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (torch.relu(y) * 2 + constant).to(dtype).clone()

        def second(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (y - 3).to(dtype).clone()

        return torch.cond(x.sum() > 0, first, second, (x, constant))

    model = Captures(function)
    exported = torch.export.export(model, (torch.ones(2, 3),))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    for x in (torch.ones(2, 3), -torch.ones(2, 3)):
        assert_agrees(model, program, (x,), native)


def test_names_of_nested_graphs_do_not_hide_inputs(native: Native) -> None:
    class Named(nn.Module):
        def forward(self, x: torch.Tensor, mul: int) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x * 3 + mul, lambda x: x - mul, (x,))

    exported = torch.export.export(Named(), (X, 2))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    expected = Named()(X, 2)
    torch.testing.assert_close(program.run({"x": X})[program.output_names()[0]], expected)


def draws(m: Captures, x: torch.Tensor) -> Any:
    def deeper(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 2, lambda x: torch.poisson(x), lambda x: x * 1, (x,))

    return torch.cond(x.sum() > 0, deeper, lambda x: x + torch.multinomial(x, 1), (x,))


def test_unsupported_ops_of_all_graphs_are_reported_with_their_places() -> None:
    exported = torch.export.export(nn.Sequential(Captures(draws)), (X,))
    with pytest.raises(UnsupportedError, match=r'random="inputs": aten\.multinomial, aten\.poisson') as raised:
        TorchConverter().add_exported_program(exported)
    found = {problem.op: problem for problem in raised.value.problems}
    assert found["aten.poisson"].node == "true_graph_0_true_graph_0_poisson"
    assert found["aten.multinomial"].node == "false_graph_0_multinomial"
    assert all(re.search(r"branches\.py:\d+$", problem.source) for problem in found.values())
    assert {problem.module_path for problem in found.values()} == {"0"}


def test_what_rules_reject_inside_of_branches_is_reported() -> None:
    def function(m: Captures, x: torch.Tensor) -> Any:
        def resized(x: torch.Tensor) -> torch.Tensor:
            return functional.interpolate(x, (7, 7), mode="bilinear")

        return torch.cond(x.sum() > 0, resized, lambda x: functional.interpolate(x, (7, 7)), (x,))

    exported = torch.export.export(Captures(function), (torch.ones(1, 1, 4, 4, dtype=torch.int32),))
    with pytest.raises(UnsupportedError, match="resize of integers") as raised:
        TorchConverter().add_exported_program(exported).to_coreai()
    assert [problem.node for problem in raised.value.problems] == ["true_graph_0_upsample_bilinear2d"]


def test_explain_and_why_not_see_nested_graphs() -> None:
    _, _, program = converted("cond of composites")
    text = program.explain("false_graph_0_mul_1")
    assert "made by rule rms_norm" in text
    assert "branches.py:" in text
    assert "rms_norm matches at" in program.why_not("rms_norm")


class EarlyExit(nn.Module):
    """A classifier that skips its second block where the first one is sure."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.second = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        sure = self.head(x.mean(1)).softmax(-1).amax() > 0.5
        return torch.cond(sure, lambda x: self.head(x.mean(1)), lambda x: self.head(self.second(x).mean(1)), (x,))


def test_early_exit(native: Native) -> None:
    torch.manual_seed(0)
    model = EarlyExit().eval()
    inputs = [(torch.randn(1, 5, 8) * scale,) for scale in (0.1, 1.0, 10.0)]
    exported = torch.export.export(model, inputs[0])
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert program.composites["layer_norm"] == 4
    for given in inputs:
        assert_agrees(model, program, given, native)


def test_a_branch_of_a_constant_condition_is_taken(native: Native) -> None:
    def function(m: Captures, x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(2.0)
        taken = torch.cond(steps.amax() > steps.amin(), lambda a: a.relu() * 2, lambda a: a.softmax(-1), (steps,))
        return x + taken  # the runtime died of branches of constants

    x = torch.randn(3, 2)
    program = TorchConverter().add_exported_program(torch.export.export(Captures(function), (x,))).to_coreai()
    assert "coreai.if" not in str(program)
    expected = x + torch.tensor([0.0, 2.0])
    torch.testing.assert_close(program.run(x), expected)
    (output,) = native.run(program.module, {program.input_names()[0]: x}).values()
    torch.testing.assert_close(torch.from_numpy(output), expected)
