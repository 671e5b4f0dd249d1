"""Elements that numpy lacks: their bytes, their numbers, and constants of them on the evaluator and the runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patcomp.emit.native import Native
from patcomp.evaluate.machine import evaluate
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.elements import element_of_numpy
from patcomp.ir.module import IRModule
from patcomp.ir.packing import pack, unpack
from patcomp.ir.types import element_name, integer_range
from patcomp.ir.value import Value
from patcomp.ir.xdsl import DenseIntOrFPElementsAttr, Operation
from tests.helpers.programs import program, storage_of

PACKED = ["ui1", "ui2", "ui3", "ui4", "ui6", "si2", "si4"]


def numbers_of(element: str, count: int, seed: int = 0) -> np.ndarray:
    low, high = integer_range(element)
    return np.random.default_rng(seed).integers(low, high + 1, count).astype(np.int8)


@given(st.sampled_from(PACKED), st.integers(0, 300), st.integers(0, 99))
def test_packed_integers_are_one_stream_of_bits(element: str, count: int, seed: int) -> None:
    numbers = numbers_of(element, count, seed)
    packed = pack(numbers, element)
    assert packed.tobytes() == storage_of(numbers, int(element[2:]))
    assert np.array_equal(unpack(packed, element, count).view(np.int8), numbers)


@pytest.mark.parametrize("element", PACKED)
def test_a_weight_of_several_blocks_is_packed(element: str) -> None:
    numbers = numbers_of(element, 2**16 + 5)
    assert np.array_equal(unpack(pack(numbers, element), element, numbers.size).view(np.int8), numbers)


def weighted(element: str, numbers: np.ndarray, x: Value) -> Value:
    """x plus a constant that an op reads which the toolchain does not fold."""
    if element.startswith("f8"):
        blocks = np.ones((1, 1), np.float32)
        data = coreai.constant(numbers, element)
        made = coreai.blockwise_shift_scale(data, blocks, coreai.constant([[0]], element), blocks * 0)
    elif element in ("si2", "si4"):
        blocks = np.ones((1, 1), np.float32)
        zeros = coreai.constant([[0]], element)
        made = coreai.blockwise_shift_scale(coreai.constant(numbers, element), blocks, zeros, blocks * 0)
    else:
        table = np.arange(2 ** int(element[2:]), dtype=np.float32).reshape(1, 1, -1, 1)
        made = coreai.lut_to_dense(coreai.constant(numbers, element), table, coreai.constant(0, "si16"))
    return coreai.add(x, made)


@pytest.mark.parametrize("element", [*PACKED, "f8E4M3FN", "f8E5M2"])
@pytest.mark.parametrize("shape", [(2, 4), (20, 15)])
def test_constants_of_small_elements(element: str, shape: tuple[int, int], native: Native) -> None:
    """They can be written from numbers and read back; evaluator and runtime compute with them."""
    count = shape[0] * shape[1]
    floats = np.array([0.0, -1.5, 0.25, 2.0, 448.0])
    numbers = (np.resize(floats, count) if element[0] == "f" else numbers_of(element, count)).reshape(shape)
    module, values = IRModule(), []

    def body(x: Value) -> Value:
        values.append(constant_values(coreai.constant(numbers, element).ssa, Builder.current().blobs))
        return weighted(element, numbers, x)

    x = np.ones(shape, np.float32)
    program({"x": f"{shape[0]}x{shape[1]}xf32"}, body, module=module)
    assert np.array_equal(values[0], numbers)
    for run in (evaluate, native.run):
        np.testing.assert_array_equal(np.asarray(run(module, {"x": x})["y0"]), numbers + 1.0)


def test_masks_are_stored_and_read_as_bools() -> None:
    mask, values = np.arange(600) % 7 == 0, []

    def body(x: Value) -> Value:
        made = coreai.constant(mask)
        values.append(constant_values(made.ssa, Builder.current().blobs))
        return coreai.add(x, coreai.cast(made, "f32"))

    program({"x": "600xf32"}, body)
    assert values[0].dtype == np.bool_
    assert np.array_equal(values[0], mask)


@pytest.mark.parametrize(
    ("dtype", "element"),
    [("int4", "si4"), ("uint4", "ui4"), ("int2", "si2"), ("uint2", "ui2"), ("float8_e4m3fn", "f8E4M3FN"),
     ("float8_e5m2", "f8E5M2"), ("bfloat16", "bf16"), ("float4_e2m1fn", "f4E2M1FN")],
)  # fmt: skip
def test_arrays_of_ml_dtypes_become_constants(dtype: str, element: str) -> None:
    array = np.array([[0, 1], [1, 0]]).astype(getattr(ml_dtypes, dtype))
    assert element_name(element_of_numpy(array.dtype)) == element
    made = []
    program({"x": "2xf32"}, lambda x: made.append(coreai.constant(array)) or x)
    maker = made[0].ssa.owner
    assert isinstance(maker, Operation)
    attribute = maker.properties["value"]
    assert isinstance(attribute, DenseIntOrFPElementsAttr)
    assert made[0].dtype == element
    assert np.array_equal(constant_values(made[0].ssa), [[0, 1], [1, 0]])


def test_sparse_weights_have_an_encoding(native: Native) -> None:
    weight = np.where(np.arange(24).reshape(4, 6) % 3 == 0, np.arange(24).reshape(4, 6) + 1.0, 0).astype(np.float32)

    def body(x: Value) -> Value:
        sparse = coreai.build_sparse_with_bitmask(weight[weight != 0], coreai.constant(weight != 0, "ui1"))
        return coreai.add(x, coreai.sparse_with_bitmask_to_dense(sparse))

    module, x = program({"x": "4x6xf32"}, body), np.ones((4, 6), np.float32)
    for run in (evaluate, native.run):
        np.testing.assert_array_equal(np.asarray(run(module, {"x": x})["y0"]), weight + 1)
