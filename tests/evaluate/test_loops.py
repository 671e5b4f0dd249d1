"""The runtime computes what loops carry in place: all ops that move elements, in loops, branches and conditions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from patcomp.emit.native import Native
from patcomp.errors import VerifyError
from patcomp.evaluate.machine import evaluate
from patcomp.ir import IRModule, Value
from patcomp.ir import coreai as c
from patcomp.ir.coreai_table import ROWS
from patcomp.ir.dialect import ops_with
from patcomp.ir.traits import Elementwise
from patcomp.ir.verify import verify
from tests.evaluate.agreement import TOLERANCES
from tests.evaluate.loop_programs import ELEMENTS, FLOAT_MOVES, MOVES, PAIRS, Draw, N, finished, loop
from tests.helpers.joined import noted, run_each
from tests.helpers.programs import program

TYPE = f"{N}x{N}x"
Body = Callable[[Value, Value], list[Value]]
Context = Callable[[Callable[[Value], Value]], Body]


def _scaled(x: Value) -> Value:
    return c.broadcasting_mul(x, 0.75)  # type: ignore[no-any-return]


def _computed_condition(move: Callable[[Value], Value]) -> Body:
    def goes_on(i: Value, x: Value) -> Value:
        largest = c.reshape(c.reduce_max(c.broadcasting_add(move(x), x), [0, 1]), [])
        return c.and_(c.broadcasting_greater(5, i), c.broadcasting_greater(4.0, largest))  # type: ignore[no-any-return]

    def body(i: Value, x: Value) -> list[Value]:
        return [c.broadcasting_add(i, 1), c.broadcasting_add(_scaled(x), 1.0)]

    return lambda x, y: c.while_([c.constant(0), x], goes_on, body)[1:]


def _condition_of_steps(move: Callable[[Value], Value]) -> Body:
    def goes_on(i: Value, *_: Value) -> Value:
        return c.broadcasting_equal(c.broadcasting_modulo(i, 2), 0)  # type: ignore[no-any-return]

    def body(i: Value, a: Value, b: Value) -> list[Value]:
        return [c.broadcasting_add(i, 1), move(_scaled(b)), a]

    return lambda x, y: c.while_([c.constant(0), x, y], goes_on, body)[1:]


CONTEXTS: dict[str, Context] = {
    "alone": lambda move: lambda x, y: loop(3, [x], lambda a: [move(a)]),
    "twice": lambda move: lambda x, y: loop(3, [x], lambda a: [c.broadcasting_minimum(a, move(_scaled(a)))]),
    "swapped": lambda move: lambda x, y: loop(3, [x, y], lambda a, b: [move(b), move(a)]),
    "of another": lambda move: lambda x, y: loop(3, [x, y], lambda a, b: [_scaled(move(_scaled(b))), _scaled(b)]),
    "in a loop": lambda move: lambda x, y: loop(2, [x], lambda a: loop(2, [_scaled(a)], lambda b: [move(b)])),
    "in a branch": lambda move: (
        lambda x, y: loop(2, [x], lambda a: c.if_(c.constant(True), lambda: [move(a)], lambda: [_scaled(a)]))
    ),
    "captured": lambda move: lambda x, y: loop(3, [x], lambda a: [c.broadcasting_minimum(a, move(y))]),
    "in the condition": _computed_condition,
}


def agree(native: Native, programs: dict[str, IRModule], element: str) -> None:
    """Asserts that the evaluator and the runtime compute the same."""
    dtype = ELEMENTS[element]
    random = np.random.default_rng(7)
    draw = (lambda: random.integers(-3, 4, (N, N))) if element == "si32" else (lambda: random.normal(size=(N, N)))
    inputs = {name: {key: draw().astype(dtype) for key in "xy"} for name in programs}
    for module in programs.values():
        verify(module)
    given = run_each(native, {name: (module, inputs[name]) for name, module in programs.items()})
    relative, absolute = TOLERANCES.get(torch.float16, (0, 0)) if element == "f16" else (1e-4, 1e-5)
    for name, module in programs.items():
        expected = evaluate(module, {key: torch.from_numpy(value) for key, value in inputs[name].items()})
        for key, value in expected.items():
            with noted(f"the program is {name}"):
                np.testing.assert_allclose(given[name][key], value.numpy(), relative, 10 * absolute, err_msg=key)


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_op_that_moves_elements_of_what_a_loop_carries(context: str, native: Native):
    programs = {
        f"p{index}": finished(program({"x": f"{TYPE}f32", "y": f"{TYPE}f32"}, CONTEXTS[context](move)))
        for index, move in enumerate((MOVES | FLOAT_MOVES).values())
    }
    agree(native, programs, "f32")


def test_the_moves_are_all_ops_that_may_read_elsewhere_than_they_write():
    """An op that is missing here, and is not elementwise, is new: add a move of it."""
    made = set()
    for moves, count in ((MOVES | FLOAT_MOVES, 1), (PAIRS, 2)):
        for move in moves.values():
            module = program(dict.fromkeys("xy"[:count], f"{TYPE}f32"), move)
            made |= {op.name for op in module.op.walk()}
    not_same_type = {
        "all", "any", "batch_matmul", "broadcast_shapes", "get_shape", "non_zero", "interpolate_coordinates", "range",
        "reduce", "reduce_index", "reduce_product", "reduce_sum", "conv3d", "conv_transpose2d", "conv_transpose3d",
        "max_pool_3d", "sum_pool_3d", "imaginary_part", "real_part", "constant",
        "asymmetric_quantization_statistics", "symmetric_quantization_statistics", "blockwise_shift_scale",
        "dequantize",
        "quantize", "lut_to_dense", "lut_to_sparse_with_bitmask", "build_sparse_with_bitmask",
        "sparse_with_bitmask_to_dense", "tensor_to_image", "image_to_tensor",
    }  # fmt: skip
    moving = {
        row.op_name for row in ROWS
        if row.pure and row.op_name not in ops_with(Elementwise) and not row.regions
        and not row.top_level and not row.terminator
    }  # fmt: skip
    assert moving - made - {f"coreai.{name}" for name in not_same_type} == set()


SAMPLE, MANY = 40, 2000


@pytest.mark.parametrize("element", ELEMENTS)
def test_drawn_programs_of_loops(element: str, native: Native):
    agree(native, {f"p{seed}": finished(Draw(seed, element).program()) for seed in range(SAMPLE)}, element)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("first", range(0, MANY, 50))
@pytest.mark.parametrize("element", ELEMENTS)
def test_many_drawn_programs_of_loops(element: str, first: int, depth: int, native: Native):
    seeds = range(first, first + 50)
    agree(native, {f"p{seed}": finished(Draw(seed, element, depth).program()) for seed in seeds}, element)


@pytest.mark.parametrize("seed", [4, 57])
def test_a_counter_that_is_read_after_a_nested_loop_is_kept(seed: int, native: Native):
    """Without a copy of it the outer loop never ends, so the test would hang: the verifier is asked first."""
    module = finished(Draw(seed, "f32", 2).program())
    verify(module)
    agree(native, {"p": module}, "f32")


def test_the_verifier_names_a_counter_that_is_read_after_a_nested_loop():
    def body(x: Value) -> list[Value]:
        return loop(2, [_scaled(x)], lambda a: [_scaled(a)])

    def program_of(*, counts_first: bool) -> IRModule:
        def step(i: Value, x: Value) -> list[Value]:
            if counts_first:
                return [c.broadcasting_add(i, 1), *body(x)]
            inside = body(x)
            return [c.broadcasting_add(i, 1), *inside]

        goes_on = lambda i, x: c.broadcasting_greater(3, i)  # noqa: E731
        return program({"x": f"{TYPE}f32"}, lambda x: c.while_([c.constant(0), x], goes_on, step)[1:])

    verify(program_of(counts_first=True))
    with pytest.raises(VerifyError, match="its body reads carried value 0 after the runtime may have written over it"):
        verify(program_of(counts_first=False))
    verify(finished(program_of(counts_first=False)))


def test_the_verifier_names_carried_values_that_are_read_unsafely():
    module = program(
        {"x": f"{TYPE}f32", "y": f"{TYPE}f32"},
        lambda x, y: loop(2, [x, y], lambda a, b: [_scaled(a), c.reverse(b, [0])]),
    )
    verify(module, finished=False)
    with pytest.raises(VerifyError, match=r"its body reads carried value 2 after the runtime may have written over it"):
        verify(module)
    verify(finished(module))


@pytest.mark.parametrize("body", [_computed_condition, _condition_of_steps])
def test_the_verifier_names_conditions_that_compute_more_than_a_comparison(body: Context):
    module = program({"x": f"{TYPE}f32", "y": f"{TYPE}f32"}, body(lambda x: x))
    results = len(module.graph("main").regions[0].block.last_op.operands)
    with pytest.raises(VerifyError, match="its condition computes in the memory of carried values"):
        verify(module)
    assert len(finished(module).graph("main").regions[0].block.last_op.operands) == results
    verify(module)


def test_values_that_are_updated_or_computed_in_place_are_not_copied():
    """A scan writes one row of its results in each step: a copy of all of them would make it quadratic."""

    def body(i: Value, x: Value, y: Value) -> list[Value]:
        row = c.reshape(c.broadcasting_add(y, 1.0), [1, N])
        return [c.broadcasting_add(i, 1), c.scatter_nd(x, c.reshape(i, [1, 1]), row), c.broadcasting_mul(y, 0.5)]

    module = program(
        {"x": f"{TYPE}f32", "y": f"{N}xf32"},
        lambda x, y: c.while_([c.constant(0), x, y], lambda i, *_: c.broadcasting_greater(c.constant(N), i), body)[1:],
    )
    inside = [
        op for op in finished(module).op.walk() if op.parent_op() is not None and op.parent_op().name == "coreai.while"
    ]
    copies = [op for op in inside if "maximum" in op.name]
    assert [str(op.results[0].type) for op in copies] == ["tensor<si32>", f"tensor<{N}xf32>"]
