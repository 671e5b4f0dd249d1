"""Text: both forms of every op print, parse and print alike, and the real toolchain reads them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patcomp.errors import ParseError
from patcomp.ir import OPS, IRModule, create_graph, tensor
from patcomp.ir.constants import dense
from patcomp.ir.literals import dense_text
from patcomp.ir.text import to_text
from patcomp.ir.types import element_type
from patcomp.ir.xdsl import Block, BytesAttr, DenseIntOrFPElementsAttr, FloatAttr, StringAttr
from tests.helpers.dialect_cases import READABLE, DialectCase
from tests.ir.reprint import reprint

FLOATS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def constant_module(*attributes: DenseIntOrFPElementsAttr) -> IRModule:
    """A module whose graph returns constants."""
    block = Block()
    ops = [OPS["coreai.constant"].create(result_types=[a.type], properties={"value": a}) for a in attributes]
    block.add_ops(ops)
    block.add_op(OPS["coreai.output"].create(operands=[op.results[0] for op in ops]))
    module = IRModule()
    names = [f"y{index}" for index in range(len(attributes))]
    module.op.body.block.add_op(create_graph("main", block, result_names=names))
    return module


def constants_of(module: IRModule) -> list[DenseIntOrFPElementsAttr]:
    return [op.properties["value"] for op in module.graph("main").walk() if op.name == "coreai.constant"]


def survives(attribute: DenseIntOrFPElementsAttr) -> None:
    module = constant_module(attribute)
    for generic in (False, True):
        text = module.text(generic=generic)
        again = IRModule.parse(text)
        assert constants_of(again) == [attribute], text
        assert again.text(generic=generic) == text


# ---- ops ------------------------------------------------------------------------------------------


def test_there_is_a_case_for_every_op() -> None:
    text = "".join(case.text for case in READABLE)
    assert [name for name in OPS if f'"{name}"' not in text] == []


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.id)
def test_both_forms_round_trip(case: DialectCase) -> None:
    module = IRModule.parse(case.text)
    pretty, generic = module.text(), module.text(generic=True)
    assert IRModule.parse(pretty).text() == pretty
    assert IRModule.parse(generic).text(generic=True) == generic
    if not case.id.endswith("_default"):  # the pretty form gives a property that was left out its default
        assert IRModule.parse(pretty).text(generic=True) == generic
    assert IRModule.parse(generic).text() == pretty


@pytest.mark.parametrize("case", READABLE, ids=lambda case: case.id)
def test_plain_ops_print_as_xdsl_prints_them(case: DialectCase, monkeypatch: pytest.MonkeyPatch) -> None:
    module = IRModule.parse(case.text)
    shorter = [to_text(module.op, generic=True, names=names) for names in (True, False)]
    monkeypatch.setattr("patcomp.ir.text._is_plain", lambda op: False)
    assert shorter == [to_text(module.op, generic=True, names=names) for names in (True, False)]


def test_a_property_that_needs_quotes_keeps_them() -> None:
    module = constant_module(dense(np.array([1, 2], np.int32), tensor((2,), "si32")))
    (op,) = (op for op in module.op.walk() if op.name == "coreai.constant")
    op.properties["no name"] = StringAttr("kept")
    text = module.text(generic=True)
    assert '"no name" = "kept"' in text
    assert IRModule.parse(text).text(generic=True) == text


@pytest.mark.parametrize("pretty", [False, True], ids=["generic", "pretty"])
def test_the_toolchain_reads_both_forms(native, pretty: bool) -> None:
    # it prints an `if` without results in a form that it cannot read itself
    cases = [case for case in READABLE if case.outcome != "parse" and not (pretty and case.id == "if_noelse")]
    refused = {case.id: found for case in cases if (found := native.check(IRModule.parse(case.text), pretty=pretty))}
    assert refused == {}


def test_a_metal_kernel_names_its_operands() -> None:
    case = next(case for case in READABLE if case.id == "metal4_kernel")
    kernel = next(op for op in IRModule.parse(case.text).op.walk() if op.name == "coreai.metal4_kernel")
    arguments = kernel.arguments_by_name()
    assert [str(value.type) for value in arguments["result_shapes"]] == ["tensor<1xui32>"]
    assert len(arguments["kernel_args"]) == 1
    assert str(arguments["threads_per_grid"].type) == "tensor<3xui32>"
    assert "operandSegmentSizes" not in arguments


# ---- constants ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
@given(data=st.data())
def test_every_float_bit_pattern_survives(name: str, data: st.DataObject) -> None:
    bits = data.draw(st.lists(st.integers(0, (1 << FLOATS[name]) - 1), min_size=1, max_size=6))
    array = np.array(bits, dtype=f"uint{FLOATS[name]}")
    survives(dense(array, tensor(array.shape, name)))
    survives(dense(array[0], tensor((), name)))


@pytest.mark.parametrize("name", ["f8E4M3FN", "f8E5M2", "f8E8M0FNU", "f4E2M1FN"])
def test_every_small_float_survives(name: str) -> None:
    for bits in range(16 if name.startswith("f4") else 256):
        survives(dense(np.array([bits, 0], dtype=np.uint8), tensor((2,), name)))


@given(st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 2), min_size=1, max_size=4))
def test_every_complex_bit_pattern_survives(pairs: list[tuple[int, int]]) -> None:
    array = np.array(pairs, dtype=np.uint32).reshape(-1).view(np.complex64)
    survives(dense(array, tensor(array.shape, "complex<f32>")))


@pytest.mark.parametrize("name", ["si2", "si4", "si8", "si16", "si32", "si64", "ui1", "ui3", "ui4", "ui6", "ui64"])
def test_extreme_integers_survive(name: str) -> None:
    bits = int(name[2:])
    dtype = np.dtype(f"{'int' if name[0] == 's' else 'uint'}{max(8, bits)}")
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if name[0] == "s" else (0, (1 << bits) - 1)
    survives(dense(np.array([low, high, 0], dtype=dtype), tensor((3,), name)))
    survives(dense(np.resize(np.array([low, high, 0], dtype=dtype), 130), tensor((130,), name)))
    survives(dense(np.full((3, 5), low, dtype=dtype), tensor((3, 5), name)))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (2, 3), (130,), (13, 20)])
@pytest.mark.parametrize("name", ["f32", "si32", "i1", "complex<f32>"])
def test_every_shape_survives(shape: tuple[int, ...], name: str) -> None:
    dtype = {"f32": np.float32, "si32": np.int32, "i1": np.bool_, "complex<f32>": np.complex64}[name]
    count = int(np.prod(shape))
    array = np.resize(np.array([1, 0, 1]), count).astype(dtype).reshape(shape)
    survives(dense(array, tensor(shape, name)))


def test_a_splat_stays_one_value() -> None:
    attribute = dense(np.full((1000, 1000), 0.5, np.float32), tensor((1000, 1000), "f32"))
    assert len(attribute.data.data) == 4
    assert dense_text(attribute) == "dense<5.000000e-01>"
    assert constants_of(IRModule.parse(constant_module(attribute).text())) == [attribute]


def random_constant(element: str, count: int) -> DenseIntOrFPElementsAttr:
    generator = np.random.default_rng(0)
    storage = {"complex<f32>": 8, "f64": 8, "si64": 8, "f32": 4, "f16": 2, "bf16": 2}.get(element, 1)
    data = generator.integers(0, 256, size=count * storage, dtype=np.uint8)
    if element == "i1":
        data &= 1
    elif element == "ui3":
        data &= 7
    elif element == "si4":
        data = ((data & 15).astype(np.int8) << 4 >> 4).view(np.uint8)
    return DenseIntOrFPElementsAttr(tensor((count,), element), BytesAttr(data.tobytes()))


def test_the_toolchain_reads_our_constants_as_we_do() -> None:
    """Our text and the toolchain's text of the same constant hold the same bits."""
    pytest.importorskip("coreai")
    elements = ["f16", "f32", "f64", "bf16", "i1", "si4", "ui3", "si64", "complex<f32>", "f8E4M3FN", "f8E5M2"]
    attributes = [random_constant(element, count) for element in elements for count in (3, 9, 130)]
    texts = reprint([constant_module(attribute).text() for attribute in attributes])
    for attribute, text in zip(attributes, texts, strict=True):
        assert constants_of(IRModule.parse(text)) == [attribute], text


@pytest.mark.parametrize(
    ("literal", "words"),
    [
        ("dense<8> : tensor<2xsi4>", "does not fit element type si4"),
        ("dense<-1> : tensor<2xui4>", "does not fit element type ui4"),
        ("dense<1.5> : tensor<2xsi32>", "no element of type si32"),
        ("dense<true> : tensor<2xsi32>", "no element of type si32"),
        ("dense<[1, 2, 3]> : tensor<2xsi32>", "shape"),
        ("dense<> : tensor<2xsi32>", "0 values"),
        ("dense<1> : tensor<?xsi32>", "static"),
        ('dense<"0x01"> : tensor<200xi1>', "bits of 200 elements"),
        ('dense<"0x0102"> : tensor<3xui8>', "2 values"),
        ("dense<0x1FFFF> : tensor<2xf16>", "more bits than f16"),
        ("dense<(1.0, 2.0)> : tensor<2xf32>", "no element of type f32"),
    ],
)
def test_wrong_constants_are_refused(literal: str, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        IRModule.parse(f"coreai.graph private @f() {{ %0 = coreai.constant {literal} coreai.output }}")


# ---- strings and scalars ---------------------------------------------------------------------------


@given(st.text(max_size=20))
def test_any_string_survives(text: str) -> None:
    module = constant_module(dense(np.zeros(1, np.float32), tensor((1,), "f32")))
    module.graph("main").attributes["patcomp.note"] = StringAttr(text)
    for generic in (False, True):
        again = IRModule.parse(module.text(generic=generic))
        assert again.graph("main").attributes["patcomp.note"] == StringAttr(text)


@given(st.floats(width=32, allow_nan=False))
def test_any_scalar_float_survives(value: float) -> None:
    module = constant_module(dense(np.zeros(1, np.float32), tensor((1,), "f32")))
    module.graph("main").attributes["patcomp.note"] = FloatAttr(value, element_type("f32"))
    again = IRModule.parse(module.text())
    assert again.graph("main").attributes["patcomp.note"] == FloatAttr(value, element_type("f32"))


def test_a_parse_error_names_the_value() -> None:
    with pytest.raises(ParseError, match="not defined"):
        IRModule.parse(
            "coreai.graph @main(%x: tensor<2xf32>) {\n  %0 = coreai.abs %y : tensor<2xf32> -> tensor<2xf32>\n}"
        )
