"""Which lost bits and which roundings an op passes on, against what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.ir import IRModule, aten, coreai, tensor
from patcomp.ir.aten_facts import facts_of
from patcomp.ir.extents import mark_masks
from patcomp.ir.types import ELEMENT_OF_TORCH, element_type
from patcomp.ir.value import Value
from patcomp.narrowing.analysis import NarrowingFacts, Ranges
from patcomp.narrowing.check import check_narrowing
from patcomp.narrowing.index_uses import INDEX_POSITIONS, bound_by_use
from patcomp.narrowing.ranges import ANY_NUMBER, Range
from patcomp.narrowing.widths import Widths
from tests.helpers.programs import program
from tests.helpers.ranged_ops import OPS, Filled, index, mapped, overload

LAYOUT = ("device", "layout", "memory_format", "non_blocking", "pin_memory")
V, M = Filled((4,), -9, 9), Filled((4, 4), -9, 9)
IMAGE = Filled((1, 4, 2, 2), -9, 9)
LINES = Filled((2, 3, 4), -9, 9)

CALLS: list[tuple[str, tuple[Any, ...]]] = [
    *(
        (name, arguments)
        for name, arguments in OPS
        if any(isinstance(each, Filled) for each in arguments) and name != "sym_size.int"
    ),
    *((f"{name}.Tensor", (V, Filled((4,), -8, 9))) for name in ("add", "sub", "mul", "rsub")),
    *((f"{name}.Scalar", (V, 3)) for name in ("add", "sub", "mul", "rsub", "remainder", "fmod", "lt", "eq")),
    *((f"bitwise_{name}.Tensor", (V, Filled((4,), -8, 9))) for name in ("and", "or", "xor")),
    *((f"bitwise_{name}.Scalar", (V, 77)) for name in ("and", "or", "xor")),
    *((name, (V,)) for name in ("neg", "abs", "sign", "bitwise_not", "logical_not", "relu")),
    *((name, (V, Filled((4,), -8, 9))) for name in ("maximum", "minimum", "gcd", "lt.Tensor", "ge.Tensor")),
    ("clamp", (V, -5, 5)),
    ("pow.Tensor_Scalar", (V, 2)),
    ("cumprod", (M, 0)),
    ("prod", (V,)),
    ("prod.dim_int", (M, 1)),
    ("mm", (M, Filled((4, 4), -8, 8))),
    ("bmm", (LINES, Filled((2, 4, 3), -8, 8))),
    ("matmul", (M, V)),
    ("addmm", (V, M, Filled((4, 4), -8, 8))),
    ("scatter_add", (M, 0, index(1, 2)[None], Filled((1, 2), -8, 8))),
    ("scatter_reduce.two", (M, 0, index(1, 2)[None], Filled((1, 2), -8, 8), "amax")),
    # views
    ("_unsafe_view", (M, [16])),
    ("alias", (V,)),
    ("clone", (V,)),
    ("contiguous", (V,)),
    ("detach", (V,)),
    ("expand", (V, [2, 4])),
    ("flip", (M, [0])),
    ("lift_fresh_copy", (V,)),
    ("permute", (M, [1, 0])),
    ("reshape", (M, [2, 8])),
    ("squeeze", (IMAGE,)),
    ("squeeze.dim", (IMAGE, 0)),
    ("squeeze.dims", (IMAGE, [0])),
    ("t", (M,)),
    ("transpose.int", (M, 0, 1)),
    ("unsqueeze", (V, 0)),
    ("view", (M, [16])),
    # selections
    ("as_strided", (M, [2, 2], [4, 1])),
    ("diagonal", (M,)),
    ("gather", (M, 0, index(1, 2)[None])),
    ("index.Tensor", (M, [index(1, 2)])),
    ("index_select", (M, 1, index(1, 2))),
    ("masked_select", (V, torch.tensor([True, False, True, True]))),
    ("pixel_shuffle", (IMAGE, 2)),
    ("repeat", (V, [2])),
    ("repeat_interleave.self_int", (V, 2)),
    ("select.int", (M, 0, 1)),
    ("slice.Tensor", (V, 0, 1)),
    ("unfold", (V, 0, 2, 1)),
    # other moves
    ("_unsafe_index_put", (V, [index(1)], Filled((1,), -8, 8))),
    ("index_put", (V, [index(1)], Filled((1,), -8, 8))),
    ("where.Scalar", (torch.tensor([True, False]), 3, 5)),
    ("where.ScalarOther", (torch.tensor([True, False, True, False]), V, 5)),
    ("where.ScalarSelf", (torch.tensor([True, False, True, False]), 5, V)),
]
"""Ops, and arguments that are integers."""
CALLS = [call for call in CALLS if not any(getattr(each, "dtype", 0) == torch.float32 for each in call[1])]
MORE_THAN_NEEDED = {"scatter_reduce.two", "pow.Tensor_Scalar"}
"""Ops whose results do not show lost bits, although the analysis does not know it, or only for some arguments."""


@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=[f"{name} {place}" for place, (name, _) in enumerate(CALLS)])
def test_lost_bits_matter_where_they_change_the_low_bits(name: str, arguments: tuple[Any, ...]) -> None:
    """32 bits are enough if the low bits of the results follow from the low bits of the operands."""
    warned = bool(check_narrowing(passed_on(name, arguments), Widths()).diagnostics)
    matter = changes_low_bits(name, arguments)
    assert warned == matter or (warned and name in MORE_THAN_NEEDED)


def passed_on(name: str, arguments: tuple[Any, ...], *, to: Callable[[Value], Value] | None = None) -> IRModule:
    """A program whose op gets products that do not fit 32 bits, and that returns the lowest bits of its results."""
    tensors = list(dict.fromkeys(_leaves(arguments)))

    def body(*inputs: Value) -> list[Value]:
        large = {each: product(value, 1_000_003) for each, value in zip(tensors, inputs, strict=True)}
        results = called(name, arguments, large)
        return [low_bits(result) for result in results if result.dtype in ("si64", "i1")]

    return program({f"x{place}": spelled(each) for place, each in enumerate(tensors)}, body)


def called(name: str, arguments: tuple[Any, ...], tensors: dict[Filled, Value]) -> list[Value]:
    """Build an op; its result types are those of PyTorch."""
    example = mapped(
        arguments, lambda each: torch.ones(each.shape, dtype=each.dtype) if isinstance(each, Filled) else each
    )
    made = overload(name)(*example)
    made = list(made) if isinstance(made, tuple | list) else [made]
    types = [tensor(tuple(each.shape), ELEMENT_OF_TORCH[str(each.dtype)[6:]]) for each in made]
    schema = overload(name)._schema.arguments
    given = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    values = mapped(arguments, lambda each: tensors[each] if isinstance(each, Filled) else constant(each))
    given |= dict(zip((argument.name for argument in schema), values, strict=False))
    return list(aten.build(f"aten.{name}", types, **{key: each for key, each in given.items() if key not in LAYOUT}))


def constant(values: torch.Tensor) -> Value:
    return coreai.constant(values.numpy(), ELEMENT_OF_TORCH[str(values.dtype)[6:]])


def number(value: int) -> Value:
    return coreai.constant(np.array(value), "si64")


def product(x: Value, factor: int) -> Value:
    return aten.build("aten.mul.Tensor", x.type, self=x, other=number(factor))


def low_bits(x: Value) -> Value:
    if x.dtype == "i1":
        return x
    return aten.build("aten.bitwise_and.Tensor", x.type, self=x, other=number(1023))


def spelled(each: Filled) -> str:
    return "x".join([*map(str, each.shape), ELEMENT_OF_TORCH[str(each.dtype)[6:]]])


def _leaves(arguments: Any) -> list[Filled]:
    if isinstance(arguments, list | tuple):
        return [leaf for each in arguments for leaf in _leaves(each)]
    return [arguments] if isinstance(arguments, Filled) else []


def changes_low_bits(name: str, arguments: tuple[Any, ...]) -> bool:
    """Whether PyTorch's results have other low bits if the operands are cut to 32 bits."""
    random = torch.Generator().manual_seed(0)
    for _ in range(20):
        drawn = {
            each: torch.randint(-9, 9, each.shape, generator=random)
            + 2**32 * torch.randint(-3, 3, each.shape, generator=random)
            for each in dict.fromkeys(_leaves(arguments))
        }
        cut = {each: value.to(torch.int32).to(torch.int64) for each, value in drawn.items()}
        wide, narrow = (
            overload(name)(
                *mapped(
                    arguments, lambda each, known=known: known.get(each, each) if isinstance(each, Filled) else each
                )
            )
            for known in (drawn, cut)
        )
        wide, narrow = (list(each) if isinstance(each, tuple | list) else [each] for each in (wide, narrow))
        if any(not torch.equal(_low(a), _low(b)) for a, b in zip(wide, narrow, strict=True)):
            return True
    return False


def _low(x: Any) -> torch.Tensor:
    x = torch.as_tensor(x)
    return x if x.dtype == torch.bool else x & 1023


# ---- facts ---------------------------------------------------------------------------------------


def facts(body: Callable[..., Value], **inputs: str) -> tuple[NarrowingFacts, list[Value]]:
    made: list[Value] = []
    module = program(inputs, lambda *values: made.append(body(*values)) or made[0])
    return NarrowingFacts(module, Widths()), made


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([3, -7, 5]), Range(-7, 5)),
        (np.array([0.5, -2.0]), Range(-2.0, 0.5)),
        (np.array([0.1, -2.0]), Range(-2.0, 0.1, rounded=True)),
        (np.array([1.0, np.inf, np.nan, -np.inf]), Range(1.0, 1.0)),
        (np.array([np.nan]), Range(0, 0)),
        (np.array([1e300]), Range(1e300, 1e300, rounded=True)),
        (np.zeros((0,)), Range(0, 0)),
        (np.array([True, True]), Range(True, True)),
        (np.array([0.1], np.float32), Range(np.float32(0.1).item(), np.float32(0.1).item())),
    ],
    ids=str,
)
def test_ranges_of_constants(values: np.ndarray, expected: Range) -> None:
    element = ELEMENT_OF_TORCH[str(torch.from_numpy(values).dtype)[6:]]
    known, (made,) = facts(lambda x: coreai.constant(values, element), x="4xf32")
    assert known.constant(made.ssa) == expected
    assert known.constant(made.ssa) is known.constant(made.ssa)


def test_weights_of_floats_are_not_read_but_narrowed_ones_are() -> None:
    random = np.random.default_rng(0).normal(size=(40, 40))
    for values, expected in (
        (random.astype(np.float32), None),
        (random, (random.min(), random.max())),
        (
            (random * 100).astype(np.int64),
            ((random * 100).astype(np.int64).min(), (random * 100).astype(np.int64).max()),
        ),
    ):
        element = ELEMENT_OF_TORCH[str(torch.from_numpy(values).dtype)[6:]]
        known, (made,) = facts(lambda x, v=values, e=element: coreai.constant(v, e), x="4xf32")
        found = known.constant(made.ssa)
        assert (found.low, found.high) == (expected or (-3.4028235e38, 3.4028235e38))


def test_an_op_without_a_function_has_the_range_of_its_type() -> None:
    assert not facts_of("aten.bincount").range
    known, (made,) = facts(
        lambda x: aten.build("aten.bincount", tensor((None,), "si64"), self=x, weights=None, minlength=0), x="4xsi64"
    )
    found = Ranges(known, {})
    assert found.known[made.ssa] == known.nominal(made.ssa)
    assert [change.op.name for change in found.changes.values()] == ["aten.bincount"]


def test_the_inputs_that_may_not_fit() -> None:
    known, _ = facts(lambda i, f, j, k: f, i="4xsi64", f="4xf32", j="4xsi32", k="4xsi64")
    block = known.module.graph("main").regions[0].block
    mark_masks(known.module.graph("main"), [False, False, False, True])
    assert known.free_inputs() == {block.args[0]: 2**30 - 1, block.args[3]: 1}
    assert [Ranges(known, {}).known[argument] for argument in block.args] == [
        Range(1 - 2**30, 2**30 - 1),
        Range(-3.4028235e38, 3.4028235e38),
        Range(-(2**31), 2**31 - 1),
        Range(1 - 2**30, 2**30 - 1),
    ]
    assert Ranges(known, {block.args[3]: 1}).known[block.args[3]] == Range(-1, 1)


# ---- messages and limits -------------------------------------------------------------------------


def plus(x: Value, other: Value | int) -> Value:
    other = other if isinstance(other, Value) else number(other)
    return aten.build("aten.add.Tensor", x.type, self=x, other=other, alpha=1)


LIMITS: dict[str, tuple[Callable[[Value, Value, Value], list[Value]], dict[str, int]]] = {
    "nothing is computed": (lambda x, y, m: [x, y, m], {}),
    "a sum with one": (lambda x, y, m: [plus(x, 1), y], {"x": 2**31 - 2}),
    "a sum with five": (lambda x, y, m: [plus(x, 5), y], {"x": 2**31 - 6}),
    "a sum of inputs": (lambda x, y, m: [plus(x, y)], {"x": 2**30 - 1, "y": 2**30 - 1}),
    "a product with a mask": (lambda x, y, m: [product(m, 2**30), x], {"m": 1}),
    "a larger product with a mask": (lambda x, y, m: [product(m, 1000), plus(y, 2)], {"m": 2147483, "y": 2**30 - 1}),
    "a product that does not fit anyway": (lambda x, y, m: [product(x, 5), y], {}),
    "a product that is cut": (lambda x, y, m: [low_bits(product(x, 5)), plus(y, 1)], {"y": 2**31 - 2}),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_inputs(name: str) -> None:
    body, expected = LIMITS[name]
    module = program({"x": "4xsi64", "y": "4xsi64", "m": "4xsi64"}, body)
    mark_masks(module.graph("main"), [False, False, True])
    assert check_narrowing(module, Widths()).limits == ({"main": expected} if expected else {})
    assert check_narrowing(module, Widths("keep", "keep")).limits == {}
    del module.graph("main").properties["arg_attrs"]
    assert check_narrowing(module, Widths()).limits == {}, "an input without a name"


@pytest.mark.parametrize(
    ("factors", "shown"),
    [([3], "about -3.2e+09"), ([1, 2**53], "about 9.2e+18"), ([2**30, 2**30], "any number")],
)
def test_the_largest_number_is_shown(factors: list[int], shown: str) -> None:
    def body(x: Value) -> Value:
        for factor in factors[:-1]:
            x = low_bits(x)
            x = product(x, factor)
        return product(x, factors[-1])

    (diagnostic,) = check_narrowing(program({"x": "4xsi64"}, body), Widths()).diagnostics
    assert diagnostic.message.endswith(f"it may be {shown}")
    assert diagnostic.advice == "convert with int64='keep' to compute in 64 bits"


# ---- uses as indices and sizes -------------------------------------------------------------------


def op(name: str, shape: tuple[int | None, ...], element: str = "f32", **arguments: Any) -> Value:
    return aten.build(f"aten.{name}", tensor(shape, element), **arguments)


def embedded(i: Value, table: Value) -> Value:
    return op("embedding", (4, 2), weight=table, indices=i, padding_idx=-1, scale_grad_by_freq=False, sparse=False)


def minus(i: Value, count: int) -> Value:
    return op("sub.Tensor", (4,), "si64", self=i, other=number(count), alpha=2)


SIZE = Range(0, 1 << 23, size=True)
Use = Callable[[Value, Value], Value]
"""An op that takes a vector of four integers and a table of 12 rows and 2 columns."""
USES: dict[str, tuple[Use, Range]] = {
    "rows of a table": (embedded, Range(0, 11)),
    "rows after a sum": (lambda i, t: embedded(plus(i, 3), t), Range(-3, 8)),
    "rows after a difference": (lambda i, t: embedded(minus(i, 5), t), Range(10, 21)),
    "rows after two sums": (lambda i, t: embedded(minus(plus(i, 3), 5), t), Range(7, 18)),
    "rows after a sum of unknown numbers": (lambda i, t: embedded(plus(i, i), t), ANY_NUMBER),
    "rows after a sum with several numbers": (
        lambda i, t: embedded(plus(i, coreai.constant(np.array([1, 2, 3, 4]), "si64")), t),
        ANY_NUMBER,
    ),
    "rows after a product": (lambda i, t: embedded(product(i, 3), t), ANY_NUMBER),
    "rows of a view": (lambda i, t: embedded(op("flip", (4,), "si64", self=i, dims=[0]), t), Range(0, 11)),
    "some of the rows": (
        lambda i, t: embedded(op("slice.Tensor", (2,), "si64", self=i, dim=0, start=0, end=2, step=1), t),
        ANY_NUMBER,
    ),
    "rows after a cast": (
        lambda i, t: embedded(op("_to_copy", (4,), "si64", self=i, dtype=element_type("si64")), t),
        Range(0, 11),
    ),
    "rows after a cast that wraps": (
        lambda i, t: embedded(op("_to_copy", (4,), "si32", self=i, dtype=element_type("si32")), t),
        ANY_NUMBER,
    ),
    "selected columns": (lambda i, t: op("index_select", (12, 4), self=t, dim=1, index=i), Range(0, 1)),
    "gathered rows": (lambda i, t: op("gather", (4,), self=t, dim=-2, index=i, sparse_grad=False), Range(0, 11)),
    "what is gathered": (
        lambda i, t: op("gather", (4,), "si64", self=i, dim=0, index=number(0), sparse_grad=False),
        ANY_NUMBER,
    ),
    "indices of rows": (lambda i, t: op("index.Tensor", (4, 2), self=t, indices=[i]), Range(-12, 11)),
    "indices of columns": (lambda i, t: op("index.Tensor", (12, 4), self=t, indices=[None, i]), Range(-2, 1)),
    "indices beside a mask": (
        lambda i, t: op("index.Tensor", (4,), self=t, indices=[constant(torch.ones(12, dtype=torch.bool)), i]),
        ANY_NUMBER,
    ),
    "rows of a table with an open size": (
        lambda i, t: embedded(i, op("slice.Tensor", (None, 2), self=t, dim=0, start=0, end=9, step=1)),
        Range(0, (1 << 23) - 1),
    ),
    "an index of a single number": (
        lambda i, t: op("index_select", (), self=op("sum", (), self=t, dtype=None), dim=0, index=i),
        Range(0, 0),
    ),
    "sizes of a view": (lambda i, t: op("view", (None,), self=t, size=[i]), SIZE),
    "a size of other indices": (
        lambda i, t: embedded(op("view", (None,), "si64", self=constant(torch.zeros(8).long()), size=[i]), t),
        SIZE,
    ),
    "repeats": (lambda i, t: op("repeat", (None, 2), self=t, repeats=[i, 1]), SIZE),
    "sizes of parts": (
        lambda i, t: op("split_with_sizes", (None, 2), self=t, split_sizes=[i], dim=0),
        SIZE,
    ),
    "sizes after a sum": (lambda i, t: op("view", (None,), self=t, size=[plus(i, 3)]), Range(-3, (1 << 23) - 3)),
    "two uses": (
        lambda i, t: op("add.Tensor", (4, 2), self=embedded(i, t), other=embedded(plus(i, 3), t), alpha=1),
        Range(0, 8),
    ),
    "a use that says nothing": (
        lambda i, t: op("add.Tensor", (4, 2), self=embedded(i, t), other=product(i, 3), alpha=1),
        Range(0, 11),
    ),
}


@pytest.mark.parametrize("name", USES)
def test_bounds_by_use(name: str) -> None:
    use, expected = USES[name]
    module = program({"i": "4xsi64", "t": "12x2xf32"}, use)
    assert bound_by_use(module.graph("main").regions[0].block.args[0]) == expected
    made: list[Value] = []
    program({"i": "4xsi64", "t": "12x2xf32"}, lambda i, t: use(made.append(product(i, 7)) or made[0], t))
    assert bound_by_use(made[0].ssa) == expected


@pytest.mark.parametrize("element", ["si64", "ui64"])
def test_casts_to_64_bits_keep_lost_bits(element: str) -> None:
    def body(n: Value) -> Value:
        return op("_to_copy", (), element, self=product(n, 1_000_003), dtype=element_type(element))

    (warning,) = check_narrowing(program({"n": "si64"}, body), Widths()).diagnostics
    assert "mul" in str(warning)


def test_indices_and_sizes_are_arguments_of_pytorch() -> None:
    schemas = [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::")]
    assert {argument.name for schema in schemas for argument in schema.arguments} >= INDEX_POSITIONS


POSITIONS_ONLY: dict[str, Callable[[Value, Value], Value]] = {
    "start": lambda n, t: op("slice.Tensor", (None, 2), self=t, dim=0, start=n, end=None, step=1),
    "end": lambda n, t: op("slice.Tensor", (None, 2), self=t, dim=0, start=0, end=n, step=1),
    "index": lambda n, t: op("select.int", (2,), self=t, dim=0, index=n),
    "length": lambda n, t: op("narrow", (None, 2), self=t, dim=0, start=0, length=n),
    "size": lambda n, t: op("view", (None,), self=t, size=[n]),
    "repeats": lambda n, t: op("repeat", (None, 2), self=t, repeats=[n, 1]),
    "split_sizes": lambda n, t: op("split_with_sizes", (None, 2), self=t, split_sizes=[n, 3], dim=0),
    "split_size": lambda n, t: op("split.Tensor", (None, 2), self=t, split_size=n, dim=0),
    "an index that is moved": lambda n, t: op(
        "index_select",
        (1, 2),
        self=t,
        dim=0,
        index=aten.build(
            "aten.roll", tensor((1,), "si64"), self=op("view", (1,), self=n, size=[1]), shifts=[0], dims=[]
        ),
    ),
    "pad": lambda n, t: op("constant_pad_nd", (None, None), self=t, pad=[n, 0], value=0),
    "k": lambda n, t: op("topk", (None, 2), self=t, k=n, dim=0, largest=True, sorted=True),
    "indices": lambda n, t: op(
        "index_put",
        (12, 2),
        self=t,
        indices=[constant(torch.ones(12, dtype=torch.bool)), n],
        values=t,
        accumulate=False,
    ),
    "storage_offset": lambda n, t: op("as_strided", (2, 2), self=t, size=[2, 2], stride=[1, 1], storage_offset=n),
    "stride": lambda n, t: op("as_strided", (2, 2), self=t, size=[2, 2], stride=[n, 1], storage_offset=0),
    "step": lambda n, t: op("slice.Tensor", (None, 2), self=t, dim=0, start=0, end=9, step=n),
    "offset": lambda n, t: op("diagonal", (None,), self=t, offset=n, dim1=0, dim2=1),
}


@pytest.mark.parametrize("name", POSITIONS_ONLY)
def test_lost_bits_of_positions_do_not_matter(name: str) -> None:
    module = program({"n": "si64", "t": "12x2xf32"}, lambda n, t: POSITIONS_ONLY[name](product(n, 7), t))
    assert check_narrowing(module, Widths()).diagnostics == ()


def test_lost_bits_of_a_shift_matter_also_if_indices_are_shifted() -> None:
    """Wherever an index is shifted to, it is a valid one, but another one."""

    def body(n: Value, t: Value) -> Value:
        shifted = op("roll", (4,), "si64", self=constant(torch.arange(4)), shifts=[product(n, 7)], dims=[0])
        return op("index_select", (4, 2), self=t, dim=0, index=shifted)

    (warning,) = check_narrowing(program({"n": "si64", "t": "12x2xf32"}, body), Widths()).diagnostics
    assert "mul" in str(warning)
