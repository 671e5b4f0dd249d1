"""What ops do at the edges of their element types, against the real runtime where that survives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.emit import native_worker
from patcomp.emit.native import Native
from patcomp.emit.toolchain.hand_over import HandOver
from patcomp.errors import EvaluationError
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.evaluate.given import as_array
from patcomp.evaluate.machine import evaluate
from patcomp.ir import IRModule, coreai
from patcomp.ir.types import integer_range, is_integer
from tests.evaluate.agreement import assert_all_agree, native_array
from tests.helpers import warm
from tests.helpers.joined import noted, run_each
from tests.helpers.programs import program

NAN, INF = float("nan"), float("inf")
FLOATS = [NAN, INF, -INF, -0.0, 0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 90.0, -90.0, 1e-30, 1.0, 3.3]
PAIRS = (
    [NAN, 1, INF, -INF, 7.5, -7.5, 7.5, -7.5, 0, 1, -1, -0.0, 5, 1, -1],
    [1, NAN, INF, 2, 2, 2, -2, -2, 0, 0, 0, 3, INF, 0.1, INF],
)
CAST_FLOATS = [NAN, INF, -INF, -0.0, 0.5, 1.9999, -1.5, 127.5, 128.0, -129.0, 300.0, 3e9, -3e9, 1e19, -1e19]
CAST_INTEGERS = [0, 1, -1, 127, 128, -128, -129, 255, 256, 32768, -32769, 65536, 2147483647, -2147483648]
INTEGERS = ["si8", "ui8", "si16", "ui16", "si32", "ui32", "si64", "ui64"]


UNARY = [
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "gelu", "log", "relu"),
    *("round", "rsqrt", "sigmoid", "silu", "sin", "sinh", "sqrt", "tan", "tanh"),
]
BINARY = ["divide", "floor_divide", "modulo", "pow", "maximum", "minimum", "greater", "equal", "not_equal", "sub"]
INTEGER_BINARY = [*BINARY[:3], *BINARY[4:8], "sub", "mul", "add", "bitwise_xor"]


def values(items: object, element: str) -> torch.Tensor:
    if element == "ui64":
        return torch.from_numpy(np.array(items, dtype=np.uint64))
    dtype = torch.int64 if is_integer(element) else torch.float64
    return torch.tensor(items, dtype=dtype).to(TORCH_DTYPES[element])


def check(native: Native, body: Callable, *arguments: tuple[object, str]) -> dict[str, torch.Tensor]:
    """Evaluates and runs a program on the arguments, `(values, element type)` each, and compares."""
    return check_each(native, {"it": (body, *arguments)})["it"]


def check_each(native: Native, programs: Mapping[str, tuple[Any, ...]]) -> dict[str, dict[str, torch.Tensor]]:
    """The same for several programs, of a body and arguments each, that run as one asset."""
    ours: dict[str, dict[str, torch.Tensor]] = {}
    given: dict[str, tuple[IRModule, dict[str, np.ndarray]]] = {}
    for each, (body, *arguments) in programs.items():
        inputs = {f"x{index}": values(items, element) for index, (items, element) in enumerate(arguments)}
        elements = {f"x{index}": element for index, (_, element) in enumerate(arguments)}
        types = {name: "x".join([*map(str, value.shape), elements[name]]) for name, value in inputs.items()}
        module = program(types, body)
        ours[each] = evaluate(module, inputs)
        given[each] = module, {name: native_array(value, elements[name]) for name, value in inputs.items()}
    for each, theirs in run_each(native, given).items():
        with noted(f"the program is {each}"):
            assert_all_agree(ours[each], theirs)
    return ours


@pytest.mark.parametrize("name", UNARY)
def test_unary_floats(native, name: str):
    check_each(native, {x: (getattr(coreai, name), (FLOATS, x)) for x in ("f32", "f16", "bf16", "f64")})


@pytest.mark.parametrize("approximate", ["tanh", "sigmoid"])
def test_gelu_approximations(native, approximate: str):
    check(native, lambda x: coreai.gelu(x, approximate=approximate), (FLOATS, "f32"))


@pytest.mark.parametrize("name", BINARY)
def test_binary_floats(native, name: str):
    body = getattr(coreai, name)
    check_each(native, {x: (body, (PAIRS[0], x), (PAIRS[1], x)) for x in ("f32", "f16", "f64")})


@pytest.mark.parametrize("name", INTEGER_BINARY)
def test_binary_integers_wrap(native, name: str):
    programs = {}
    for element in INTEGERS:
        low, high = integer_range(element)
        left, right = [7, 9, 7, high, low, high, 0, 1], [2, 2, 3, high, 2, 3, 5, high]
        if low < 0:
            left, right = [*left, -7, 7, -7, low], [*right, 2, -2, -2, -3]
        programs[element] = getattr(coreai, name), (left, element), (right, element)
    check_each(native, programs)


@pytest.mark.parametrize("element", INTEGERS)
def test_integer_powers(native, element: str):
    signed = element.startswith("si")
    check(
        native,
        coreai.pow,
        ([2, 3, 10, 7, 0, *([-3, 2, 1, -1] if signed else [])], element),
        ([6, 40, 5, 2, 0, *([3, -1, -2, -3] if signed else [])], element),
    )


@pytest.mark.parametrize("element", ["si8", "si64", "ui64"])
@pytest.mark.parametrize("name", ["abs", "relu", "round"])
def test_unary_integers(native, name: str, element: str):
    check(native, getattr(coreai, name), ([*integer_range(element), 3], element))


@pytest.mark.parametrize(
    "target", [*INTEGERS, "si4", "ui4", "i1", "f16", "bf16", "f64", "f8E4M3FN", "f8E5M2", "f4E2M1FN"]
)
def test_casts_of_floats(native, target: str):
    check(native, lambda x: coreai.cast(x, target), (CAST_FLOATS, "f32"))


@pytest.mark.parametrize("target", [*INTEGERS, "si4", "ui4", "i1", "f32", "f16"])
def test_casts_of_integers_saturate(native, target: str):
    cast = lambda x: coreai.cast(x, target)  # noqa: E731
    check_each(native, {source: (cast, (CAST_INTEGERS, source)) for source in ("si32", "si64")})


@pytest.mark.parametrize("target", ["si8", "si64", "ui8", "f32"])
def test_casts_of_the_largest_unsigned_integers(native, target: str):
    check(native, lambda x: coreai.cast(x, target), ([0, 5, 2**63, 2**64 - 1], "ui64"))


ROWS = [[3.0, NAN, 1.0, 2.0, NAN], [5.0, 5.0, -INF, 5.0, 1.0], [NAN, NAN, INF, -INF, -1.0]]


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min", "reduce_sum", "reduce_mean", "reduce_product"])
def test_reductions_of_nan(native, name: str):
    programs = {
        f"{element}_{number}": (lambda x, axes=axes: getattr(coreai, name)(x, axes), (ROWS, element))
        for number, axes in enumerate(([1], [0], [0, -1]))
        for element in ("f32", "f16")
    }
    check_each(native, programs)


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min", "reduce_sum", "reduce_product"])
def test_reductions_of_integers_wrap(native, name: str):
    programs = {}
    for element in INTEGERS:
        low, high = integer_range(element)
        programs[element] = lambda x: getattr(coreai, name)(x, [1]), ([[high, high, 2], [low, 1, 5]], element)
    check_each(native, programs)


@pytest.mark.parametrize("element", ["f32", "bf16", "si8", "ui64"])
def test_argmax_takes_the_first_and_ignores_nan(native, element: str):
    rows = ROWS if element[0] in "fb" else [[3, 9, 9, 1], [255 if element == "ui64" else 127, 4, 4, 4]]
    check(native, lambda x: coreai.argmax(x, 1), (rows, element))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("element", ["f32", "f16", "si8", "ui32", "ui64"])
def test_sorting_puts_nan_last_and_is_stable(native, element: str, descending: bool):
    rows = ROWS if element[0] == "f" else [[3, 9, 9, 1], [2**64 - 1 if element == "ui64" else 127, 4, 4, 0]]
    check(native, lambda x: coreai.sort(x, 1, descending, True), (rows, element))
    check(native, lambda x: coreai.argsort(x, 1, descending, True), (rows, element))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("combiner", ["sum", "product", "min", "max"])
def test_scans(native, combiner: str, reverse: bool):
    scan = lambda x: coreai.scan(x, 1, reverse, scan_op=combiner)  # noqa: E731
    check(native, scan, (ROWS, "f32"))
    check(native, scan, ([[1, 2, 3], [5, 1, 1]], "ui8"))


@pytest.mark.parametrize("mode", ["constant", "replicate", "reflect", "symmetric", "circular"])
@pytest.mark.parametrize("element", ["f32", "ui32", "bf16"])
def test_pads(native, mode: str, element: str):
    items = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    body = lambda x: coreai.pad(x, [2, 2, 1, 3], coreai.constant(7, element), padding_mode=mode)  # noqa: E731
    check(native, body, (items, element))


@pytest.mark.parametrize("mode", ["linear", "nearest_neighbor"])
@pytest.mark.parametrize(
    ("shape", "scale", "offset"),
    [
        ([1, 1, 7, 9], [1.0, 1.0, 7 / 4, 9 / 5], [0.0, 0.0, 0.0, 0.0]),
        ([1, 1, 7, 9], [1.0, 1.0, 2.0, 2.0], [0.0, 0.0, -0.5, -0.5]),
        ([1, 1, 2, 3], [1.0, 1.0, 0.5, 0.6], [0.0, 0.0, 0.0, 0.0]),
        ([1, 1, 8, 10], [1.0, 1.0, 2.0, 2.0], [0.0, 0.0, 0.5, -0.3]),
    ],
)
def test_interpolation(native, mode: str, shape: list[int], scale: list[float], offset: list[float]):
    items = torch.randn(1, 1, 4, 5, generator=torch.Generator().manual_seed(1)).tolist()
    check(
        native,
        lambda x: coreai.interpolate(x, shape, np.float32(scale), np.float32(offset), interpolation_mode=mode),
        (items, "f32"),
    )


@pytest.mark.parametrize("mode", ["linear", "nearest_neighbor"])
def test_interpolation_at_coordinates(native, mode: str):
    points = [[0, 0], [1.5, 2.5], [0.5, 0.5], [2.5, 3.5], [-1, 0.2], [5, 6], [3.2, 4.4], [0.3, 3.9]]
    field = torch.arange(20.0).reshape(4, 5).tolist()
    body = lambda x, at: coreai.interpolate_coordinates(x, at, interpolation_mode=mode)  # noqa: E731
    check(native, body, (field, "f32"), (points, "f32"))


@pytest.mark.parametrize("element", ["f32", "si8", "ui64"])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [([3, 2], [2, 3], [1, 1]), ([2, 2], [1, 1], [2, 3]), ([2, 2], [3, 3], [1, 1])]
)
def test_pools(native, element: str, kernel: list[int], stride: list[int], dilation: list[int]):
    items = torch.randint(0, 9, (1, 2, 7, 8), generator=torch.Generator().manual_seed(2)).tolist()
    for ceil in (False, True):
        check(
            native,
            lambda x, ceil=ceil: coreai.max_pool_2d(x, kernel, stride, dilation, ceil),
            (items, element),
        )
    check(native, lambda x: coreai.sum_pool_2d(x, kernel, stride, dilation), (items, element))


def test_convolutions_with_groups(native):
    generator = torch.Generator().manual_seed(3)
    x, weight, back = (torch.randn(shape, generator=generator) for shape in ((2, 4, 7, 8), (6, 2, 3, 2), (4, 3, 3, 2)))
    items = (x.tolist(), "f32")
    check(native, lambda x, w: coreai.conv2d(x, w, [2, 1], [1, 2], 2), items, (weight.tolist(), "f32"))
    body = lambda x, w: coreai.conv_transpose2d(x, w, [2, 1], [1, 0], [1, 2], [1, 0], 2)  # noqa: E731
    check(native, body, items, (back.tolist(), "f32"))


@pytest.mark.parametrize(
    ("bounds", "element"),
    [
        (([1, 4], [3, 0], [1, -2]), "f32"),
        (([-2, -3], [9, 2147483647], [1, 1]), "ui16"),
        (([2, 1], [1, 5], [1, 1]), "f32"),
        (([-9, -9], [2, 9], [1, 4]), "ui64"),
    ],
)
def test_slices(native, bounds: tuple, element: str):
    check(native, lambda x: coreai.slice(x, *bounds), (torch.arange(18).reshape(3, 6).tolist(), element))


def test_slice_update_with_strides(native):
    body = lambda x, u: coreai.slice_update(x, [0, 1], [3, 6], [2, 3], u)  # noqa: E731
    check(native, body, (torch.arange(18).reshape(3, 6).tolist(), "ui32"), ([[91, 92], [93, 94]], "ui32"))


@pytest.mark.parametrize("mode", ["update", "add", "sub", "mul", "div", "max", "min"])
@pytest.mark.parametrize("element", ["f32", "si32", "ui64"])
def test_scatter_with_repeated_places(native, mode: str, element: str):
    scatter = lambda x, at, u: coreai.scatter_along_axis(x, at, u, 1, scatter_mode=mode)  # noqa: E731
    check(
        native,
        scatter,
        ([[100, 2, 30, 4], [1, 20, 3, 40]], element),
        ([[0, -1, 0], [1, 1, 1]], "si32"),
        ([[3, 2, 4], [7, 3, 2]], element),
    )


@pytest.mark.parametrize("element", ["f32", "ui32", "f8E4M3FN", "ui64"])
def test_gathers_count_from_the_end(native, element: str):
    items = (torch.arange(20).reshape(4, 5).tolist(), element)
    check(native, lambda x, at: coreai.gather_along_axis(x, at, 0), items, ([[0, -1, 3, 2, -4]], "si32"))
    check(native, lambda x, at: coreai.gather_nd(x, at), items, ([[0, -1], [-4, -5]], "si32"))


def test_scatter_nd_keeps_the_last(native):
    check(
        native,
        coreai.scatter_nd,
        ([1.0, 2.0, 3.0], "f32"),
        ([[1], [-1], [1]], "si32"),
        ([10.0, 20.0, 30.0], "f32"),
    )


@pytest.mark.parametrize("element", ["si8", "ui4", "f8E4M3FN", "f8E5M2"])
def test_quantize_rounds_to_even_and_saturates(native, element: str):
    zero = lambda: coreai.cast(coreai.constant(2.0), element)  # noqa: E731
    check(
        native,
        lambda x: coreai.quantize(x, np.float32(0.1), zero(), np.float32(0.0), [0]),
        ([NAN, INF, -INF, 0.04, 0.15, 0.25, -0.15, 100.0, -100.0, 12.75], "f32"),
    )


@pytest.mark.parametrize(
    ("start", "stop", "step", "element"),
    [
        (0, 5, 2, "si32"),
        (5, 0, -2, "si32"),
        (5, 0, 1, "si32"),
        (0, 1, 0.1, "f32"),
        (1, 0, -0.25, "f16"),
        (0, 200, 3, "ui8"),
    ],
)
def test_ranges(native, start: float, stop: float, step: float, element: str):
    check(native, coreai.range_, (start, element), (stop, element), (step, element))


@pytest.mark.parametrize(
    ("body", "arguments", "message"),
    [
        (coreai.divide, [([4, 5], "si32"), ([0, 2], "si32")], "division by zero"),
        (coreai.modulo, [([4, 5], "ui8"), ([0, 2], "ui8")], "division by zero"),
        (coreai.divide, [([-128], "si8"), ([-1], "si8")], "divided by -1"),
        (coreai.modulo, [([-128], "si8"), ([-1], "si8")], "divided by -1"),
        (lambda x: coreai.scan(x, 0, False, scan_op="sum"), [([100, 100], "si8")], "overflows si8"),
        (lambda x: coreai.scan(x, 0, False, scan_op="sum"), [([2**63 - 1, 5], "si64")], "overflows si64"),
        (coreai.batch_matmul, [([[100, 2]], "si8"), ([[2], [3]], "si8")], "overflows si8"),
        (
            lambda x, at, u: coreai.scatter_along_axis(x, at, u, 0, scatter_mode="sub"),
            [([1, 1], "ui8"), ([0], "si32"), ([2], "ui8")],
            "overflows ui8",
        ),
    ],
)
def test_what_aborts_the_runtime_is_an_error(native, body: Callable, arguments: list, message: str):
    with pytest.raises(EvaluationError, match=message):
        check(native, body, *arguments)
    inputs = {f"x{index}": values(items, element) for index, (items, element) in enumerate(arguments)}
    types = {f"x{i}": "x".join([*map(str, inputs[f"x{i}"].shape), element]) for i, (_, element) in enumerate(arguments)}
    given = HandOver.of(program(types, body)).with_copied_weights()
    arrays = {name: as_array(value) for name, value in inputs.items()}
    assert warm.exit_code(native_worker._Assets().run, given, [("main", arrays, {})]) in (-4, -5)


@pytest.mark.parametrize("index", [5, -6])
@pytest.mark.parametrize("name", ["gather_along_axis", "gather_nd", "scatter_nd", "scatter_along_axis"])
def test_an_index_out_of_range_is_an_error(name: str, index: int):
    x, at = torch.zeros(5), torch.tensor([index], dtype=torch.int32)
    bodies: dict[str, Callable] = {
        "gather_along_axis": lambda x, at: coreai.gather_along_axis(x, at, 0),
        "gather_nd": lambda x, at: coreai.gather_nd(x, coreai.reshape(at, [1, 1])),
        "scatter_nd": lambda x, at: coreai.scatter_nd(x, coreai.reshape(at, [1, 1]), coreai.cast(at, "f32")),
        "scatter_along_axis": lambda x, at: coreai.scatter_along_axis(x, at, coreai.cast(at, "f32"), 0),
    }
    module = program({"x": "5xf32", "at": "1xsi32"}, bodies[name])
    with pytest.raises(EvaluationError, match=rf"{name}: index {index} is out of range \[-5, 5\)"):
        evaluate(module, {"x": x, "at": at})
