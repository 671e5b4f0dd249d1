"""Check the body of a Metal kernel: run it on the CPU, and compare it with the kernel's reference function."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from patcomp.errors import MismatchError
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.machine import Machine
from patcomp.evaluate.metal.cpu_source import CpuSource, NotOnCpuError, WrongBodyError, cpu_source
from patcomp.evaluate.metal.running import Order, run_on_cpu
from patcomp.evaluate.registry import EvaluatedOp, Implementation, integers
from patcomp.evaluate.verification import OutputError
from patcomp.ir.locations import describe
from patcomp.ir.xdsl import Operation

SECONDS = 20
"""The CPU time that a kernel may take."""

_UNWRITTEN = {torch.float32: 0x7FC0DEAD, torch.float16: 0x7EAD, torch.bfloat16: 0x7FAD}
"""A NaN that no arithmetic makes, by type: what results hold before a kernel writes them."""
_AS_INTEGERS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


@dataclass(frozen=True)
class KernelCheck:
    """What running the body of a Metal kernel on the CPU says."""

    kernel: str
    """The name of the kernel."""
    status: Literal["passed", "wrong", "not run"]
    message: str = ""
    """What is wrong, where, and what to do; or what the body needs that the CPU cannot run; empty if it passed."""
    errors: tuple[OutputError, ...] = ()
    """The largest error of each result beside the reference function."""
    place: str = ""
    """Where the program calls the kernel; empty outside of a program."""

    def __str__(self) -> str:
        place = f" ({self.place})" if self.place else ""
        if self.status == "passed":
            return f"the body of Metal kernel {self.kernel!r}{place} passed on the CPU"
        if self.status == "wrong":
            return f"the body of Metal kernel {self.kernel!r}{place} is wrong: {self.message}"
        return (
            f"the body of Metal kernel {self.kernel!r}{place} was not run, so nothing is known about it: it needs "
            f"{self.message}; test it on an Apple device"
        )

    @property
    def passed(self) -> bool:
        """Whether the body was run and is right."""
        return self.status == "passed"

    def __bool__(self) -> bool:
        return self.passed

    def check(self) -> KernelCheck:
        """Return the check if the body passed.

        Raises:
            MismatchError: it is wrong, or was not run.
        """
        if not self.passed:
            raise MismatchError(str(self))
        return self


def check_body(
    source: str,
    function: str,
    operands: Sequence[Tensor],
    expected: Sequence[Tensor],
    grid: Sequence[int],
    group: Sequence[int],
    tolerance: float | None = None,
    seconds: int = SECONDS,
) -> KernelCheck:
    """Run the body of a kernel for some inputs, and compare its results with the reference function's.

    Args:
        source: the Metal source.
        function: the name of its function.
        operands: the inputs, in the types that Metal gets.
        expected: the results of the reference function, in the types that Metal gives.
        grid, group: the numbers of threads in the grid and in a group, three each.
        tolerance: the largest absolute difference that passes; by default that of the type, as for `verify_against`.
        seconds: of CPU time that the kernel may take.
    """
    kernel = re.sub(r"_[0-9a-f]{8}$", "", function)
    try:
        text = cpu_source(source, function)
        before = [_unwritten(each) for each in expected]
        orders = run_on_cpu(text, operands, before, grid, group, seconds)
        errors = [_errors(text, order, before, expected, tolerance) for order in orders]
    except NotOnCpuError as needed:
        return KernelCheck(kernel, "not run", str(needed))
    except WrongBodyError as wrong:
        return KernelCheck(kernel, "wrong", str(wrong))
    worst = tuple(max(each, key=lambda error: (not error.passed, error.max_abs)) for each in zip(*errors, strict=True))
    passed = [all(error.passed for error in each) for each in errors]
    if all(passed):
        return KernelCheck(kernel, "passed", errors=worst)
    at = passed.index(False)
    message = _difference(text, orders[at], expected, errors[at])
    if any(passed):
        message += (
            "; run in the other order, the threads give the right result: a barrier is missing, or several threads "
            "write to one element"
        )
    return KernelCheck(kernel, "wrong", f"{message}; correct the body, or torch_defn", worst)


def _unwritten(expected: Tensor) -> Tensor:
    """What a result holds before the kernel runs: a NaN, or other integers than the right ones."""
    if not expected.is_floating_point():
        return ~expected
    bits = torch.full(expected.shape, _UNWRITTEN[expected.dtype], dtype=_AS_INTEGERS[expected.dtype])
    return bits.view(expected.dtype)


def _errors(
    source: CpuSource, order: Order, before: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float | None
) -> list[OutputError]:
    """The errors of the results.

    Raises:
        WrongBodyError: an element is never written.
    """
    names, errors = source.buffers[-len(expected) :], []
    for name, given, start, want in zip(names, order.results, before, expected, strict=True):
        untouched = (_bits(given) == _bits(start)).nonzero()
        if len(untouched):
            raise WrongBodyError(
                f"{_element(name, untouched[0].tolist())} is never written, as are {len(untouched) - 1} other "
                "elements; write every element, and start threads for all of them (threads_per_grid)"
            )
        errors.append(compare(name, "Metal body", want, given, tolerance))
    return errors


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(_AS_INTEGERS[tensor.dtype]) if tensor.is_floating_point() else tensor


def _element(name: str, index: Sequence[int]) -> str:
    """An element as Metal writes it, the innermost index first."""
    return f"{name}[{', '.join(map(str, reversed(index)))}]"


def _difference(
    source: CpuSource, order: Order, expected: Sequence[Tensor], errors: Sequence[OutputError]
) -> str:  # fmt: skip
    """Where the results of one order differ most from the right ones."""
    at = next(index for index, error in enumerate(errors) if not error.passed)
    given, want, error = order.results[at], expected[at], errors[at]
    difference = (given.double() - want.double()).abs()
    difference = torch.where(given.isnan() & want.isnan() | (given == want), 0.0, difference.nan_to_num(torch.inf))
    index = [int(each) for each in torch.unravel_index(difference.argmax(), difference.shape)]
    line = int(order.lines[at][tuple(index)])
    place = source.line("helper_src" if line < 0 else "src", line & 0x7FFFFFFF)
    count = int((difference > error.tolerance).sum())
    return (
        f"{place}{': ' if place else ''}{_element(error.name, index)} is {given[tuple(index)].item():.7g}, and "
        f"torch_defn gives {want[tuple(index)].item():.7g}; {count} of {want.numel()} elements differ by more than the "
        f"tolerance of {error.tolerance:.3g}"
    )


@dataclass(eq=False)
class BodyMachine(Machine):
    """Evaluates a program, and checks the body of each Metal kernel at the first call from each place."""

    checks: dict[Operation, KernelCheck] = field(default_factory=dict)

    def run_op(self, op: EvaluatedOp, implementation: Implementation, operands: Sequence[Any]) -> list[Any]:
        results = super().run_op(op, implementation, operands)
        if op.operation.name == "coreai.metal4_kernel" and op.operation not in self.checks:
            values = iter(operands)
            slots = op.operation.operands_by_slot()  # type: ignore[attr-defined]
            given, (grid,), (group,), _ = ([next(values) for _ in slot] for slot in slots)
            source, name = op.attribute("kernel_source"), op.attribute("kernel_name")
            found = check_body(source, name, given, results, integers(grid), integers(group))
            self.checks[op.operation] = replace(found, place=describe(op.operation))
        return results
