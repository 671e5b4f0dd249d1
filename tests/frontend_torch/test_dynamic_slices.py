"""Slices that are shorter at small sizes: the shapes of what follows them, against eager at each size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.nn import functional as F  # noqa: N812  (as everyone calls it)

from patcomp import TorchConverter
from patcomp.frontend_torch.decomposition.decompose import Decomposer
from patcomp.frontend_torch.fx.nodes import operator_name
from patcomp.frontend_torch.fx.sizes import SYMBOLIC
from patcomp.frontend_torch.sizes.slices import Lengths, with_dynamic_slices, with_lengths
from patcomp.frontend_torch.sizes.small_sizes import with_small_sizes
from patcomp.ir.aten_facts import ops_where
from patcomp.pytorch import pytree
from tests.frontend_torch.models import Function

ops = torch.ops.aten
FOLLOWED: dict[str, Callable[[Tensor], Any]] = {
    "_softmax": lambda s: ops._softmax.default(s, 1, False),
    "_to_copy": lambda s: ops._to_copy.default(s, dtype=torch.float64),
    "addmm": lambda s: torch.addmm(torch.ones(4), s, torch.ones(4, 4)),
    "alias": lambda s: ops.alias.default(s),
    "all": lambda s: s.all(),
    "all.dim": lambda s: s.all(1),
    "amax": lambda s: s.amax(0),
    "amin": lambda s: s.amin(1),
    "any": lambda s: s.any(),
    "any.dim": lambda s: s.any(1),
    "bmm": lambda s: torch.bmm(s[None], torch.ones(1, 4, 5)),
    "cat": lambda s: torch.cat([s, s, torch.ones(1, 4)]),
    "chunk": lambda s: s.chunk(2, 1)[0],
    "clone": lambda s: s.clone(),
    "contiguous": lambda s: s.t().contiguous(),
    "cumsum": lambda s: s.cumsum(0),
    "detach": lambda s: s.detach(),
    "embedding": lambda s: F.embedding(s.long().abs(), torch.ones(99, 6)),
    "expand": lambda s: s.expand(6, -1, -1),
    "flatten.using_ints": lambda s: s.flatten(),
    "full_like": lambda s: torch.full_like(s, 6),
    "layer_norm": lambda s: F.layer_norm(s, (4,)),
    "linalg_vector_norm": lambda s: torch.linalg.vector_norm(s, dim=1),
    "linear": lambda s: F.linear(s, torch.ones(5, 4)),
    "log_softmax.int": lambda s: s.log_softmax(-1),
    "logsumexp": lambda s: s.logsumexp(1),
    "matmul": lambda s: s @ torch.ones(4, 5),
    "max": lambda s: s.max(),
    "max.dim": lambda s: s.max(1)[0],
    "mean": lambda s: s.mean(),
    "mean.dim": lambda s: s.mean(1),
    "min": lambda s: s.min(),
    "min.dim": lambda s: s.min(1)[1],
    "mm": lambda s: torch.mm(s, torch.ones(4, 5)),
    "native_layer_norm": lambda s: ops.native_layer_norm.default(s, [4], None, None, 1e-5)[0],
    "numpy_T": lambda s: s.T,
    "ones_like": lambda s: torch.ones_like(s),
    "permute": lambda s: s.permute(1, 0),
    "prod": lambda s: s.prod(),
    "prod.dim_int": lambda s: s.prod(1),
    "reshape": lambda s: s.t().reshape(-1),
    "rms_norm": lambda s: F.rms_norm(s, (4,)),
    "scaled_dot_product_attention": lambda s: F.scaled_dot_product_attention(s[None], s[None], s[None]),
    "select.int": lambda s: s.select(1, 3),
    "slice.Tensor": lambda s: s[:, 1:3],
    "softmax.int": lambda s: s.softmax(0),
    "squeeze.dim": lambda s: s[:, :1].squeeze(1),
    "stack": lambda s: torch.stack([s, s], 1),
    "std.correction": lambda s: s.std(1, correction=0),
    "std.dim": lambda s: ops.std.dim(s, [1]),
    "sum": lambda s: s.sum(),
    "sum.dim_IntList": lambda s: s.sum(1),
    "t": lambda s: s.t(),
    "to.dtype": lambda s: ops.to.dtype(s, torch.float64),
    "transpose.int": lambda s: s.transpose(0, 1),
    "unbind.int": lambda s: s.unbind(1)[3],
    "unsqueeze": lambda s: s.unsqueeze(1),
    "var.correction": lambda s: s.var(1, correction=0),
    "var.dim": lambda s: ops.var.dim(s, [1]),
    "view": lambda s: s.clone().view(-1),
    "where.Scalar": lambda s: torch.where(s > 0, 1.0, 2.0),
    "where.ScalarOther": lambda s: torch.where(s > 0, s, 2.0),
    "where.ScalarSelf": lambda s: torch.where(s > 0, 1.0, s),
    "zeros_like": lambda s: torch.zeros_like(s),
    # elementwise ops
    "add.Tensor": lambda s: s + s,
    "relu": lambda s: s.relu(),
}
N = Dim("n", min=1, max=9)


def exported(model: Callable[..., Any]) -> ExportedProgram:
    return torch.export.export(Function(model), (torch.randn(5, 4, 4),), dynamic_shapes=(({0: N},),))


def symbol_of(program: ExportedProgram) -> sympy.Symbol:
    (value,) = (node.meta["val"] for node in program.graph.find_nodes(op="placeholder") if "args" in node.name)
    return value.shape[0].node.expr


def shapes(program: ExportedProgram, lengths: Lengths, size: int) -> list[list[int]]:
    """The shapes of a program's results at a size of its input."""
    numbers = with_lengths({symbol_of(program): size}, lengths)

    def number(dim: Any) -> int:
        return int(dim.node.expr.xreplace(numbers)) if isinstance(dim, SYMBOLIC) else dim

    results = [node.meta["val"] for node in program.graph.output_node().args[0]]
    return [[number(dim) for dim in leaf.shape] for leaf in pytree.tree_leaves(results)]


@pytest.mark.parametrize("start", range(0, len(FOLLOWED), 12))
def test_what_follows_a_short_slice(start: int) -> None:
    names = list(FOLLOWED)[start : start + 12]

    def model(x: Tensor) -> Any:
        part = x.flatten(0, 1)[:7] * 1
        return tuple(FOLLOWED[name](part) for name in names)

    program = exported(model)
    assert {f"aten.{name}" for name in names} <= {operator_name(node) for node in program.graph.nodes}
    changed = with_dynamic_slices(program, [{symbol_of(program): 1}])
    assert changed is not None, f"one of {names} is not followed"
    for size in range(1, 10):
        assert shapes(*changed, size) == [list(result.shape) for result in model(torch.ones(size, 4, 4))]
    converter = TorchConverter()
    _, problems, conditions = Decomposer(converter.rules, converter.lowerings).expansions(changed[0])
    assert (problems, conditions) == ([], []), "what follows must be decomposed for every length"


def test_every_op_has_a_case() -> None:
    assert {f"aten.{name}" for name in FOLLOWED} >= ops_where("any_length")


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "an op that is not followed": lambda x: x.flatten(0, 1)[:7].sort(0)[0],
    "a number that may be the length": lambda x: x.flatten(0, 1)[:7] * 7,
    "a shape with the length": lambda x: x.flatten(0, 1)[:7].reshape(28),
    "another operand of the length": lambda x: x.flatten(0, 1)[:7] + torch.ones(7, 4),
    "no slice": lambda x: x + 1,
    "a slice that is long enough": lambda x: x.flatten(0, 1)[:3] + 1,
    "a slice of a static dimension": lambda x: x[:, :3] + 1,
}


@pytest.mark.parametrize("name", REFUSED)
def test_programs_that_stay_as_they_are(name: str) -> None:
    program = exported(REFUSED[name])
    before = str(program)
    assert with_dynamic_slices(program, [{symbol_of(program): 1}]) is None
    assert str(program) == before


def test_a_length_has_the_range_of_its_values() -> None:
    program = exported(lambda x: (x.flatten(0, 1)[:7] + 1,))
    changed = with_dynamic_slices(program, [{symbol_of(program): 1}])
    assert changed is not None
    (length,) = changed[1]
    (result,) = (node.meta["val"] for node in changed[0].graph.output_node().args[0])
    limits = result.shape[0].node.shape_env.var_to_range[length]
    assert (limits.lower, limits.upper) == (4, 7)


def test_each_length_has_a_symbol() -> None:
    def model(x: Tensor) -> tuple[Tensor, ...]:
        rows = x.flatten(0, 1)
        return rows[:7] + 1, rows[:6].exp(), rows[:7].exp(), rows[2:] + 1

    program = exported(model)
    changed = with_dynamic_slices(program, [{symbol_of(program): 1}])
    assert changed is not None
    assert len(changed[1]) == 2
    for size in (1, 2, 9):
        assert shapes(*changed, size) == [list(result.shape) for result in model(torch.ones(size, 4, 4))]


def test_numbers_of_axes_are_no_lengths() -> None:
    program = exported(lambda x: (x.flatten(0, 1)[:7].unsqueeze(0).unsqueeze(0).unflatten(3, (2, 2)).sum(4),))
    assert with_dynamic_slices(program, [{symbol_of(program): 1}]) is None, "unflatten is not followed"
    wide = exported(lambda x: (x.flatten(0, 1)[:7][..., None, None, None, None, None, None].sum(7),))
    assert with_dynamic_slices(wide, [{symbol_of(wide): 1}]) is not None


def small(model: Callable[..., Any], low: int = 1, **options: Any) -> tuple[bool, list[Any], list[Any]]:
    """Whether a program was changed; the sizes and errors of the expected and of the other failures."""
    dims = {0: Dim("n", min=low, max=9)}
    program = torch.export.export(Function(model), (torch.randn(5, 4, 4),), dynamic_shapes=((dims,),))
    symbol = symbol_of(program)
    given = {"holds": lambda case: True} | options
    changed, _, expected, others = with_small_sizes(program, {symbol: (low, 9)}, **given)
    found = [
        [(tuple(size for _, size in wrong.sizes), bool(wrong.error)) for wrong in each] for each in (expected, others)
    ]
    return changed is not program, *found  # type: ignore[return-value]


def a_short_slice(x: Tensor) -> tuple[Tensor, ...]:
    return (x.flatten(0, 1)[:7] + 1,)


SMALL: dict[str, tuple[Callable[..., Any], int, tuple[bool, list[Any], list[Any]]]] = {
    "all sizes are right": (lambda x: (x.sum(0),), 0, (False, [], [])),
    "nothing is small": (a_short_slice, 2, (False, [], [])),
    "a slice": (a_short_slice, 1, (True, [], [((1,), False)])),
    "a slice from 0": (a_short_slice, 0, (True, [((0,), False)], [((1,), False)])),
    "a squeeze": (lambda x: (x.squeeze(),), 1, (False, [((1,), False)], [])),
    "an op that fails at 0": (lambda x: (x.amax(0),), 0, (False, [((0,), True)], [])),
    "an op that fails at 1 and 0": (lambda x: (x.select(0, 1),), 0, (False, [((1,), True), ((0,), True)], [])),
    "a slice and an op that fails at 0": (
        lambda x: (*a_short_slice(x), x.amax(0)),
        0,
        (True, [((0,), False)], [((1,), False)]),
    ),
    "a slice of a tensor made by its size": (
        lambda x: (torch.zeros(x.shape[0] * 4, 3)[:7] + 1,),
        1,
        (True, [], [((1,), False)]),
    ),
    "a view with a size": (
        lambda x: (x.new_zeros(x.shape[0], 4).expand(3, x.shape[0], 4).squeeze(),),
        1,
        (False, [((1,), False)], []),
    ),
    "a slice of the second dimension": (lambda x: (x.flatten(0, 1).t()[:, :7] + 1,), 1, (True, [], [((1,), False)])),
    "a slice that only 0 makes shorter": (
        lambda x: (*a_short_slice(x), x.flatten(0, 1)[:4] + torch.ones(4, 4)),
        0,
        (True, [((0,), False)], [((1,), False)]),
    ),
    "a slice that starts at a size": (
        lambda x: (torch.arange(9.0)[x.shape[0] - 2 :] * 2,),
        1,
        (False, [((1,), False)], []),
    ),
    "an op with options that fails at 0": (
        lambda x: (torch.linalg.vector_norm(x, torch.inf, 0, dtype=torch.float64),),
        0,
        (False, [((0,), True)], []),
    ),
    "elementwise": (lambda x: (x + x * 2,), 0, (False, [], [])),
    "a slice of one": (lambda x: (x[:1] + x.new_ones(x.shape[0], 4, 4),), 0, (False, [((0,), False)], [])),
}


@pytest.mark.parametrize("name", SMALL)
def test_failures_at_small_sizes(name: str) -> None:
    model, low, expected = SMALL[name]
    assert small(model, low) == expected


def test_a_copy_that_does_not_help_is_not_used() -> None:
    assert small(a_short_slice, holds=lambda case: 1 not in case.values()) == (False, [], [])
    both = small(lambda x: (*a_short_slice(x), x.squeeze()), 1)
    assert both == (False, [((1,), False)], [])


def test_sizes_that_guards_exclude_change_no_slice() -> None:
    """The second slice is shorter where k is 1, which the guards exclude; its length must be known."""
    dims = {0: Dim("n", min=1, max=9), 2: Dim("k", min=1, max=9)}
    program = torch.export.export(
        Function(lambda x: (x.flatten(0, 1)[:7] + 1, x.flatten(1)[:, :6] + torch.ones(6))),
        (torch.randn(5, 4, 6),),
        dynamic_shapes=((dims,),),
    )
    (value,) = (node.meta["val"] for node in program.graph.find_nodes(op="placeholder"))
    n, k = (value.shape[axis].node.expr for axis in (0, 2))
    ranges = {n: (1, 9), k: (1, 9)}
    changed, _, *found = with_small_sizes(program, ranges, lambda case: case[k] > 1)
    assert changed is not program
    assert [[wrong.sizes for wrong in each] for each in found] == [[], [((n, 1),)]]


def test_failures_name_the_small_sizes_only() -> None:
    dims = {0: Dim("n", min=1, max=9), 1: Dim("m", min=3, max=9), 2: Dim("k", min=1, max=9)}
    program = torch.export.export(
        Function(lambda x: (x.transpose(0, 1).flatten(0, 1)[:4] + 1, x.squeeze(2))),
        (torch.randn(5, 4, 6),),
        dynamic_shapes=((dims,),),
    )
    (value,) = (node.meta["val"] for node in program.graph.find_nodes(op="placeholder"))
    n, m, k = (size.node.expr for size in value.shape)
    ranges = {n: (1, 9), m: (3, 9), k: (1, 9)}
    failures = with_small_sizes(program, ranges, lambda case: True).wrong
    assert [wrong.sizes for wrong in failures] == [((n, 1),), ((k, 1),)]
    assert [operator_name(wrong.node) for wrong in failures] == ["aten.slice.Tensor", "aten.squeeze.dim"]
