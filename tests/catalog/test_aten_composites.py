"""Composites from ATen ops that export keeps whole: declarations word by word, options, and what is no composite.

The rules' examples run in `test_rules`; here is what they do not say.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from patcomp.emit.native import Native
from patcomp.ir.verify import verify
from tests.catalog.cases import (
    Case,
    assert_all_agree,
    assert_refused,
    check_on_evaluator,
    compile_case,
    make_case,
    param,
    values,
)
from tests.catalog.declarations import declarations
from tests.helpers.thorough import drawn

MANY = drawn(25)


def _attributes(attributes: str) -> str:
    return (
        '#coreai.composite_declaration<"linalg_vector_norm" = {input_names = ["input"], '
        f"op_attrs = {{{attributes}, version = 1 : si64}}, "
        'output_names = ["output"]}>'
    )


_POOL = (
    '#coreai.composite_declaration<"avg_pool_{}d" = {{input_names = ["input", "kernel_size", "stride", "padding", '
    '"ceil_mode", "count_include_pad", "divisor_override"], op_attrs = {{version = 1 : si64}}, '
    'output_names = ["output"]}}>'
)
_NORM = "axes = [-1 : si64], keep_dim = {}, ord = {}"

EXPECTED = [
    (
        param(
            "instance norm", "instance_norm",
            "2x4x5x3xf32", "4xf32", "4xf32", None, None, True, 0.1, 0.5, False,
        ),
        '#coreai.composite_declaration<"instance_norm" = {input_names = ["input", "gamma", "beta"], '
        'op_attrs = {eps = 5.000000e-01 : f32, version = 1 : si64}, output_names = ["output"]}>',
    ),
    (param("norm", "linalg_vector_norm", "2x3xf32", 2, [-1]), _attributes(_NORM.format("false", "2 : si64"))),
    (
        param("norm of a float order", "linalg_vector_norm", "2x3xf32", 2.0, [-1], True),
        _attributes(_NORM.format("true", "2.000000e+00 : f32")),
    ),
    (
        param("norm of order 3", "linalg_vector_norm", "2x3xf32", 3, [-1]),
        _attributes(_NORM.format("false", "3 : si64")),
    ),
    (
        param("norm of infinite order", "linalg_vector_norm", "2x3xf32", math.inf, [-1]),
        _attributes(_NORM.format("false", "0x7f800000 : f32")),
    ),
    (
        param("norm of negative infinite order", "linalg_vector_norm", "2x3xf32", -math.inf, [-1]),
        _attributes(_NORM.format("false", "0xff800000 : f32")),
    ),
    (
        param("norm over all axes", "linalg_vector_norm", "2x3xf32", 2),
        _attributes("axes = [0 : si64, 1 : si64], keep_dim = false, ord = 2 : si64"),
    ),
    (
        param("norm over mixed axes", "linalg_vector_norm", "2x3x4xf32", 1, [-1, 0]),
        _attributes("axes = [-1 : si64, 0 : si64], keep_dim = false, ord = 1 : si64"),
    ),
    (param("average pool", "avg_pool2d", "1x2x6x6xf32", [2, 2]), _POOL.format(2)),
    (param("average pool of a volume", "avg_pool3d", "1x2x4x4x4xf32", [2, 2, 2]), _POOL.format(3)),
    (param("adaptive pool", "_adaptive_avg_pool2d", "1x2x6x6xf32", [3, 2]), _POOL.format(2)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "expected"), [pytest.param(*p.values, text, id=p.id) for p, text in EXPECTED]
)
def test_declaration(op: str, args: tuple[Any, ...], kwargs: dict[str, Any], expected: str) -> None:
    module = compile_case(make_case(op, args, kwargs)).module
    verify(module, runtime=True)
    assert declarations(module) == [expected]


def test_options_of_a_pool_are_constant_operands() -> None:
    text = compile_case(
        make_case("aten.avg_pool2d", ("1x2x7x8xf32", [3, 2], [2, 1], [1, 0], True, False, 5))
    ).module.text()
    assert re.search(
        r"@avg_pool_2d_[0-9a-f]{8}\(%\w+: tensor<1x2x7x8xf32> \{coreai\.name = \"input\"\}, "
        r"%\w+: tensor<2xsi32> \{coreai\.name = \"kernel_size\"\}, %\w+: tensor<2xsi32> \{coreai\.name = \"stride\"\}, "
        r"%\w+: tensor<2xsi32> \{coreai\.name = \"padding\"\}, %\w+: tensor<i1> \{coreai\.name = \"ceil_mode\"\}, "
        r"%\w+: tensor<i1> \{coreai\.name = \"count_include_pad\"\}, "
        r"%\w+: tensor<si32> \{coreai\.name = \"divisor_override\"\}\)",
        text,
    )
    main = text[text.index("@main") :]
    for constant in ("dense<[3, 2]>", "dense<[2, 1]>", "dense<[1, 0]>", "dense<true>", "dense<false>", "dense<5>"):
        assert constant in main


# ---- average pools ---------------------------------------------------------------------------------


@MANY
@given(st.data())
def test_average_pools_agree(data: st.DataObject) -> None:
    """Every option of both pools, with and without a batch."""
    axes = data.draw(st.sampled_from([2, 2, 3]), "axes")
    sizes = [data.draw(st.integers(3, 7), "size") for _ in range(axes)]
    kernel = [data.draw(st.integers(1, 3), "kernel") for _ in range(axes)]
    stride = data.draw(st.sampled_from([[], kernel, [1] * axes, [2] * axes, [3] * axes]), "stride")
    padding = [data.draw(st.integers(0, size // 2), "padding") for size in kernel]
    options = data.draw(st.tuples(st.booleans(), st.booleans(), st.sampled_from([None, 1, 7])), "options")
    shape = "x".join(map(str, [*([2] if data.draw(st.booleans(), "batch") else []), 3, *sizes]))
    case = _case(f"aten.avg_pool{axes}d", (f"{shape}xf32", kernel, stride, padding, *options))
    compilation = compile_case(case)
    assert f"avg_pool_{axes}d" in compilation.module.text()
    check_on_evaluator(case, compilation)


@MANY
@given(st.data())
def test_adaptive_pools_agree(data: st.DataObject) -> None:
    axes = data.draw(st.sampled_from([2, 2, 3]), "axes")
    sizes = [data.draw(st.integers(1, 7), "size") for _ in range(axes)]
    output = [data.draw(st.integers(1, 8), "output") for _ in range(axes)]
    shape = "x".join(map(str, [*([2] if data.draw(st.booleans(), "batch") else []), 3, *sizes]))
    case = _case(f"aten._adaptive_avg_pool{axes}d", (f"{shape}xf32", output))
    compilation = compile_case(case)
    divides = all(size % count == 0 for size, count in zip(sizes, output, strict=True))
    assert (f"avg_pool_{axes}d" in compilation.module.text()) == divides
    check_on_evaluator(case, compilation)


def _case(op: str, args: tuple[Any, ...]) -> Case:
    try:
        return make_case(op, args)
    except RuntimeError:  # eager refuses a pad of more than half a window, or an empty result
        assume(False)
        raise


INF, NAN = float("inf"), float("nan")

POOLS = [
    param("padding that does not count, rounded up", "avg_pool2d", "1x2x7x8xf32", [3, 3], [2, 2], [1, 1], True, False),
    param("a last window in the padding is left out", "avg_pool2d", "1x1x5x5xf32", [2, 2], [3, 3], [1, 1], True),
    param("a divisor without a batch", "avg_pool2d", "2x5x5xf32", [2, 2], [1, 1], [0, 0], False, True, 3),
    param("half precision", "avg_pool2d", "1x2x6x6xf16", [3, 3], [3, 3], [1, 1], False, False),
    param("one number for both axes", "avg_pool2d", "1x2x6x6xf32", [2], [1], [1]),
    param("an infinity outside of the window", "avg_pool2d", values([[[1.0, 2.0, INF, NAN]]]), [1, 2]),
    param("an infinity outside of the adaptive window", "_adaptive_avg_pool2d", values([[[1, 2, INF, 4, 5]]]), [1, 3]),
    param("an adaptive pool to one", "_adaptive_avg_pool2d", "1x2x5x4xf16", [1, 1]),
    param("an adaptive pool of the same size", "_adaptive_avg_pool2d", "1x2x5x4xf32", [5, 4]),
]


@pytest.mark.parametrize(("op", "args", "kwargs"), POOLS)
def test_pool_on_the_runtime(op: str, args: tuple[Any, ...], kwargs: dict[str, Any], native: Native) -> None:
    assert_all_agree(make_case(op, args, kwargs), native)


# ---- vector norms ----------------------------------------------------------------------------------

ORDERS = [0, 1, 2, 3, 0.0, 1.0, 2.0, 2.5, 0.5, -1, -2.0, INF, -INF]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("axes", "keep"), [(None, False), ([0], True), ([-1, 0], False)])
def test_vector_norms_agree(order: float, axes: list[int] | None, keep: bool) -> None:
    case = make_case("aten.linalg_vector_norm", ("3x4x2xf32[0.2,3]", order, axes, keep))
    check_on_evaluator(case, compile_case(case))


NORMS = [
    param("of zeros and NaN by count", "linalg_vector_norm", values([0.0, -0.0, NAN, 3.0, -INF]), 0),
    param("of NaN by extremes", "linalg_vector_norm", values([[0.0, NAN], [-INF, 1.0]]), INF, [1]),
    param("of zeros, negative order", "linalg_vector_norm", values([0.0, 2.0]), -1.0),
    param("of negative numbers, odd order", "linalg_vector_norm", values([-3.0, -4.0]), 3),
    param("of half precision beyond it", "linalg_vector_norm", values([300.0, 400.0], torch.float16), 2),
    param("of half precision in another type", "linalg_vector_norm", "2x9xf16", 2.0, [-1], True, dtype="f32"),
    param("of one number", "linalg_vector_norm", "f32", 3.0),
    param("of one number, with an axis", "linalg_vector_norm", "f32", 2.0, [-1], True),
]


@pytest.mark.parametrize(("op", "args", "kwargs"), NORMS)
def test_norm_on_the_runtime(op: str, args: tuple[Any, ...], kwargs: dict[str, Any], native: Native) -> None:
    assert_all_agree(make_case(op, args, kwargs), native)


# ---- instance norms --------------------------------------------------------------------------------


@pytest.mark.parametrize("affine", ["both", "weight", "none"])
@pytest.mark.parametrize("parameters", ["f32", "f16"])
def test_instance_norm_of_half_precision(affine: str, parameters: str, native: Native) -> None:
    """With weights of its own type (eager takes no others)."""
    weight, bias = (f"4x{parameters}" if affine in names else None for names in (("both", "weight"), ("both",)))
    x = f"2x4x5x3x{parameters}"
    assert_all_agree(make_case("aten.instance_norm", (x, weight, bias, None, None, True, 0.1, 1e-3, False)), native)


def test_instance_norm_by_running_statistics_is_arithmetic(native: Native) -> None:
    statistics = "4xf32", "4xf32[0.5,2]"
    case = make_case("aten.instance_norm", ("2x4x5xf32", "4xf32", "4xf32", *statistics, False, 0.1, 1e-3, False))
    assert declarations(compile_case(case).module) == []
    assert_all_agree(case, native)


def test_instance_norm_that_updates_statistics_is_refused() -> None:
    statistics = "4xf32", "4xf32[0.5,2]"
    assert_refused(make_case("aten.instance_norm", ("2x4x5xf32", None, None, *statistics, True, 0.1, 1e-3, False)))


# ---- variances -------------------------------------------------------------------------------------

VARIANCES = [
    param("of everything", "var.correction", "2x3xf32"),
    param("of the default correction", "var.correction", "2x3x4xf32", [1, -1]),
    param("of no correction", "var.correction", "2x3x4xf32", [-1], correction=0, keepdim=True),
    param("of a fraction", "var.correction", "2x9xf32", [1], correction=0.5),
    param("of too much", "var.correction", "2x3xf32", [1], correction=3),
    param("of more than too much", "var.correction", "2x3xf32", [1], correction=7),
    param("of one element", "var.correction", "3x1xf32", [1]),
    param("of one number", "var.correction", "f32", correction=0),
    param("of large half precision", "var.correction", values([200.0, -300.0, 400.0], torch.float16), correction=0),
    param("deviation", "std.correction", "2x3x4xf16", [1], correction=0),
    param("deviation of everything", "std.correction", "2x3x4xf32"),
    param("with a mean", "var_mean.correction", "2x3x4xf32", [1], correction=0, keepdim=True),
    param("far from zero", "var.correction", values([4096.0, 4097.0, 4098.0]), correction=0),
]


@pytest.mark.parametrize(("op", "args", "kwargs"), VARIANCES)
def test_variance(op: str, args: tuple[Any, ...], kwargs: dict[str, Any], native: Native) -> None:
    assert_all_agree(make_case(op, args, kwargs), native)
