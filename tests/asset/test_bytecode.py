"""The container of programs: bytes stay the same, and what is damaged ends in one error that names the place."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from random import Random

import pytest

from patcomp.emit.bytecode import (
    AssetFormatError,
    Block,
    Op,
    ProgramWriter,
    StoredBytes,
    StoredEntry,
    StoredProgram,
    StoredValue,
    read_program,
)
from patcomp.emit.bytecode.encoding import Cursor, encoded_number, encoded_signed
from tests.asset.native_programs import native_programs, saved
from tests.helpers.dialect_cases import CASES
from tests.hostile.mutation import broken_bytes

UNIT = ("unit_v1",)
LOCATION: StoredEntry = ("location", ("source", ("file", "-", "", ""), 1, 1, 1, 1), UNIT, (), ())
FLOAT = ("float32_v1",)


def encoded(program: StoredProgram) -> bytes:
    return b"".join(ProgramWriter(program).pieces())


def op(name: str, *operands: StoredValue, results: tuple[StoredEntry, ...] = (), **rest: object) -> Op:
    made = Op(name, list(operands), [StoredValue(type_) for type_ in results], {}, [], LOCATION)
    for key, value in rest.items():
        setattr(made, key, value)
    return made


def asset(*ops: Op, weights: dict[str, StoredBytes] | None = None) -> StoredProgram:
    return StoredProgram(op("serialization.asset", regions=[[Block([], [], list(ops))]]), weights or {}, "test")


def constant(value: StoredEntry) -> Op:
    return op("primitive.constant_v1", results=(("tensor_v1", (2,), FLOAT),), properties={"value": value})


def test_programs_are_decoded_and_encoded_to_the_same_bytes() -> None:
    programs = native_programs()
    assert len(programs) > 225
    changed = [name for name, data in programs.items() if encoded(read_program(data)) != data]
    assert not changed


def test_the_stored_programs_are_what_the_toolchain_writes(tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    texts = {case.id: case.text for case in CASES if case.id in ("relu", "while", "invoke_composite", "metal4_kernel")}
    assert saved(texts, tmp_path) == {name: native_programs()[name] for name in texts}


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**35, 2**49 - 1, 2**56 - 1, 2**56, 2**64 - 1])
def test_numbers(value: int) -> None:
    data = memoryview(encoded_number(value))
    assert Cursor(data).number() == value
    assert len(data) == max(1, min(9, -(-value.bit_length() // 7)))


@pytest.mark.parametrize("value", [0, -1, 1, 63, -64, 64, 2**40, -(2**40), 2**63 - 1, -(2**63)])
def test_signed_numbers(value: int) -> None:
    assert Cursor(memoryview(encoded_signed(value))).signed() == value


def test_weights_are_aligned_and_not_copied() -> None:
    weights = {name: StoredBytes(memoryview(bytes([n]) * (n + 3)), 16) for n, name in enumerate("abc")}
    weights["unused"] = StoredBytes(memoryview(b"x" * 100))
    program = asset(*(constant(("dense_resource", name)) for name in "bca"), weights=weights)
    data = encoded(program)
    again = read_program(data)
    assert list(again.weights) == ["b", "c", "a"]
    for name, weight in again.weights.items():
        assert bytes(weight.data) == bytes(weights[name].data)
        assert weight.data.obj is data
        assert data.index(bytes(weight.data)) % 16 == 0
    assert sum(piece is weights["a"].data for piece in ProgramWriter(program).pieces()) == 1
    assert ProgramWriter(program).size == len(data)
    assert encoded(again) == data


def test_a_file_that_is_cut_off_ends_in_the_error() -> None:
    for name in ("while", "invoke_composite", "sparse_lut"):
        data = native_programs()[name]
        for length in range(len(data)):
            with pytest.raises(AssetFormatError, match="at byte") as error:
                read_program(data[:length])
            assert 0 <= error.value.offset <= length


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_is_read_or_ends_in_the_error(seed: int) -> None:
    random, programs = Random(seed), list(native_programs().values())
    outcomes = {"read": 0, "refused": 0}
    for _ in range(500):
        try:
            read_program(broken_bytes(random.choice(programs), random))
            outcomes["read"] += 1
        except AssetFormatError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 5


def test_no_memory_is_taken_by_a_number_in_the_file() -> None:
    """Each byte of a file becomes the head of a number of 64 bits with all bits set."""
    data = native_programs()["while"]
    tracemalloc.start()
    try:
        for at in range(0, len(data), 3):
            with pytest.raises(AssetFormatError):
                read_program(data[:at] + b"\0" + b"\xff" * 8 + data[at + 1 :])
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def _with_attributes(*records: bytes) -> bytes:
    """A file whose only op has the first attribute as its location."""
    sizes = encoded_number(len(records)) + encoded_number(0) + encoded_number(0) + encoded_number(len(records))
    sizes += b"".join(encoded_number(len(record) << 1 | 1) for record in records)
    texts = b"aicode\0serialization.asset\0"
    sections = {
        1: encoded_number(1)
        + encoded_number(0)
        + encoded_number(1)
        + encoded_number(0)
        + encoded_number(1)
        + encoded_number(1 << 1),
        3: sizes,
        2: b"".join(records),
        4: encoded_number(1 << 1)
        + encoded_number(0)
        + b"\x10"
        + encoded_number(0)
        + encoded_number(1 << 1 | 1)
        + b"\x04"
        + encoded_number(1)
        + encoded_number(0),
        0: encoded_number(2) + encoded_number(20) + encoded_number(7) + texts,
    }
    body = b"".join(bytes([kind]) + encoded_number(len(data)) + data for kind, data in sections.items())
    return b"ML\xefR" + encoded_number(6) + b"x\0" + body


def array(*positions: int) -> bytes:
    return encoded_number(5) + encoded_number(len(positions)) + b"".join(map(encoded_number, positions))


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([array(0)], "attribute 0 contains itself"),
        ([array(1), array(2), array(0)], "attribute 0 contains itself"),
        ([array(n + 1) for n in range(100)] + [array()], "nested more than 64 deep"),
        ([array(n + 1, n + 1) for n in range(60)] + [array()], "more than 1048576 parts"),
        ([array(3)], "names attribute 3 of 1"),
        ([encoded_number(99)], "attributes of kind 99, which this version of patcomp does not know"),
        ([array() + b"\1"], "1 bytes follow an attribute of kind array"),
        ([encoded_number(2) + encoded_number(65) + b"\0" + encoded_number(1)], "integers of 65 bits are not supported"),
        ([encoded_number(5) + encoded_number(2**60)], "announces 1152921504606846976 items in 0 bytes"),
    ],
)
def test_attributes_that_are_not_possible(records: list[bytes], problem: str) -> None:
    with pytest.raises(AssetFormatError, match=problem):
        read_program(_with_attributes(*records))


def test_attributes_that_are_possible() -> None:
    program = read_program(_with_attributes(array(1, 1), array()))
    assert program.asset.location == ("array", (("array", ()), ("array", ())))


def test_regions_that_are_nested_too_deeply() -> None:
    made = op("relu_v1")
    for _ in range(200):
        made = op("relu_v1", regions=[[Block([], [], [made])]])
    with pytest.raises(AssetFormatError, match="regions are nested more than 60 deep"):
        read_program(encoded(asset(made)))


def test_values_of_another_region_cannot_be_read() -> None:
    first = op("primitive.abs_v1", results=(FLOAT,))
    inner = op("primitive.abs_v1", first.results[0], results=(FLOAT,))
    branch = op("controlflow.if_v1", regions=[[Block([], [], [inner])], [Block([], [], [])]])
    user = op("primitive.abs_v1", first.results[0])
    data = encoded(asset(first, branch, user))
    read_program(data)
    user.operands = inner.results
    with pytest.raises(AssetFormatError, match="reads value 1, which is not there yet"):
        read_program(encoded(asset(first, branch, user)))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "no MLIR bytecode"),
        (b"PK\x03\x04" + bytes(100), "no MLIR bytecode"),
        (b"ML\xefR" + encoded_number(7) + b"x\0", "version 7 of MLIR bytecode"),
        (b"ML\xefR" + encoded_number(6) + b"x" * 5000, "no end within 4096 bytes"),
        (b"ML\xefR" + encoded_number(6) + b"x\0", "has no section 0"),
    ],
)
def test_other_files(data: bytes, problem: str) -> None:
    with pytest.raises(AssetFormatError, match=problem):
        read_program(data)


def test_the_container_needs_neither_pytorch_nor_xdsl() -> None:
    script = "import sys, patcomp.emit.bytecode; print([m for m in ('torch', 'xdsl', 'numpy') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


DEBUGGED = """
#file = #debuginfo.file<filename = "net.py", directory = "/models", sha256Sum = "1961">
#source = loc("/models/net.py":7:0)
#unit = #debuginfo.compile_unit<sourceLanguage = "mlir", file = #file, producer = "torch", optimized = true,
  flags = "f", allFiles = #file>
#function = #debuginfo.subprogram<compileUnit = #unit, file = #file, name = "main", linkageName = "link"
  > : (tensor<2xf16>) -> tensor<2xf16>
#stack = #debuginfo.metadata<"call_stack": ["Net$1"]>
#id = #debuginfo.metadata<"op_id": {type = "coreai", value = 7 : ui64}>
#other = #debuginfo.location<#source in @main>
#place = #debuginfo.location<#source in #function fused with [#other] metadata = [#stack, #id]>
module {
  coreai.graph @main(%x: tensor<2xf16> {coreai.name = "x"}) -> (tensor<2xf16> {coreai.name = "y"}) {
    %y = coreai.exp %x : tensor<2xf16> -> tensor<2xf16> loc(#place)
    coreai.output %y : tensor<2xf16>
  }
}
"""
"""What coreai-torch says of where an op comes from."""


def test_debug_information_is_read(tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    data = saved({"debugged": DEBUGGED}, tmp_path)["debugged"]
    read = read_program(data)
    assert encoded(read) == data
    (graph,) = read.asset.regions[0][0].ops
    kind, source, scope, others, metadata = graph.regions[0][0].ops[0].location
    assert (kind, source[2], len(others)) == ("location", 7, 1)
    file = ("file", "net.py", "/models", "1961")
    assert scope[0] == "subprogram"
    assert scope[2:] == (("compile_unit", "mlir", file, "torch", 1, "f", (file,)), file, "main", "link", 0)
    assert [(each[0], each[1]) for each in metadata] == [("metadata", "call_stack"), ("metadata", "op_id")]
