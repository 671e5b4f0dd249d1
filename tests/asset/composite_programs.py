"""Small programs around the ops that an asset stores with a decomposition: element types, ranks, open sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

from patcomp.ir import IRModule, coreai
from patcomp.ir.infer import InferenceError
from patcomp.ir.types import FAMILIES
from tests.helpers.programs import program

_Case = tuple[str, Mapping[str, str], Callable[..., Any]]
FLOATS, SMALL, INTEGERS = FAMILIES["F"], FAMILIES["F8"], FAMILIES["INT"]
_SHAPES = ("2x3x", "?x3x", "4x", "2x?x1x")
_PAIRS = (
    ("2x3x", "3x"), ("2x3x", ""), ("?x3x", "3x"), ("?x3x", "?x3x"), ("?x1x", "1x3x"), ("2x1x", "1x3x"),
    ("2x3x", "2x3x"), ("", "2x"), ("1x", "2x2x"), ("?x", "?x?x"), ("?x3x", "2x1x"), ("1x1x", "?x?x"), ("", ""),
    ("2x3x", "?x"), ("?x", ""),
)  # fmt: skip
_MATRICES = (
    ("2x3x4x", "4x5x"), ("3x4x", "2x4x5x"), ("?x3x4x", "4x5x"), ("2x3x4x", "2x4x5x"), ("?x3x4x", "?x4x5x"),
    ("3x4x", "4x5x"), ("2x1x3x4x", "5x4x5x"), ("1x3x4x", "7x4x5x"), ("?x?x", "?x?x"), ("3x4x", "?x4x5x"),
    ("2x?x3x4x", "2x4x5x"), ("2x3x?x", "2x?x5x"), ("?x4x", "4x5x"), ("2x?x4x", "4x5x"), ("2x?x4x", "2x4x?x"),
    ("?x2x3x4x", "2x4x5x"), ("?x?x3x4x", "4x5x"), ("1x?x3x4x", "?x1x4x5x"),
)  # fmt: skip
_BINARY = (
    "add", "sub", "mul", "divide", "maximum", "minimum", "pow", "modulo", "floor_divide", "equal", "not_equal",
    "greater",
)  # fmt: skip
_LOGIC = ("and", "or", "xor", "equal", "not_equal", "bitwise_and", "bitwise_or", "bitwise_xor")


def _broadcasting(name: str) -> Callable[..., Any]:
    return getattr(coreai, f"broadcasting_{name}")  # type: ignore[no-any-return]


def _activations() -> Iterator[_Case]:
    for op, elements in (
        ("relu", (*FLOATS, *SMALL, *INTEGERS)),
        ("sigmoid", (*FLOATS, *SMALL, "complex<f32>")),
        ("silu", (*FLOATS, *SMALL, "complex<f32>")),
    ):
        for element in elements:
            yield f"{op} {element}", {"x": f"2x3x{element}"}, getattr(coreai, op)
        for shape in ("", *_SHAPES):
            yield f"{op} {shape}", {"x": f"{shape}f32"}, getattr(coreai, op)
    for element in (*FLOATS, *SMALL):
        yield f"softmax {element}", {"x": f"2x3x{element}"}, lambda x: coreai.softmax(x, 1)
    for shape in _SHAPES:
        yield f"softmax {shape}", {"x": f"{shape}f32"}, lambda x: coreai.softmax(x, -1)


def _reductions() -> Iterator[_Case]:
    for element in (*FLOATS, *SMALL, *INTEGERS):
        for op in ("reduce_sum", "reduce_max", "reduce_min", "reduce_product"):
            yield f"{op} {element}", {"x": f"2x3x{element}"}, lambda x, op=op: getattr(coreai, op)(x, [1])
        yield f"argmax {element}", {"x": f"2x3x{element}"}, lambda x: coreai.argmax(x, 1)
    for element in (*FLOATS, *SMALL):
        yield f"reduce_mean {element}", {"x": f"2x3x4x{element}"}, lambda x: coreai.reduce_mean(x, [0, 2])
    for shape in _SHAPES:
        for op in ("reduce_sum", "reduce_mean", "reduce_max"):
            yield f"{op} {shape}", {"x": f"{shape}f32"}, lambda x, op=op: getattr(coreai, op)(x, [0])
        yield f"argmax {shape}", {"x": f"{shape}f32"}, lambda x: coreai.argmax(x, 0)
    yield "all", {"x": "2x3xi1"}, lambda x: coreai.all_(x, [1])
    yield "any", {"x": "?x3xi1"}, lambda x: coreai.any_(x, [0, 1])


def _movement() -> Iterator[_Case]:
    for element in (*FLOATS, *INTEGERS):
        yield f"sort {element}", {"x": f"2x3x{element}"}, lambda x: coreai.sort(x, 1, True, False)
    for element in (*FLOATS, "si32", "f8E5M2", "i1", "complex<f32>"):
        yield f"tile {element}", {"x": f"2x3x{element}"}, lambda x: coreai.tile(x, [2, 1])
    for shape in _SHAPES:
        yield f"sort {shape}", {"x": f"{shape}f32"}, lambda x: coreai.sort(x, 0, False, True)
        yield f"tile {shape}", {"x": f"{shape}f32"}, lambda x: coreai.tile(x, [2])
        yield f"tile all {shape}", {"x": f"{shape}f32"}, lambda x: coreai.tile(x, [2] * x.rank)


def _pairs() -> Iterator[_Case]:
    for first, second in _PAIRS:
        name = f"{first},{second}"
        for op, element in (("add", "f32"), ("greater", "f32"), ("pow", "f32"), ("and", "i1")):
            yield f"{op} {name}", {"x": f"{first}{element}", "y": f"{second}{element}"}, _broadcasting(op)
        for condition, x, y in ((first, second, first), (second, second, first), ("3x", second, first)):
            inputs = {"c": f"{condition}i1", "x": f"{x}f32", "y": f"{y}f32"}
            yield f"where {condition},{x},{y}", inputs, coreai.broadcasting_where
    for op, element in product(_BINARY, (*FLOATS, *SMALL, *INTEGERS)):
        yield f"{op} {element}", {"x": f"2x3x{element}", "y": f"3x{element}"}, _broadcasting(op)
    for op in _LOGIC:
        yield f"{op} i1", {"x": "2x3xi1", "y": "3xi1"}, _broadcasting(op)
    for first, second in _MATRICES:
        inputs = {"x": f"{first}f32", "y": f"{second}f32"}
        yield f"matmul {first},{second}", inputs, coreai.broadcasting_batch_matmul
    for element in ("f16", "si8"):
        inputs = {"x": f"2x3x4x{element}", "y": f"4x5x{element}"}
        yield f"matmul {element}", inputs, coreai.broadcasting_batch_matmul


def _quantization() -> Iterator[_Case]:
    targets, floats = ("si8", "ui8", "si4", "ui4", "f8E4M3FN", "f8E5M2", "f4E2M1FN"), ("f32", "f16", "bf16")
    for target, value, scale, shape, axis in product(targets, floats, floats, ("2x3x", "?x3x"), (0, 1)):
        name, many = f"{target} {value} {scale} {shape} {axis}", "3x" if axis else ""
        parameters = {"s": f"{many}{scale}", "o": f"{many}{target}", "p": f"{many}{value}"}
        at = lambda op, axis=axis: lambda x, s, o, p: op(x, s, o, p, coreai.constant(axis))  # noqa: E731
        yield f"quantize {name}", {"x": f"{shape}{value}", **parameters}, at(coreai.quantize)
        yield f"dequantize {name}", {"x": f"{shape}{target}", **parameters}, at(coreai.dequantize)
    for value, bounds in (("f32", "si8"), ("f32", "f32"), ("f16", "ui8"), ("f16", "f16"), ("f32", "f8E4M3FN")):
        for shape in ("2x3x", "?x3x", "2x3x4x"):
            inputs = {"x": f"{shape}{value}", "r": f"2x{bounds}"}
            for name in ("asymmetric", "symmetric"):
                op = getattr(coreai, f"{name}_quant_stats")
                yield f"{name} {value} {bounds} {shape}", inputs, lambda x, r, op=op: op(x, r, 1)


def composite_programs() -> Iterator[tuple[str, IRModule]]:
    """Each program by name; those that the op does not allow are left out."""
    for cases in (_activations, _reductions, _movement, _pairs, _quantization):
        for name, inputs, body in cases():
            try:
                yield name, program(inputs, body)
            except InferenceError:
                continue
