"""The verifier keeps the verdicts of ops for the process. One fact that a check reads makes another verdict."""

import gc

import pytest

from patcomp.errors import VerifyError
from patcomp.ir import coreai
from patcomp.ir.module import IRModule
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.verify import signatures, verify
from patcomp.ir.xdsl import Operation, StringAttr, ops_inside
from tests.helpers.programs import program


def reduction(axis: int, result: tuple[int, ...], x: str = "2x3xf32") -> IRModule:
    return program({"x": x}, lambda x: coreai.reduce_sum(x, [axis], result_type=tensor(result, "f32")))


def reshape(*sizes: int) -> IRModule:
    """A reshape to 1x6 by a shape that an op computes, so that its type does not depend on the sizes."""

    def body(x: Value) -> Value:
        shape = coreai.concat(0, [coreai.constant([size], "si32") for size in sizes])
        return coreai.reshape(x, shape, result_type=tensor((1, 6), "f32"))

    return program({"x": "2x3xf32"}, body)


def cast(shape: tuple[int, ...]) -> IRModule:
    return program({"x": "2x3xf32"}, lambda x: coreai.cast(x, "f16", result_type=tensor(shape, "f16")))


PAIRS = {
    "the type of an operand": (lambda: reduction(1, (2, 1)), lambda: reduction(1, (2, 1), "4x3xf32")),
    "the type of a result": (lambda: reduction(1, (2, 1)), lambda: reduction(1, (2, 3))),
    "a constant operand": (lambda: reduction(1, (2, 1)), lambda: reduction(0, (2, 1))),
    "sizes that ops compute": (lambda: reshape(1, 6), lambda: reshape(6, 1)),
    "the shape of a cast": (lambda: cast((2, 3)), lambda: cast((3, 2))),
}


@pytest.mark.parametrize("fact", PAIRS)
def test_a_verdict_holds_for_the_same_facts_only(fact: str) -> None:
    right, wrong = PAIRS[fact]
    verify(right())
    with pytest.raises(VerifyError):
        verify(wrong())
    count = len(signatures._VERDICTS)
    verify(right())
    with pytest.raises(VerifyError):
        verify(wrong())
    assert len(signatures._VERDICTS) == count  # they are known by now


@pytest.fixture(autouse=True)
def own_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "_VERDICTS", {})


def _tanh() -> tuple[IRModule, Operation]:
    module = program({"x": "2x3xf32"}, coreai.tanh)
    return module, next(op for op in ops_inside(module.op) if op.name == "coreai.tanh")


def test_a_property_makes_another_verdict() -> None:
    module, op = _tanh()
    verify(module)
    op.properties["speed"] = StringAttr("high")
    with pytest.raises(VerifyError, match="has no property `speed`"):
        verify(module)
    del op.properties["speed"]
    verify(module)


def test_a_missing_operand_makes_another_verdict() -> None:
    module, op = _tanh()
    verify(module)
    op.operands = []
    with pytest.raises(VerifyError, match="takes 1 operands, but has 0"):
        verify(module)


def test_a_verdict_for_the_runtime_is_another_one() -> None:
    def body(x: Value) -> Value:
        return coreai.tanh(x, result_type=tensor((2, 3), "f32"))

    for _ in range(2):
        verify(program({"x": "?x3xf32"}, body), runtime=False)
        with pytest.raises(VerifyError, match="must be exactly"):
            verify(program({"x": "?x3xf32"}, body))


def test_the_use_of_a_value_is_checked_for_each_op() -> None:
    module, op = _tanh()
    verify(module)
    other, _ = _tanh()
    op.operands[0] = next(iter(other.graphs)).regions[0].block.args[0]
    with pytest.raises(VerifyError, match="operand 0, a block argument, is not visible here"):
        verify(module)


def test_what_a_key_names_stays_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise another type could get the identity of a freed one, and with it its verdict."""
    kept: dict[tuple[object, ...], tuple[list[str], list[object]]] = {}
    monkeypatch.setattr(signatures, "_VERDICTS", kept)
    verify(reshape(1, 6))
    gc.collect()
    assert kept
    for key, (_, facts) in kept.items():
        assert facts
        assert [*map(id, facts)] == list(key[-len(facts) :])
        assert not {fact for fact in key[: -len(facts)] if isinstance(fact, int) and fact > 1000}


def test_the_number_of_verdicts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[tuple[object, ...], tuple[list[str], object]] = {}
    monkeypatch.setattr(signatures, "_VERDICTS", kept)
    monkeypatch.setattr(signatures, "_KEPT", 4)
    for size in range(1, 12):
        verify(program({"x": f"{size}xf32"}, coreai.tanh))
        assert 0 < len(kept) <= 4
