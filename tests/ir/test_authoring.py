"""The authoring functions: there is one for each op, operands are converted, wrong ones are refused."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from patcomp.errors import VerifyError
from patcomp.ir import OPS, Builder, InferenceError, IRModule, Value, coreai, create_graph, tensor
from patcomp.ir.blobs import BlobStore
from patcomp.ir.constants import constant_values
from patcomp.ir.coreai_table import ROWS
from patcomp.ir.locations import Origin, origin_location, origins
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Block


@pytest.fixture
def x() -> Iterator[Value]:
    """A `tensor<2x3xf32>` argument of a graph that is being written."""
    block = Block(arg_types=[tensor((2, 3), "f32")])
    with Builder(block, blobs=BlobStore()):
        yield Value(block.args[0])


def operand(result: Value, position: int) -> Value:
    return Value(result.ssa.owner.operands[position])


# ---- one for each op -----------------------------------------------------------------------------------


def test_every_op_has_a_function_or_is_left_out_on_purpose() -> None:
    missing = {row.name for row in ROWS if not callable(getattr(coreai, row.builder, None))}
    assert missing == {row.name for row in ROWS if not row.authored}


@pytest.mark.parametrize("row", [row for row in ROWS if row.authored], ids=lambda row: row.name)
def test_functions_take_the_operands_by_name(row: object) -> None:
    if row.name in ("constant", "cast", "if", "while", "invoke", "output", "yield", "graph"):
        pytest.skip("written by hand")
    parameters = inspect.signature(getattr(coreai, row.builder)).parameters
    assert [slot.name for slot in row.operands] == list(parameters)[: len(row.operands)]
    assert {"loc", "result_type"} <= set(parameters)
    assert row.doc in getattr(coreai, row.builder).__doc__


def test_ops_are_found_under_their_own_name_too() -> None:
    assert coreai.max_pool_2d is coreai.maxpool2d
    assert coreai.slice is coreai.slice_
    assert coreai.abs is coreai.abs_


# ---- operands --------------------------------------------------------------------------------------------


def test_numbers_take_the_type_of_the_tensor_beside_them(x: Value) -> None:
    half = coreai.cast(x, "f16")
    assert operand(coreai.broadcasting_add(half, 1.5), 1).dtype == "f16"
    assert operand(coreai.broadcasting_add(1, half), 0).dtype == "f16"
    assert operand(coreai.broadcasting_where(coreai.greater(x, x), x, 0.0), 2).dtype == "f32"


def test_axes_are_signed_and_sizes_unsigned(x: Value) -> None:
    assert str(operand(coreai.reduce_sum(x, [1]), 1).type) == "tensor<1xsi32>"
    assert str(operand(coreai.reduce_sum(x, -1), 1).type) == "tensor<1xsi32>"
    assert str(operand(coreai.softmax(x, 1), 1).type) == "tensor<si32>"
    assert str(operand(coreai.softmax(x, [1]), 1).type) == "tensor<si32>"
    assert str(operand(coreai.transpose(x, (1, 0)), 1).type) == "tensor<2xui32>"
    assert str(operand(coreai.transpose(x, np.array([1, 0], np.uint16)), 1).type) == "tensor<2xui16>"
    assert str(operand(coreai.reshape(x, [-1]), 1).type) == "tensor<1xsi32>"


def test_arrays_become_constants(x: Value) -> None:
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(constant_values(operand(coreai.add(x, table), 1).ssa), table)


def test_numpy_takes_the_type_of_the_tensor_beside_it(x: Value) -> None:
    integers = coreai.cast(x, "si32")
    for given, beside in (
        (np.float64(0.5), x),
        (np.sqrt(64), x),
        (np.int64(3), x),
        (np.ones(3), x),
        (np.int64(3), integers),
        (np.float16(1), coreai.cast(x, "bf16")),
    ):
        assert operand(coreai.broadcasting_mul(beside, given), 1).dtype == beside.dtype
    assert coreai.constant(np.float64(0.5)).dtype == "f64"


def test_operands_by_name(x: Value) -> None:
    assert coreai.transpose(permutation=[1, 0], input=x).shape == (3, 2)
    assert coreai.concat(0, [x, x]).shape == (4, 3)
    assert coreai.pad(x, [0, 0, 1, 1], 0.0, padding_mode="constant").shape == (2, 5)
    assert coreai.scan(x, 1, False, scan_op="sum").shape == (2, 3)


def test_small_constants_are_made_once(x: Value) -> None:
    assert operand(coreai.reduce_sum(x, 1), 1) == operand(coreai.reduce_max(x, 1), 1)


def test_several_results_and_locations(x: Value) -> None:
    parts = coreai.split(x, [1, 1], 0, loc=origin_location(Origin("split")))
    assert [part.shape for part in parts] == [(1, 3), (1, 3)]
    assert origins(parts[0].ssa.owner.location) == (Origin("split"),)
    assert origins(coreai.tanh(x).ssa.owner.location) == ()


def test_stated_result_types(x: Value) -> None:
    axis = coreai.constant(1, "si32")
    runtime_axis = coreai.reshape(coreai.cast(axis, "si32"), [1])
    assert coreai.reduce_sum(x, runtime_axis).shape == (None, None)
    assert coreai.reduce_sum(x, runtime_axis, result_type=tensor((2, 1), "f32")).shape == (2, 1)


def test_casts(x: Value) -> None:
    assert coreai.cast(x, "f32") is x or coreai.cast(x, "f32") == x
    assert coreai.cast(x, np.float16).dtype == "f16"
    assert coreai.cast(2, "ui8").dtype == "ui8"
    assert coreai.cast(x, torch.bfloat16).dtype == "bf16"
    assert coreai.constant(1, dtype=torch.int64).dtype == "si64"
    assert coreai.constant([True, False]).dtype == "i1"


# ---- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "error", "words"),
    [
        (lambda x: coreai.reduce_sum(x, 2), InferenceError, r"coreai.reduce_sum\(.*axis 2 is out of range"),
        (lambda x: coreai.reduce_sum(x, []), InferenceError, "over no axes"),
        (lambda x: coreai.conv2d(x, coreai.reshape(x, [2, 3, 1, 1]), [1, 1], [1, 1], 1), InferenceError, "dimensions"),
        (lambda x: coreai.transpose(x, [0, 0]), InferenceError, "no permutation"),
        (lambda x: coreai.transpose(x, [-1, 0]), OverflowError, "does not fit"),
        (lambda x: coreai.reshape(x, [2**31]), OverflowError, "does not fit"),
        (lambda x: coreai.reduce_sum(x, 1.5), TypeError, "not an integer"),
        (lambda x: coreai.add(x), TypeError, "coreai.add needs y="),
        (lambda x: coreai.add(x, x, x), TypeError, "got also"),
        (lambda x: coreai.add(x, x, alpha=1), TypeError, "got also"),
        (lambda x: coreai.pad(x, [0] * 4, 0.0), TypeError, "needs padding_mode="),
        (lambda x: coreai.pad(x, [0] * 4, 0.0, padding_mode="mirror"), ValueError, "one of circular, constant"),
        (lambda x: coreai.add(x, coreai.reshape(x, [3, 2])), InferenceError, "use the broadcasting op"),
        (lambda x: coreai.concat(0, [x, coreai.reshape(x, [3, 2])]), InferenceError, "differ outside axis 0"),
        (lambda x: coreai.copy_with_constraints(x), TypeError, "needs result_type="),
        (lambda x: coreai.cast(x, "float32"), ValueError, "unknown element type"),
        (lambda x: coreai.invoke("f", [1], []), TypeError, "expected a value"),
        (lambda x: coreai.broadcasting_add(x, None), TypeError, "broadcasting_add, other: None is no number"),
        (lambda x: coreai.broadcasting_add(x, "2.5"), TypeError, "'2.5' is no number"),
        (lambda x: coreai.broadcasting_add(x, 1 + 2j), TypeError, "is complex, which element type f32 cannot hold"),
        (lambda x: coreai.broadcasting_add(x, [[1], [2, 3]]), TypeError, "no regular list of numbers"),
        (lambda x: coreai.broadcasting_add(coreai.cast(x, "si32"), np.int64(2**40)), OverflowError, "does not fit"),
        (lambda x: coreai.constant([x, 1]), TypeError, "is no number, and no list of numbers"),
        (lambda x: coreai.constant(2**70), OverflowError, "does not fit"),
        (lambda x: coreai.constant(np.float16("inf"), "si32"), OverflowError, "does not fit"),
        (lambda x: coreai.reshape(x, [None, 3]), TypeError, "reshape, new_shape: .* only known at run time"),
        (
            lambda x: coreai.gather_along_axis(x, coreai.cast(x, "si32"), []),
            InferenceError,
            "wrong rank of axis, not 0",
        ),
        (lambda x: coreai.concat(0, x), TypeError, "concat: inputs must be a list of values"),
        (lambda x: coreai.scan(x, 1, False, scan_op="mean"), ValueError, "scan_op is one of sum, product"),
        (lambda x: coreai.tanh(x, loc="here"), TypeError, "loc= takes a location"),
        (lambda x: coreai.tanh(x, result_type="f32"), TypeError, "takes a type such as x.type"),
        (lambda x: coreai.tanh(x, result_type=[x.type] * 2), TypeError, "a type such as x.type for each result"),
        (lambda x: coreai.cast(x, None), TypeError, "expected an element type"),
        (lambda x: coreai.cast(x, x.type), TypeError, "expected an element type"),
        (lambda x: coreai.if_(coreai.constant(True), lambda: 3, lambda: x), TypeError, "gives values, got 3"),
    ],
)
def test_wrong_operands_are_refused(x: Value, write: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        write(x)


def test_without_an_insertion_point() -> None:
    with pytest.raises(RuntimeError, match="no insertion point"):
        coreai.constant(1)


# ---- whole programs ------------------------------------------------------------------------------------------


def test_control_flow_and_verification() -> None:
    block = Block(arg_types=[tensor((), "i1"), tensor((4,), "f32")])
    with Builder(block):
        condition, value = map(Value, block.args)
        chosen = coreai.if_(condition, lambda: [coreai.tanh(value)], lambda: [value])[0]
        counted = coreai.while_(
            [coreai.constant(0), chosen],
            lambda i, v: coreai.greater(coreai.constant(3), i),
            lambda i, v: [coreai.add(i, coreai.constant(1)), coreai.add(v, v)],
        )
        coreai.output(counted[1])
    module = IRModule()
    module.op.body.block.add_op(create_graph("main", block, argument_names=["c", "x"], result_names=["y"]))
    verify(module)
    assert IRModule.parse(module.text()).text() == module.text()


def test_branches_of_different_types_are_refused(x: Value) -> None:
    with pytest.raises(InferenceError, match="different types"):
        coreai.if_(coreai.constant(True), lambda: [x], lambda: [coreai.reshape(x, [6])])


def test_arguments_by_name_gives_what_was_written(x: Value) -> None:
    for row in ("coreai.concat", "coreai.pad", "coreai.split"):
        assert row in OPS
    arguments = coreai.concat(0, [x, x]).ssa.owner.arguments_by_name()
    assert arguments["inputs"] == [x, x]
    assert arguments["dimension"].shape == ()


def test_a_wrong_stated_type_is_caught_by_the_verifier() -> None:
    block = Block(arg_types=[tensor((2, 3), "f32")])
    with Builder(block):
        coreai.output(coreai.tanh(Value(block.args[0]), result_type=tensor((3, 2), "f32")))
    module = IRModule()
    module.op.body.block.add_op(create_graph("main", block, argument_names=["x"], result_names=["y"]))
    with pytest.raises(VerifyError, match="result type must be exactly"):
        verify(module)
