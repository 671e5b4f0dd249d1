"""Compare a program with its model, and find where they depart from each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from patcomp.emit import running
from patcomp.emit.asset import has_toolchain
from patcomp.emit.history import known
from patcomp.ir.module import IRModule

if TYPE_CHECKING:
    from patcomp.emit.program import AIProgram
    from patcomp.evaluate import OutputError, Verification


def verify(
    program: AIProgram,
    model: Callable[..., Any],
    inputs: Any,
    entrypoint: str,
    tolerance: float | None,
    backends: Sequence[str] | None,
    by: str,
    seed: int,
) -> Verification:
    """`AIProgram.verify_against`."""
    from patcomp.evaluate import Expectation, Verification

    if by not in ("output", "module"):
        raise ValueError(f"by must be 'output' or 'module', got {by!r}")
    if backends is None:
        on_runtime = has_toolchain() and running.has_device(program.module)
        backends = ("evaluator", "runtime") if on_runtime else ("evaluator",)
    if isinstance(backends, str) or not backends:
        raise ValueError(f"backends must be a list, such as ['evaluator', 'runtime'], got {backends!r}")
    expectation = Expectation.of(
        model, inputs, program.signature(entrypoint), lambda values: running.drawn(program, values, entrypoint, seed)
    )

    def run_on(backend: str) -> Callable[[Mapping[str, Any], dict[str, Any]], dict[str, Any]]:
        return lambda values, state: running.run(program, values, entrypoint, state, backend)

    def run_changed(module: IRModule, backend: str) -> dict[str, Any]:
        """The outputs of a changed module of the program."""
        states = dict(expectation.states)
        return running.run(replace(program, module=module), expectation.given, entrypoint, states, backend)

    errors: list[OutputError] = []
    for backend in backends:
        errors += expectation.errors(backend, run_on(backend), tolerance)
    result = Verification(tuple(errors), tolerance)
    if by == "output":
        return result
    search = known(program.history).departure_search(
        program.module, entrypoint, expectation, program.new_state(entrypoint), tolerance
    )
    modules, departure = search.module_errors(), None
    if not result.passed:
        departure = search.departure() or search.runtime_departure(run_changed)
    return replace(result, modules=modules, departure=departure)
