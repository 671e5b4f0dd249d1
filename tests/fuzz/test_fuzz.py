"""A sample of random programs; and the fuzzer itself: it finds what is wrong, and what it writes down runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from patcomp import AIProgram
from patcomp.emit.native import Native, NativeError, ProcessDied
from tests.fuzz import judge as judging
from tests.fuzz.generator import generate
from tests.fuzz.judge import judge
from tests.fuzz.noise import HALF, SINGLE, Noise
from tests.fuzz.program import Given, Program, Statement, Symbol
from tests.fuzz.script import script
from tests.fuzz.shrink import shrunk
from tests.helpers import warm

SEED, PROGRAMS, CHUNK = 11, 16, 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_random_programs_are_right_or_refused(first: int, native: Native) -> None:
    for number in range(first, first + CHUNK):
        program = generate(f"{SEED}/{number}")
        outcome = judge(program, native)
        assert not outcome.failed, f"{outcome.kind}: {outcome.message}\n{program.source()}"


def test_a_seed_is_a_program() -> None:
    assert generate("3/5") == generate("3/5")
    assert generate("3/5") != generate("3/6")


def _program(
    *statements: str, outputs: tuple[str, ...], shape: tuple[int | str, ...] = (3, 4), **options: Any
) -> Program:
    numbered = tuple(Statement(code, code.partition(" =")[0]) for code in statements)
    return Program((Given("x0", "input", shape, torch.float32),), numbered, outputs, **options)


NORM = _program(
    "v0 = torch.sin(x0)",
    "v1 = v0.pow(2).mean(-1, keepdim=True)",
    "v2 = v0 * torch.rsqrt(v1 + 0.125)",
    "v3 = v2.reshape(-1)",
    outputs=("v3", "v0"),
)


def _exporting_another(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """What is converted has one detail changed, as a wrong rule would do it."""
    export = judging.export

    def changed(program: Program) -> torch.export.ExportedProgram:
        statements = tuple(replace(s, code=s.code.replace(old, new)) for s in program.statements)
        return export(replace(program, statements=statements))

    monkeypatch.setattr(judging, "export", changed)


def test_a_changed_constant_is_wrong_and_becomes_a_small_program(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(NORM, None).kind == "right"
    _exporting_another(monkeypatch, "0.125", "0.1251")
    assert judge(NORM, None).kind == "wrong"
    small = shrunk(NORM, lambda program: judge(program, None).kind == "wrong")
    assert [statement.result for statement in small.statements] == ["v2"]
    assert small.outputs == ("v2",)
    assert "float64" not in small.source()


def test_an_integer_is_exact_and_a_shape_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    program = _program("v0 = (x0 > 0.3125).sum(0)", "v1 = v0.sum(0)", outputs=("v1",))
    assert judge(program, None).kind == "right"
    _exporting_another(monkeypatch, "sum(0)", "sum(0, keepdim=True)")
    assert "torch.int32[1, 4] for torch.int64[]" in judge(program, None).message


def test_what_rounding_decides_is_not_judged() -> None:
    program = _program("v0 = torch.sin(x0) - torch.cos(1.5707963 - x0)", "v1 = v0 > 0", outputs=("v1",))
    assert judge(program, None).kind == "unstable"


def test_numbers_that_only_look_exact_have_noise() -> None:
    """`floor` of the result may be one less: PyTorch and the converted program compute it with other roundings."""
    ones = torch.ones(1, dtype=torch.float64)
    with Noise(SINGLE, 1), torch.no_grad():
        small = torch.nn.functional.interpolate(torch.tensor([[[1.0, 0.0]]]).double(), 3, mode="linear")
        normal = torch.nn.functional.batch_norm(torch.tensor([[1.0], [2.0]]).double(), ones, 3 * ones)
    assert small[0, 0, 1] != 0.5
    assert normal[0] != 0


def test_exact_numbers_have_no_noise() -> None:
    exact, inexact = torch.arange(8, dtype=torch.float64) / 8, torch.full((8,), 0.1, dtype=torch.float64)
    changes = []
    for direction in (1, -1):
        with Noise(HALF, direction):
            assert torch.equal(exact * 2, exact + exact)
            moved = inexact * 2
        changes.append((moved / 0.2 - 1) / HALF)
    assert 0.49 < changes[0].abs().min() < changes[0].abs().max() < 1.01
    assert len(changes[0].unique()) == 8
    torch.testing.assert_close(changes[0], -changes[1])


def test_long_sums_are_rounded_on_their_way() -> None:
    numbers = torch.tensor([48.0, -48.0] * 20, dtype=torch.float64)
    with Noise(HALF, 1):
        assert torch.dot(numbers, torch.full((40,), 0.125, dtype=torch.float64)) != 0
        assert torch.dot(numbers[:4], torch.full((4,), 0.125, dtype=torch.float64)) == 0


def test_open_sizes_run_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    symbols = {"n": Symbol(1, 6, 4, True)}
    code = "v0 = x0 * torch.arange(x0.shape[0]).clamp(max=9)[:, None]"
    program = _program(code, outputs=("v0",), shape=("n", 3), symbols=symbols)
    assert judge(program, None).kind == "right"
    _exporting_another(monkeypatch, "max=9", "max=4")  # the same up to five rows
    outcome = judge(program, None)
    assert (outcome.kind, outcome.message.partition(": evaluator")[0]) == ("wrong", "sizes {'n': 6}")


@pytest.mark.parametrize(
    ("error", "kind"), [(ProcessDied(11, ""), "abort"), (NativeError("RuntimeError", "no"), "raw error")]
)
def test_what_the_runtime_does_is_found(error: Exception, kind: str) -> None:
    def run(*_: Any) -> None:
        raise error

    assert judge(NORM, SimpleNamespace(run=run)).kind == kind  # type: ignore[arg-type]


def test_an_error_of_the_converter_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(AIProgram, "run", run)
    outcome = judge(NORM, None)
    assert (outcome.kind, outcome.message) == ("raw error", "call 0: evaluator: IndexError: list index out of range")


def test_a_refusal_needs_a_place() -> None:
    refused = judge(_program("v0 = x0 + torch.rand_like(x0)", outputs=("v0",)), None)
    assert refused.kind == "refused"
    assert "rand_like" in refused.message


@pytest.mark.parametrize("number", [0, 9])
def test_a_script_runs_by_itself(number: int, tmp_path: Path) -> None:
    source = script(generate(f"{SEED}/{number}"), judging.Outcome("wrong", "a test"), "a test")
    (tmp_path / "script.py").write_text(source)
    done = warm.run(tmp_path, "script.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("program") >= 3
