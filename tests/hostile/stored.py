"""Broken programs of assets, given to the reader in Python; what it reads is listed, printed, stored and read again."""

from __future__ import annotations

import contextlib
from functools import partial
from random import Random

from patcomp.emit.bytecode import ProgramWriter, StoredProgram, read_program
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.emit.stored.loading import loaded_module
from patcomp.emit.stored.outline import Outline
from patcomp.emit.stored.storing import stored_program
from patcomp.ir.module import IRModule
from tests.asset.native_programs import native_programs
from tests.hostile.judge import Case
from tests.hostile.mutation import broken_bytes

Programs = list[bytes]


def prepare() -> Programs:
    """The programs that coreai-core saves for the cases of the dialect."""
    return list(native_programs().values())


def draw(programs: Programs, random: Random) -> Case:
    change = random.choice((broken_bytes, of_numbers, of_numbers, spliced))
    data = bytearray(random.choice(programs))
    if change is spliced:
        data = spliced(data, random.choice(programs), random)
    else:
        data = bytearray(change(bytes(data), random))  # type: ignore[operator]
    return Case(partial(run, bytes(data)), bytes(data), change.__name__)


def run(data: bytes) -> None:
    """Read a program, and, if it is one, list what it holds, print it, store it and read it again.

    Raises:
        PatcompError: it is damaged, or has what the IR lacks.
    """
    program = read_program(data)
    again = read_program(_encoded(program))
    assert _encoded(again) == _encoded(program)
    with contextlib.suppress(UnsupportedInAssetError):
        _list(Outline(program))
    module = loaded_module(program)
    IRModule.parse(module.text())
    loaded_module(read_program(_encoded(stored_program(module))))


def _list(outline: Outline) -> None:
    for _ in (*outline.op_names(), *outline.weights(), *outline.composites(), *outline.entry_points()):
        pass


def _encoded(program: StoredProgram) -> bytes:
    return b"".join(ProgramWriter(program).pieces())


def of_numbers(data: bytes, random: Random) -> bytes:
    """One to four numbers of the file are small, large, or as large as they can be."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(20, len(changed))
        number = random.choice((b"\x01", b"\x03", b"\x05", b"\xff", b"\xfe\xff", b"\0" + b"\xff" * 8, b"\0" * 9))
        changed[at : at + random.choice((1, len(number)))] = number
    return bytes(changed)


def spliced(data: bytearray, other: bytes, random: Random) -> bytearray:
    """A part of one program in another."""
    start, length = random.randrange(20, len(data)), random.choice((4, 16, 64))
    source = random.randrange(len(other))
    data[start : start + length] = other[source : source + length]
    return data
