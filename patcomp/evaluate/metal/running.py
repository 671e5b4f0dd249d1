"""Compile a Metal kernel for the CPU and run it in a child process, which a crash or an endless loop cannot leave."""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from patcomp.evaluate.metal.cpu_source import CpuSource, NotOnCpuError, WrongBodyError

_HEADERS = Path(__file__).parent / "cpu"
_COMPILERS = ("g++", "clang++", "c++")
_FLAGS = (
    "-std=c++2b", "-O1", "-w", "-ffp-contract=off", "-fwrapv", "-fno-threadsafe-statics",
    "-ftrivial-auto-var-init=pattern",  # a variable without a value has an impossible one, not by chance 0
    "-fsanitize=bounds", "-fsanitize-undefined-trap-on-error",
    "-D_XOPEN_SOURCE=700", "-D_DARWIN_C_SOURCE",  # for ucontext.h on macOS
)  # fmt: skip
_SECONDS_TO_COMPILE = 60


@dataclass(frozen=True)
class Order:
    """What a kernel left in its results, its threads run in one order."""

    results: tuple[Tensor, ...]
    lines: tuple[Tensor, ...]
    """For each element of each result, the line of src that last touched it; negative in the helpers, 0 for none."""


def compiler() -> str:
    """The path of a C++ compiler.

    Raises:
        NotOnCpuError: there is none.
    """
    found = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if found is None:
        raise NotOnCpuError(f"a C++ compiler, and there is none on PATH ({', '.join(_COMPILERS)})")
    return found


@lru_cache(maxsize=64)
def compiled_body(path: str, source: CpuSource) -> bytes | WrongBodyError | NotOnCpuError:
    """The executable of a kernel, or why there is none; the last 64 kernels are compiled once.

    Args:
        path: the compiler.
        source: the kernel.
    """
    with TemporaryDirectory(prefix="patcomp-metal-") as folder:
        code, made = Path(folder, "kernel.cpp"), Path(folder, "kernel")
        code.write_text(source.code)
        command = [path, *_FLAGS, "-I", str(_HEADERS), "-o", str(made), str(code)]
        environment = {**os.environ, "LC_ALL": "C"}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, timeout=_SECONDS_TO_COMPILE, check=False
            )
        except subprocess.TimeoutExpired:
            return NotOnCpuError(f"more than {_SECONDS_TO_COMPILE} seconds to compile")
        return made.read_bytes() if done.returncode == 0 else _why(source, path, done.stderr)


def _why(source: CpuSource, path: str, said: str) -> WrongBodyError | NotOnCpuError:
    """Why a kernel does not compile, by what the compiler says: its first error in a line of the user's."""
    errors = re.findall(r"^(\S+?):(\d+):\d+: (?:fatal )?error: (.+)$", said, re.MULTILINE)
    own = [(file, int(line), text) for file, line, text in errors if file in ("src", "helper_src")]
    if not own and errors and "subscripts with several indices" in errors[0][2]:
        return NotOnCpuError(f"a newer C++ compiler: {path} is older than g++ 12 and clang++ 15")
    # an error in a template of the headers names the user's line below it
    asked = re.search(r"^(src|helper_src):(\d+):\d+:(?:   required from here| note: in instantiation of)", said, re.M)
    if asked is not None and (not own or "static assertion" in errors[0][2]):
        text = re.sub(r"static assertion failed(?: due to requirement '[^']*')?: ", "", errors[0][2])
        own = [(asked.group(1), int(asked.group(2)), text)]
    if not own:
        return NotOnCpuError(f"what {path} does not compile: {said.strip().splitlines()[-1] if said.strip() else ''}")
    file, line, text = own[0]
    text = re.sub(r"; did you mean 'metal_cpu[^;]*|metal_cpu::|\[-W[\w-]+\]", "", text).strip()
    place = source.line(file, line) or f"the end of {file}"
    return WrongBodyError(f"{place}, does not compile: {text}; correct it")


def run_on_cpu(
    source: CpuSource,
    operands: Sequence[Tensor],
    results: Sequence[Tensor],
    grid: Sequence[int],
    group: Sequence[int],
    seconds: int,
) -> list[Order]:
    """What a kernel computes, its threads run in rising and in falling order.

    Args:
        source: the kernel.
        operands: its inputs, of the types that Metal gets.
        results: what the results hold before; they have the shapes and types of the results.
        grid, group: the numbers of threads in the grid and in a group.
        seconds: of CPU time that it may take.

    Raises:
        NotOnCpuError: there is no compiler, or the kernel does what cannot be run.
        WrongBodyError: the body does not compile, leaves its tensors, or does not end.
    """
    made = compiled_body(compiler(), source)
    if isinstance(made, Exception):
        raise type(made)(*made.args)
    tensors = [*operands, *results]
    with TemporaryDirectory(prefix="patcomp-metal-") as folder:
        program, given, left = (Path(folder, name) for name in ("kernel", "given", "left"))
        program.write_bytes(made)
        program.chmod(0o700)
        contents = [_bytes(tensor) for tensor in tensors]
        numbers = [seconds, *grid, *group, len(tensors), len(results)]
        for tensor, content in zip(tensors, contents, strict=True):
            numbers += [len(content), tensor.dim(), *reversed(tensor.shape)]
        given.write_bytes(struct.pack(f"<{len(numbers)}q", *numbers) + b"".join(contents))
        try:
            done = subprocess.run(
                [str(program), str(given), str(left)],
                capture_output=True, text=True, timeout=10 * seconds + 30, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise WrongBodyError(_ENDLESS.format(where="the kernel", seconds=seconds)) from None
        if done.returncode == -signal.SIGKILL:  # for the time that it took
            raise WrongBodyError(_ENDLESS.format(where="the kernel", seconds=seconds))
        if done.returncode:
            raise _failure(source, done.stdout.strip(), tensors, seconds)
        data = left.read_bytes()
    at, orders = 0, []
    for _ in ("rising", "falling"):
        after = []
        for content in contents:
            after.append(data[at : at + len(content)])
            at += len(content)
        lines = []
        for result in results:
            lines.append(_tensor(data[at : at + 4 * result.numel()], torch.int32, result.shape))
            at += 4 * result.numel()
        for index in range(len(operands)):
            if after[index] != contents[index]:
                raise WrongBodyError(f"it writes to its input {source.buffers[index]!r}; write to a result alone")
        kept = zip(after[len(operands) :], results, strict=True)
        orders.append(Order(tuple(_tensor(each, like.dtype, like.shape) for each, like in kept), tuple(lines)))
    return orders


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _tensor(content: bytes, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    return torch.from_numpy(np.frombuffer(content, np.uint8).copy()).view(dtype).reshape(tuple(shape))


_ENDLESS = (
    "{where}: the kernel has not ended after {seconds} seconds on the CPU; look for a loop without end, or check with "
    "smaller inputs"
)


def _failure(source: CpuSource, said: str, tensors: Sequence[Tensor], seconds: int) -> Exception:
    """Why a run ended early, by the line of fields that `cpu/threads.h` prints."""
    if not said:
        return WrongBodyError("the kernel crashes on the CPU")
    kind, file, line, thread, *fields = said.splitlines()[-1].split("\t")
    at = source.line(file, int(line))
    of_thread = f"thread ({thread.replace(',', ', ')})"
    where = at or "the body"
    near = f"the body, after {at}" if at else "the body"
    if kind == "outside":
        number, indices = int(fields[0]), fields[1]
        extents = ", ".join(map(str, reversed(tensors[number].shape)))
        return WrongBodyError(
            f"{where}: {of_thread} reads or writes {source.buffers[number]}[{indices.replace(',', ', ')}], outside of "
            f"its extents [{extents}] (the innermost dimension first); return early in threads that are too many, or "
            "correct the index"
        )
    if kind == "shared":
        return WrongBodyError(
            f"{where}: {of_thread} reads or writes {fields[0]}[{fields[1]}] of threadgroup memory, which has "
            f"{fields[2]} elements there; correct the index or the size"
        )
    if kind == "barrier":
        how = "threads of its group have returned" if fields[0] == "ended" else "threads of its group wait elsewhere"
        return WrongBodyError(
            f"{where}: {of_thread} waits at this barrier, and {how}; every thread of a group must reach each barrier, "
            "so put conditions around the work, not around the barrier"
        )
    if kind == "divergent":
        return NotOnCpuError(f"SIMD functions in branches that threads of a SIMD group take apart ({where})")
    if kind == "memory":
        return NotOnCpuError(f"more memory than the process gets ({fields[0]} bytes)")
    if kind == "endless":
        return WrongBodyError(_ENDLESS.format(where=near, seconds=seconds))
    what = {
        "division": "divides an integer by zero; check the divisor",
        "pointer": "reads or writes outside of a tensor through a pointer; correct its offset",
        "local": "reads or writes outside of a local array; correct the index or the size",
    }
    return WrongBodyError(f"{near}: {of_thread} {what[kind]}")
