"""Compare an entry point of a program, or of a saved one, with its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from patcomp.ir.module import IRModule
from patcomp.program.engines import engine_of
from patcomp.program.history import known_history
from patcomp.program.running import BACKENDS, drawn_inputs, has_device, prepared, run_entry_point

SIMULATED = ("gpu", "neural_engine")
"""The units whose known behaviours the evaluator can simulate."""

if TYPE_CHECKING:
    from patcomp.emit.asset import Asset
    from patcomp.evaluate.expectation import Expectation, Run
    from patcomp.evaluate.machine import Machine
    from patcomp.evaluate.metal.check import BodyMachine
    from patcomp.evaluate.verification import Departure, Verification
    from patcomp.program.data import ProgramData


def verify_program(
    program: ProgramData,
    model: Callable[..., Any],
    inputs: Any,
    entrypoint: str,
    tolerance: float | None,
    backends: Sequence[str] | None,
    by: str,
    seed: int,
    float32_model: Callable[..., Any] | None,
    asset: Asset | None,
) -> Verification:
    """`AIProgram.verify_against`."""
    from patcomp.evaluate.expectation import Expectation
    from patcomp.evaluate.overflow import first_overflow

    if by not in ("output", "module"):
        raise ValueError(f"by must be 'output' or 'module', got {by!r}")
    _check_tolerance(tolerance)
    if backends is None:
        backends = default_backends(program)
    if not callable(model):
        raise TypeError(f"the model to compare with must be a module or a function, got {type(model).__name__}")
    if isinstance(backends, str) or not backends:
        raise ValueError(f"backends must be a list, such as ['evaluator', 'runtime'], got {backends!r}")
    if "kernels" in backends and "evaluator" not in backends:
        raise ValueError("the backend 'kernels' goes with 'evaluator', which has the values that the kernels get")
    expectation = Expectation.of(
        model,
        inputs,
        program.signature(entrypoint),
        lambda values: drawn_inputs(program, values, entrypoint, seed),
        float32_model,
    )
    saved = program if asset is None else replace(program, module=asset.module)
    bodies = _body_machine(saved.module) if "kernels" in backends and saved.module.kernels else None

    def run_on(backend: str, machine: Machine | None = None) -> Run:
        return lambda values, state: run_entry_point(
            saved, values, entrypoint, state, backend, machine=machine, asset=asset
        )

    def run_changed(module: IRModule, backend: str) -> dict[str, Any]:
        """The outputs of a changed module of the program."""
        states = dict(expectation.states)
        return run_entry_point(replace(program, module=module), expectation.given, entrypoint, states, backend)

    result = expectation.verification(
        {each: run_on(each, bodies if each == "evaluator" else None) for each in backends if each != "kernels"},
        tolerance,
        lambda machine: run_on("evaluator", machine(saved.module)),
    )
    checks = tuple(bodies.checks.values()) if bodies is not None else ()
    if any(error.overflows for error in result.errors):
        given = prepared(program, expectation.given, entrypoint, expectation.states)
        result = replace(result, overflow=first_overflow(program.module, *given, entrypoint))

    def search() -> Any:
        return known_history(program.history).departure_search(
            program.module, entrypoint, expectation, program.new_state(entrypoint), tolerance
        )

    if any(error.half_loss for error in result.errors):
        try:
            of_halves = search()
        except LookupError:  # without the model's graph, nobody knows where half precision loses
            of_halves = None
        if of_halves is not None:
            result = replace(result, half_loss=of_halves.half_loss())
    if (other := _departure_of_engine(saved, entrypoint, expectation, result)) is not None:
        result = replace(result, departure=other)
    if by == "output":
        return replace(result, kernels=checks)
    found = search()
    modules, departure = found.module_errors(), result.departure
    if not result.passed and result.overflow is None and departure is None:
        departure = found.departure() or found.runtime_departure(run_changed)
    return replace(result, modules=modules, departure=departure, kernels=checks)


def default_backends(program: ProgramData) -> tuple[str, ...]:
    """The backends of patcomp, without the runtime where it cannot run the program."""
    from patcomp.emit.toolchain.library import has_toolchain

    on_runtime = has_toolchain() and has_device(program.module)
    return ("evaluator", "runtime", "kernels") if on_runtime else ("evaluator", "kernels")


def _departure_of_engine(
    program: ProgramData, entrypoint: str, expectation: Expectation, result: Verification
) -> Departure | None:
    """The op in which an engine differs from the evaluator, if patcomp's own backends are right."""
    wrong = dict.fromkeys(error.backend for error in result.errors if not error.passed)
    if not wrong or not wrong.keys().isdisjoint(BACKENDS):
        return None
    engine = engine_of(next(iter(wrong)))
    assert engine is not None
    return engine.departure(program, entrypoint, *prepared(program, expectation.given, entrypoint, expectation.states))


def _body_machine(module: IRModule) -> BodyMachine:
    """An evaluator that runs the bodies of Metal kernels on the CPU too."""
    from patcomp.evaluate.metal.check import BodyMachine

    return BodyMachine(module)


def _check_tolerance(tolerance: float | None) -> None:
    is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if tolerance is not None and not (is_number and tolerance >= 0):
        raise ValueError(f"tolerance is the largest absolute difference that passes, such as 1e-3, got {tolerance!r}")


def verify_on_device(
    program: ProgramData,
    model: Callable[..., Any],
    inputs: Any,
    entrypoint: str,
    tolerance: float | None,
    seed: int,
    float32_model: Callable[..., Any] | None,
    asset: Asset | None,
    device: str,
) -> Verification:
    """`AIProgram.verify_against` with a simulated device."""
    from patcomp.devices import warnings_about
    from patcomp.evaluate.devices import SimulatedDevice, simulated_facts
    from patcomp.evaluate.expectation import Expectation

    if device not in SIMULATED:
        raise ValueError(f"no device {device!r} is simulated; there are {', '.join(map(repr, SIMULATED))}")
    _check_tolerance(tolerance)
    signature = program.signature(entrypoint)
    expectation = Expectation.of(
        model, inputs, signature, lambda values: drawn_inputs(program, values, entrypoint, seed), float32_model
    )
    saved = program if asset is None else replace(program, module=asset.module)
    machine = SimulatedDevice(saved.module, unit=device)

    def run(values: Mapping[str, Any], state: dict[str, Any]) -> Mapping[str, Any]:
        return run_entry_point(saved, values, entrypoint, state, "evaluator", machine=machine)

    result = expectation.verification({f"simulated {device}": run}, tolerance)
    others = warnings_about(saved.module, [device], without=simulated_facts())
    return replace(result, effects=machine.effects, not_simulated=tuple(map(str, others)))


def verify_compressed_program(
    program: ProgramData, model: Callable[..., Any], inputs: Any, entrypoint: str, asset: Asset | None
) -> Verification:
    """`AIProgram.verify_compressed`."""
    from patcomp.evaluate.expectation import Expectation
    from patcomp.evaluate.loss import verify_compressed

    expectation = Expectation.of(
        model, inputs, program.signature(entrypoint), lambda values: drawn_inputs(program, values, entrypoint, 0)
    )
    saved = program if asset is None else replace(program, module=asset.module)

    def run_on(backend: str, machine: Machine | None = None) -> Run:
        return lambda values, state: run_entry_point(
            saved, values, entrypoint, state, backend, machine=machine, asset=asset
        )

    from patcomp.emit.toolchain.library import has_toolchain

    backends = ("runtime",) if has_toolchain() and has_device(program.module) else ("evaluator",)
    return verify_compressed(
        program.module,
        expectation,
        prepared(program, expectation.given, entrypoint, expectation.states),
        entrypoint,
        {backend: run_on(backend) for backend in backends},
        lambda machine: run_on("evaluator", machine(saved.module)),
    )
