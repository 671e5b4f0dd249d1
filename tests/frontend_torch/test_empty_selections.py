"""Selections by data may be empty: the runtime aborts where it broadcasts one, unless the broadcast is explicit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim
from torch.nn import functional

from patcomp import EvaluationError, TorchConverter
from patcomp.defects.known.empty_tensors import ops_that_need_elements
from patcomp.emit.native import Native
from tests.frontend_torch.dynamic import converted, exported_function
from tests.frontend_torch.models import Function


def rows(x: torch.Tensor) -> torch.Tensor:
    return x[x.sum(1) > 1]


SELECTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scalar": lambda x: x[x > 1] * 2,
    "vector": lambda x: rows(x) + torch.arange(3.0),
    "outer": lambda x: rows(x)[:, None] * x[None],
    "comparison": lambda x: (x[x > 1] > 3).any(),
    "positions": lambda x: (x > 1).nonzero() + 1,
    "branches": lambda x: torch.where(rows(x) > 0, 1.0, 2.0),
    "relu": lambda x: torch.relu(rows(x)) @ torch.ones(3, 3) + 0.5,
    "linear": lambda x: functional.linear(rows(x), torch.ones(2, 3), torch.ones(2)),
    "layer_norm": lambda x: functional.layer_norm(rows(x), (3,)),
    "gelu": lambda x: functional.gelu(rows(x) - 1),
    "negation": lambda x: -rows(x),
    "flat": lambda x: rows(x).flatten() + 1,
    "flat positions": lambda x: x[torch.argwhere(x.sum(1) > 1).flatten()],
    "unflattened": lambda x: (rows(x).flatten() * 2).view(-1, 3),
    "pairs": lambda x: rows(torch.cat([x, x], 1)).reshape(-1, 2, 3) - 1,
    "joined": lambda x: torch.cat([rows(x) * 2, x]),
    "sum": lambda x: rows(x)[:, None].expand(-1, 2, -1).sum((0, 1)),
    "product": lambda x: x[x > 1].prod(),
    "mean": lambda x: rows(x).mean(0),
    "variance": lambda x: x[x > 1].var(),
    "count": lambda x: (x[x > 1] > 0).sum(),
    "largest": lambda x: rows(x).argmax(1),
    "sorted": lambda x: rows(x).sort(1, descending=True).values,
    "topk": lambda x: rows(x).topk(2, 1).indices,
    "cumsum": lambda x: rows(x).cumsum(1),
    "padded": lambda x: functional.pad(rows(x), (1, 1), value=7.0),
    "rows added": lambda x: x.index_add(0, (x.sum(1) > 1).nonzero()[:, 0], rows(x)),
    "rows put": lambda x: x.index_put(((x.sum(1) > 1).nonzero()[:, 0],), torch.ones(3)),
    "scattered": lambda x: torch.ones(4).scatter(0, (x.sum(1) > 1).nonzero()[:, 0], 9.0),
    "smallest": lambda x: torch.ones(12).scatter_reduce(0, x.flatten()[x.flatten() > 1].long(), x[x > 1], "amin"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SELECTIONS)
def test_selections_of_nothing_run(name: str, native: Native) -> None:
    function, full = Function(SELECTIONS[name]), torch.arange(12.0).reshape(4, 3)
    program = TorchConverter().add_exported_program(torch.export.export(function, (full,))).to_coreai()
    for x in (full, -full):
        torch.testing.assert_close(program.run(x), function(x), check_dtype=False, equal_nan=True)
        (output,) = native.run(program.module, {program.input_names()[0]: x}).values()
        torch.testing.assert_close(torch.from_numpy(output), function(x), check_dtype=False, equal_nan=True)


@pytest.mark.parametrize("function", [lambda x: x * 0.5, lambda x: torch.where(x > 0, x, -x), torch.relu])
def test_no_elements_of_a_dynamic_shape(function: Callable[[torch.Tensor], torch.Tensor], native: Native) -> None:
    shapes = (({1: torch.export.Dim.AUTO},),)
    exported = torch.export.export(Function(function), (torch.ones(0, 3),), dynamic_shapes=shapes)
    program = TorchConverter().add_exported_program(exported).to_coreai()
    (output,) = native.run(program.module, {program.input_names()[0]: torch.ones(0, 5)}).values()
    assert output.shape == (0, 5)


WITHOUT_COLUMNS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "diagonal": lambda x: torch.diagonal(x, 1, -2, -1),
    "pad": lambda x: functional.pad(x, [-1, 0, 0, 1], value=2.0),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x[..., :0]),
    "product": lambda x: x @ x.new_zeros(1, 0),
    "truth": lambda x: x[..., :0] > 0,
    "topk": lambda x: x.topk(0).values,
    "sort": lambda x: x[..., :0].sort(1).indices,
}


@pytest.mark.parametrize("name", WITHOUT_COLUMNS)
def test_no_columns_and_open_rows(name: str, native: Native) -> None:
    function, x = Function(WITHOUT_COLUMNS[name]), torch.ones(3, 5, 1)
    shapes = (({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},),)
    program = (
        TorchConverter().add_exported_program(torch.export.export(function, (x,), dynamic_shapes=shapes)).to_coreai()
    )
    (output,) = native.run(program.module, {program.input_names()[0]: x[:2]}).values()
    assert output.shape == tuple(program.run(x[:2]).shape) == tuple(function(x[:2]).shape)


SHORTER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "slice": lambda x: x[2 : x.shape[0] // 2] * 2,
    "last row": lambda x: torch.sigmoid(x[2 : x.shape[0] // 2][-1:]) + x[-1],
    "ones": lambda x: x.new_ones(x.shape[0] // 2 - 2, 3) * x[:1],
}


@pytest.mark.parametrize("name", SHORTER)
def test_sizes_that_are_0_for_a_small_input(name: str, native: Native) -> None:
    function, x = Function(SHORTER[name]), torch.ones(4, 3)
    shapes = (({0: torch.export.Dim.AUTO},),)
    program = (
        TorchConverter().add_exported_program(torch.export.export(function, (x,), dynamic_shapes=shapes)).to_coreai()
    )
    assert "?" in str(program)
    (output,) = native.run(program.module, {program.input_names()[0]: x}).values()
    assert output.shape == function(x).shape == (0, 3)


def test_an_open_size_that_is_1_broadcasts(native: Native) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[1:-1:3] - y[:, :4:2, None]

    given = (torch.randn(3, 3), torch.randn(3, 3))
    shapes = (({0: Dim.AUTO, 1: Dim.AUTO},) * 2,)
    exported = torch.export.export(Function(function), given, dynamic_shapes=shapes)
    program = TorchConverter().add_exported_program(exported).to_coreai()
    for rows, columns in ((3, 3), (5, 3), (4, 3)):
        given = (torch.randn(rows, columns), torch.randn(rows, columns))
        (found,) = native.run(program.module, dict(zip(program.input_names(), given, strict=True))).values()
        for value in (program.run(*given), torch.from_numpy(found)):
            torch.testing.assert_close(value, function(*given))


def test_a_diagonal_that_starts_behind_one_column(native: Native) -> None:
    function, x = Function(lambda x: torch.diagonal(x, 1, -2, -1)), torch.ones(5, 1, 6)
    exported = torch.export.export(function, (x,), dynamic_shapes=(({2: torch.export.Dim("m", min=1)},),))
    program = TorchConverter().add_exported_program(exported).to_coreai()
    for columns in (6, 1):
        (output,) = native.run(program.module, {program.input_names()[0]: x[..., :columns]}).values()
        assert output.shape == function(x[..., :columns]).shape


def test_other_programs_broadcast_as_before() -> None:
    shapes = (({0: torch.export.Dim.AUTO},),)
    exported = torch.export.export(Function(lambda x: x * 2 + 1), (torch.ones(4, 3),), dynamic_shapes=shapes)
    assert "broadcast_to" not in str(TorchConverter().add_exported_program(exported).to_coreai())


INPUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coreai.relu": torch.relu,
    "coreai.decomposable.broadcasting_mul": lambda x: x * 2,
    "coreai.decomposable.broadcasting_add": lambda x: functional.linear(x, torch.ones(2, 3), torch.ones(2)),
    "coreai.reduce_sum": lambda x: x.sum(0),
    "coreai.reduce_mean": lambda x: x.mean((0, 1)),
}


@pytest.mark.parametrize("op", INPUTS)
def test_an_empty_input_does_not_reach_an_op_in_which_the_runtime_aborts(op: str, native: Native) -> None:
    function, x = INPUTS[op], torch.ones(4, 3)
    program = converted(exported_function(function, x, shapes=[{0: Dim("n")}]))
    nothing = x[:0]
    torch.testing.assert_close(program.run(nothing), function(nothing), equal_nan=True)
    with pytest.raises(EvaluationError, match=rf"'x' has size 0 in dimension 0, .* {op}.*; use backend='evaluator'"):
        program.run(nothing, backend="runtime")
    (output,) = native.run(program.specialize({"n": 0}).module, {"x": nothing}).values()
    torch.testing.assert_close(torch.from_numpy(output), function(nothing), equal_nan=True)


def test_an_empty_input_of_other_ops_reaches_the_runtime() -> None:
    program = converted(exported_function(torch.t, torch.ones(4, 3), shapes=[{0: Dim("n")}]))
    assert ops_that_need_elements(program.module) == []


def test_reductions_of_nothing_are_computed(native: Native) -> None:
    function, x = Function(lambda x: (x.sum(0), x.prod(0), x.mean())), torch.ones(0, 3)
    program = converted(torch.export.export(function, (x,)))
    outputs = native.run(program.module, {program.input_names()[0]: x})
    for name, expected in zip(program.output_names(), function(x), strict=True):
        torch.testing.assert_close(torch.from_numpy(outputs[name]), expected, equal_nan=True)
