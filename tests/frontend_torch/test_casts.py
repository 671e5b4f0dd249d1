"""Casts of casts: the toolchain drops the first where the type in between is as wide, unless a copy keeps it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from patcomp import TorchConverter, VerifyError
from patcomp.emit.native import Native
from patcomp.ir import coreai
from patcomp.ir.casts import holds
from patcomp.ir.types import element_type
from patcomp.ir.verify import verify
from tests.frontend_torch.models import Function
from tests.helpers.programs import program

FLOATS = torch.tensor([-1.75, -0.875, -0.25, 0.0, 0.5, 0.875, 1.375, 2.0])
SHORTS = torch.tensor([2049, -2051, 3, 4097], dtype=torch.int16)
INTEGERS = torch.tensor([16777217, -16777219, 5], dtype=torch.int32)

CASTS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "fraction": (lambda x: x - x.long(), FLOATS),
    "int32": (lambda x: (x * 4).int().float() * 3, FLOATS),
    "division": (lambda x: (x * 4).int() / 2, FLOATS),
    "exp": (lambda x: x.int().exp2(), FLOATS),
    "twice": (lambda x: (x.int().float() * 0.5).int().float(), FLOATS),
    "half int16 half": (lambda x: x.half().to(torch.int16).half(), FLOATS),
    "half float int float": (lambda x: x.half().float().int().float(), FLOATS),
    "half float int16 float": (lambda x: x.half().float().to(torch.int16).float(), FLOATS),
    "half bfloat16 half": (lambda x: (x * 1.01).half().bfloat16().half(), FLOATS),
    "int16 half int16": (lambda x: x.half().to(torch.int16), SHORTS),
    "int32 float int32": (lambda x: x.float().int(), INTEGERS),
    "narrower": (lambda x: (x * 1.01).half().float(), FLOATS),
}


@pytest.mark.parametrize("name", CASTS)
def test_casts_of_casts_keep_their_numbers(name: str, native: Native) -> None:
    function, x = CASTS[name]
    converted = TorchConverter().add_exported_program(torch.export.export(Function(function), (x,))).to_coreai()
    assert torch.equal(converted.run(x), function(x))
    (output,) = native.run(converted.module, {converted.input_names()[0]: x}).values()
    assert torch.equal(torch.from_numpy(output), function(x))


def test_only_casts_that_are_dropped_are_copied() -> None:
    def text(function: Callable[[torch.Tensor], torch.Tensor]) -> str:
        return str(
            TorchConverter().add_exported_program(torch.export.export(Function(function), (FLOATS,))).to_coreai()
        )

    assert "maximum" in text(lambda x: x.int().float())
    for harmless in (lambda x: x.half().float(), lambda x: x.to(torch.int8).float(), lambda x: x.half().float().half()):
        assert "maximum" not in text(harmless)


def test_the_verifier_refuses_a_cast_that_is_dropped() -> None:
    dropped = program({"x": "4xf32"}, lambda x: coreai.cast(coreai.cast(x, "si32"), "f32"))
    verify(dropped, runtime=False)
    with pytest.raises(VerifyError, match="the toolchain drops the cast of its operand"):
        verify(dropped)
    verify(program({"x": "4xf32"}, lambda x: coreai.cast(coreai.cast(x, "si16"), "f32")))


@pytest.mark.parametrize(
    ("wide", "narrow", "held"),
    [
        ("f32", "f16", True), ("f32", "bf16", True), ("f16", "bf16", False), ("bf16", "f16", False),
        ("f32", "si16", True), ("f16", "si16", False), ("f32", "si32", False), ("si32", "f32", False),
        ("si32", "si16", True), ("si16", "ui16", False), ("si32", "ui16", True), ("ui32", "si16", False),
        ("ui16", "ui8", True), ("si32", "i1", True), ("f16", "ui8", True), ("bf16", "ui8", True),
    ],
)  # fmt: skip
def test_which_types_hold_which(wide: str, narrow: str, held: bool) -> None:
    assert holds(element_type(wide), element_type(narrow)) is held
