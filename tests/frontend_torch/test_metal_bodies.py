"""The bodies of Metal kernels on the CPU: right ones pass, each mistake is found, and what cannot be run says so."""

from __future__ import annotations

import re
import subprocess
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import export

from patcomp import AIProgram, EvaluationError, MetalParameter, MismatchError, TorchConverter, TorchMetalKernel
from patcomp.evaluate.metal import running
from patcomp.evaluate.metal.cpu_source import NotOnCpuError, WrongBodyError, cpu_source
from patcomp.evaluate.verification import Verification
from patcomp.ir.module import IRModule
from tests.frontend_torch.metal_bodies import ID, MISTAKES, RIGHT, SCALED_ADD, TOTAL, Case, Mistake, numbers

try:
    running.compiler()
except NotOnCpuError as missing:
    pytest.skip(str(missing), allow_module_level=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_a_right_body_passes(case: Case) -> None:
    found = case.kernel().verify(*case.args, **case.call).check()
    assert found.errors
    assert str(found) == f"the body of Metal kernel '{case.name}' passed on the CPU"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_a_mistake_is_found(mistake: Mistake) -> None:
    kernel, call = mistake.kernel(), mistake.case.call
    with pytest.raises(MismatchError, match=mistake.says):
        kernel.verify(*mistake.case.args, **call, seconds=1).check()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("simdgroup_matrix<float, 8, 8> m; out[id] = 0;", "it needs `simdgroup_matrix`"),
        ("matmul2d<d, s> op; op.run(x.slice(0, 0), y);", "it needs `matmul2d`, `slice`"),
        ("atomic_fetch_add_explicit(p, 1, memory_order_relaxed);", "`atomic_fetch_add_explicit`"),
        ("out[id] = double(x[id]);", "is wrong: the source uses `double`, which Metal does not have"),
        ("// double, and matmul2d\nout[id] = x[id] + yy[id];", "line 2 of src, `out.*does not compile: .*'yy'"),
        ("out[id, 0] = x[id];", "line 1 of src, .*a tensor takes one index for each dimension, the innermost one"),
        ("out[id] = max(x[id], 0);", "line 1 of src, .*does not compile: no matching function for call to .max"),
        ("float a[4]; a[id] = x[id]; out[id] = a[id];", r"thread \(4, 0, 0\) .* outside of a local array"),
        ("device float* p = &x[0]; out[id] = p[id + 9000];", "outside of a tensor through a pointer"),
        ("out[id] = x[id % (id / 200)];", "divides an integer by zero"),
        ("x[id] = 1; out[id] = 1;", "writes to its input 'x'"),
        ("out[id] = helped(x[id]);", "line 2 of helper_src, `return v . w; }`, does not compile: .*'w'"),
    ],
)
@pytest.mark.sampled(2)
def test_what_else_is_said(body: str, says: str) -> None:
    helper = "float helped(float v) {\n  return v * w; }" if "helped" in body else ""
    kernel = TorchMetalKernel(
        "said", ["x", "y", "scale"], ["out"], body, SCALED_ADD.torch_defn, metal_params=[ID], helper_src=helper
    )
    found = kernel.verify(*SCALED_ADD.args, **SCALED_ADD.call | {"threads_per_grid": (100, 1, 1)})
    assert not found
    with pytest.raises(MismatchError, match=says):
        found.check()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("float std = 1; uchar packed_data = 2; int free = 3; float matrix; simd_shuffle_xor(std, 1);", ""),
        ("// atomic_int, texture2d\nthreadgroup float a[8], b; threadgroup float* p = a + 1;", ""),
        ("packed_float3 v; simd_shuffle_rotate_up(v.x, 1); simd_sums(1);", "simd_shuffle_rotate_up`, `simd_sums"),
        ("threadgroup float a[4] = {0};", "threadgroup memory like `threadgroup float a["),
        ("float y = std::exp(x[id]);", "uses `std::`"),
    ],
)
def test_words_that_the_cpu_or_metal_does_not_have(body: str, says: str) -> None:
    source = SCALED_ADD.kernel(body).source(*SCALED_ADD.args)
    name = source.partition("[[kernel]] void ")[2].partition("(")[0]
    refused = pytest.raises((NotOnCpuError, WrongBodyError), match=re.escape(says)) if says else nullcontext()
    with refused:
        cpu_source(source, name)


def test_a_body_is_compiled_once_leaves_no_files_and_gives_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []
    run = subprocess.run

    def counted(command, **options):  # type: ignore[no-untyped-def]
        commands.append(command[0])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    body = TOTAL.src.replace("first += partial[i]", "first = first + partial[i]")
    found = [TOTAL.kernel(body).verify(*TOTAL.args, **TOTAL.call).check() for _ in range(2)]
    assert found[0] == found[1]
    assert commands.count(running.compiler()) == 1
    assert len(commands) == 3
    assert not list(Path(tempfile.gettempdir()).glob("patcomp-metal-*"))


def test_without_a_compiler_nothing_is_said_to_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.shutil, "which", lambda name: None)
    found = SCALED_ADD.kernel().verify(*SCALED_ADD.args, **SCALED_ADD.call)
    assert (found.status, bool(found)) == ("not run", False)
    with pytest.raises(MismatchError, match=r"needs a C\+\+ compiler, and there is none on PATH .*test it on an Apple"):
        found.check()
    verification = verified(*converted(SCALED_ADD.src))
    assert verification.passed  # of the program around the kernel
    assert "was not run, so nothing is known about it: it needs a C++ compiler" in str(verification)


def test_a_parameter_that_the_cpu_does_not_fill_is_named() -> None:
    kernel = SCALED_ADD.kernel(params=[ID, MetalParameter("d", "uint", "grid_origin")])
    assert "it needs the parameter 'd' of the attribute [[grid_origin]]" in str(
        kernel.verify(*SCALED_ADD.args, **SCALED_ADD.call)
    )


def test_the_order_of_threads_must_not_matter() -> None:
    def first(x: Tensor) -> Tensor:
        return x[:1]

    kernel = TorchMetalKernel("first", ["x"], ["out"], "out[0] = x[id];", first, metal_params=[ID])
    call = {"threads_per_grid": (8, 1, 1), "threads_per_thread_group": (8, 1, 1), "result_shapes": [[1]]}
    with pytest.raises(MismatchError, match="run in the other order, the threads give the right result"):
        kernel.verify(numbers(8), **call).check()
    assert kernel.verify(torch.ones(8), **call).check()


# ---- in programs -----------------------------------------------------------------------------------


def converted(src: str) -> tuple[AIProgram, nn.Module, tuple[Tensor, Tensor]]:
    """A program that calls the kernel twice on one line, with a body."""
    kernel = SCALED_ADD.kernel(src)

    class Model(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            for _ in range(2):
                x = kernel(x, y, 0.5, **SCALED_ADD.call)
            return x

    model, args = Model(), (SCALED_ADD.args[0], SCALED_ADD.args[1])
    converter = TorchConverter().register_custom_kernels([kernel])
    return converter.add_exported_program(export(model, args)).to_coreai(), model, args


def verified(program: AIProgram, model: nn.Module, args: tuple[Tensor, ...]) -> Verification:
    return program.verify_against(model, args)


def test_a_verification_runs_the_bodies() -> None:
    program, model, args = converted(SCALED_ADD.src)
    result = verified(program, model, args).check()
    assert [each.status for each in result.kernels] == ["passed"] * 2
    assert "the body of Metal kernel 'scaled_add' (%scaled_add at tests/frontend_torch/test_metal_bodies.py:" in str(
        result
    )
    assert program.verify_against(model, args, backends=["evaluator"]).kernels == ()
    with pytest.raises(ValueError, match="'kernels' goes with 'evaluator'"):
        program.verify_against(model, args, backends=["kernels"])


def test_a_wrong_body_fails_the_verification() -> None:
    program, model, args = converted(SCALED_ADD.src.replace("+ y", "- y"))
    result = program.verify_against(model, args, by="module")
    assert not result
    assert all(error.passed for error in result.errors)
    assert result.departure is None
    assert result.to_dict()["kernels"][0]["status"] == "wrong"
    with pytest.raises(MismatchError, match=r"kernel 'scaled_add' \(%scaled_add at .*\) is wrong: line 2 of src"):
        result.check()


def test_kernels_of_strangers_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    program, model, args = converted(SCALED_ADD.src)
    monkeypatch.setattr(running, "compiled_body", lambda *_: pytest.fail("compiled"))
    read = replace(program, module=IRModule.parse(str(program)))
    with pytest.raises(EvaluationError, match="known to the program alone that a converter made with it"):
        read.verify_against(model, args)
