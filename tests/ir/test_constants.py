"""Constants and the weight store: conversions that never wrap, bytes that are never copied."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patcomp.ir import BlobStore, tensor
from patcomp.ir.constants import attribute_values, constant_attribute, dense, is_splat
from patcomp.ir.elements import element_of_numpy, to_numpy
from patcomp.ir.types import element_type
from patcomp.ir.xdsl import DenseIntOrFPElementsAttr, DenseResourceAttr
from tests.helpers.programs import storage_of

# ---- the store ------------------------------------------------------------------------------------


def test_weights_are_not_copied() -> None:
    store = BlobStore()
    weight = np.arange(400, dtype=np.float32).reshape(20, 20)
    blob = store[store.add("weight", weight, tensor((20, 20), "f32"))]
    assert np.shares_memory(np.frombuffer(blob.data, dtype=np.uint8), weight)
    assert np.shares_memory(blob.array(), weight)
    weight[0, 0] = 7
    assert blob.array()[0, 0] == 7


def test_tensors_that_share_memory_are_stored_once() -> None:
    store = BlobStore()
    weight = np.arange(400, dtype=np.float32)
    assert store.add("tied", weight, tensor((400,), "f32")) == store.add("other", weight, tensor((400,), "f32"))
    assert store.add("reshaped", weight, tensor((20, 20), "f32")) == "reshaped"
    assert [blob.key for blob in store] == ["tied", "reshaped"]


def test_equal_content_is_found() -> None:
    store = BlobStore()
    for key, value in (("a", 1), ("b", 1), ("c", 2)):
        store.add(key, np.full(300, value, np.float32), tensor((300,), "f32"))
    store.add("d", np.full(300, 1, np.int32), tensor((300,), "si32"))
    store.add("e", np.full((3, 100), 1, np.float32), tensor((3, 100), "f32"))
    assert store.same_content("abcde") == {"a": "a", "b": "a", "c": "c", "d": "d", "e": "a"}
    assert store.same_content("bd") == {"b": "b", "d": "d"}


@given(st.lists(st.text(max_size=8), max_size=8))
def test_keys_are_unique_identifiers(wished: list[str]) -> None:
    store = BlobStore()
    given_keys = [store.add(key, np.zeros(4, np.uint8), tensor((4,), "ui8")) for key in wished]
    assert len(set(given_keys)) == len(wished)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.$]*", key) for key in given_keys)


@pytest.mark.parametrize(
    ("size", "type_", "fits"),
    [
        (400, tensor((100,), "f32"), True),
        (399, tensor((100,), "f32"), False),
        (6, tensor((3, 5), "ui3"), True),
        (15, tensor((3, 5), "ui3"), False),
        (15, tensor((3, 5), "i1"), True),
        (2, tensor((3, 5), "i1"), False),
        (8, tensor((1,), "complex<f32>"), True),
        (0, tensor((0, 5), "f32"), True),
    ],
)
def test_the_number_of_bytes_must_fit(size: int, type_: object, fits: bool) -> None:
    store = BlobStore()
    if fits:
        assert store.add("w", bytes(size), type_) in store
    else:
        with pytest.raises(ValueError, match=f"has {size} bytes"):
            store.add("w", bytes(size), type_)


def test_packed_integers() -> None:
    assert storage_of([1, 2, 3], 2) == bytes([0b111001])
    assert len(storage_of(np.zeros(15, np.int64), 3)) == 6
    assert storage_of([-1, 0], 4) == bytes([0x0F])


# ---- attributes -----------------------------------------------------------------------------------


def test_what_goes_into_the_text() -> None:
    store = BlobStore()
    small = constant_attribute(np.arange(255, dtype=np.float32), element_type("f32"), store)
    large = constant_attribute(np.arange(256, dtype=np.float32), element_type("f32"), store, key="layer.weight")
    splat = constant_attribute(np.full(5000, 3, np.float32), element_type("f32"), store)
    assert isinstance(small, DenseIntOrFPElementsAttr)
    assert isinstance(large, DenseResourceAttr)
    assert isinstance(splat, DenseIntOrFPElementsAttr)
    assert len(splat.data.data) == 4
    assert [blob.key for blob in store] == ["layer.weight"]
    assert np.array_equal(attribute_values(large, store), np.arange(256))
    assert attribute_values(large) is None
    assert attribute_values(splat).shape == (5000,)


def test_splats_are_told_by_their_bits() -> None:
    assert is_splat(np.full(100000, np.nan, np.float32))
    assert not is_splat(np.array([0.0, -0.0], np.float32))
    assert not is_splat(np.array([], np.float32))
    assert not is_splat(np.concatenate([np.zeros(70000), np.ones(1), np.zeros(1)]))


def test_values_read_back() -> None:
    values = np.array([[1.5, -2.0], [np.inf, 0.0]])
    for name in ("f16", "bf16", "f32", "f64"):
        array, element = to_numpy(values, name)
        assert np.array_equal(attribute_values(dense(array, tensor((2, 2), element))), values)


# ---- conversions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "name"),
    [(True, "i1"), (3, "si32"), (1.5, "f32"), ([1, 2], "si32"), ([1.0], "f32"), (np.float64(1), "f64"),
     (np.array([1], np.int64), "si64"), (np.array([1], np.uint8), "ui8"),
     (1j * np.ones(2, np.complex64), "complex<f32>")],
)  # fmt: skip
def test_default_element_types(value: object, name: str) -> None:
    assert to_numpy(value)[1] == element_type(name)


@pytest.mark.parametrize(
    ("value", "name"),
    [(2**31, "si32"), (-1, "ui32"), (256, "ui8"), ([0, -129], "si8"), (2**31, None), (np.uint64(2**63), "si64"),
     (8, "si4"), (-3, "si2"), (4, "ui2"), ([0, 64], "ui6"), (449.0 * 2, "f8E4M3FN"), (7.0, "f4E2M1FN")],
)  # fmt: skip
def test_numbers_never_wrap(value: object, name: str | None) -> None:
    with pytest.raises(OverflowError, match="does not fit"):
        to_numpy(value, name)


def test_kinds_that_do_not_convert() -> None:
    with pytest.raises(TypeError, match="not an integer"):
        to_numpy(1.5, "si32")
    with pytest.raises(TypeError, match="not an integer"):
        to_numpy([0.5, 1], "si4")
    with pytest.raises(TypeError, match="has no sign"):
        to_numpy(-1.0, "f8E8M0FNU")
    with pytest.raises(TypeError, match="no Core AI element type"):
        element_of_numpy(np.dtype("U1"))


@given(st.floats(width=32, allow_nan=False))
def test_bfloat16_rounds_to_nearest_even(value: float) -> None:
    torch = pytest.importorskip("torch")
    bits = to_numpy(value, "bf16")[0]
    expected = torch.tensor(value, dtype=torch.float32).to(torch.bfloat16).view(torch.int16).item() & 0xFFFF
    assert int(bits) == expected


def test_bfloat16_keeps_nan() -> None:
    assert int(to_numpy(float("nan"), "bf16")[0]) == 0x7FC0


def test_numbers_that_are_equal_in_python_stay_apart() -> None:
    assert [np.signbit(to_numpy(number, "f32")[0]) for number in (0.0, -0.0)] == [False, True]
    assert to_numpy(1, None)[1] == element_type("si32")
    assert to_numpy(True, None)[1] == element_type("i1")
    assert to_numpy(1.0, None)[1] == element_type("f32")
    assert np.isnan(to_numpy(float("nan"), "f32")[0])
    assert to_numpy(-(2**31), "si32")[0] == -(2**31)


def test_small_equal_constants_are_one_object() -> None:
    def made(values: list[float]) -> object:
        return constant_attribute(*to_numpy(values, "f32"), None)

    assert made([0.0, 1.0]) is made([0.0, 1.0])
    assert made([0.0, 1.0]) is not made([-0.0, 1.0])
    assert made([1.0]) is not constant_attribute(*to_numpy(1.0, "f32"), None)
