"""Run an entry point of a program, after checks of what it is given."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from patcomp.defects.known.empty_tensors import ops_that_need_elements
from patcomp.errors import ConversionWarning, EvaluationError
from patcomp.interface.dims import Dims
from patcomp.interface.graphs import argument_types
from patcomp.ir.constants import is_constant
from patcomp.ir.locations import describe, origins
from patcomp.ir.module import IRModule
from patcomp.ir.types import HandleType, TensorType, shape_of
from patcomp.program.engines import engine_names, engine_of
from patcomp.program.history import known_history
from patcomp.rewrites.target import left_wide

if TYPE_CHECKING:
    from patcomp.emit.asset import Asset
    from patcomp.evaluate.machine import Machine
    from patcomp.evaluate.overflow import Overflow
    from patcomp.program.data import ProgramData


BACKENDS = ("evaluator", "runtime")
"""What runs programs without further packages."""


def run_program(
    program: ProgramData,
    arguments: Sequence[Any],
    keywords: dict[str, Any],
    entrypoint: str,
    state: dict[str, Any] | None,
    backend: str,
    seed: int | None,
) -> Any:
    """`AIProgram.run`."""
    from patcomp.evaluate.calling import arguments_by_name, is_model_call, result_of

    noise = {name: keywords.pop(name) for name in program.draws.get(entrypoint, {}) if name in keywords}
    signature = program.signature(entrypoint)
    names, model_call = {spec.name for spec in (*signature.inputs, *signature.states)}, signature.call
    if seed is not None and model_call is not None and is_model_call(model_call, arguments, {**keywords, "seed": seed}):
        keywords["seed"], seed = seed, None
    named = not keywords and len(arguments) == 1 and isinstance(arguments[0], Mapping)
    if named and model_call is not None and not names.issuperset(arguments[0]):
        named = not is_model_call(model_call, arguments, keywords)  # the model itself may take a dict
    if named:
        return run_entry_point(program, {**arguments[0], **noise}, entrypoint, state, backend, seed=seed or 0)
    if model_call is None:
        raise EvaluationError(
            "this program was not made from a model, so it takes one mapping of input names to tensors: "
            f"program.run({{{', '.join(f'{name!r}: ...' for name in program.input_names(entrypoint))}}})"
        )
    values = {**arguments_by_name(model_call, arguments, keywords), **noise}
    return result_of(model_call, run_entry_point(program, values, entrypoint, state, backend, seed=seed or 0))


def run_entry_point(
    program: ProgramData,
    values: Mapping[str, Any],
    entrypoint: str,
    state: dict[str, Any] | None,
    backend: str,
    *,
    machine: Machine | None = None,
    seed: int = 0,
    asset: Asset | None = None,
) -> dict[str, Any]:
    """The outputs of an entry point by name, for inputs by name.

    Args:
        values: the inputs.
        state: the contents of states, which are updated; those that are not given start from their initial values.
        backend: `"evaluator"`, `"runtime"`, or the name of an engine (`patcomp.program.engines`).
        machine: what the evaluator runs on.
        seed: of the inputs that are random numbers and are not given.
        asset: what the runtime runs; by default the program in a temporary asset.
    """
    from patcomp.evaluate.machine import evaluate

    outputs: dict[str, Any]
    engine = None if backend in BACKENDS else engine_of(backend)
    if backend not in BACKENDS and engine is None:
        names = ", ".join(map(repr, (*BACKENDS, *engine_names())))
        raise ValueError(f"backend must be one of {names}, got {backend!r}")
    if backend == "runtime" and not has_device(program.module):
        raise EvaluationError(
            "the runtime can run Metal kernels on Apple devices alone; backend='evaluator' runs their torch_defn"
        )
    if state is not None and not isinstance(state, MutableMapping):
        raise TypeError(f"state must be a dict that can be written to, program.new_state(), got {state!r:.200}")
    inputs, contents = prepared(program, values, entrypoint, state or {}, seed)
    if backend == "evaluator":
        outputs = evaluate(program.module, inputs, entry=entrypoint, state=contents, machine=machine)
    elif engine is not None:
        outputs = engine.run(program, entrypoint, inputs, contents)
    else:
        _check_elements(program.module, {**inputs, **contents}, argument_types(program.module.graph(entrypoint)))
        from patcomp.emit.asset import temporary_asset
        from patcomp.emit.toolchain.hand_over import HandOver

        with temporary_asset(HandOver.of(program.module)) if asset is None else nullcontext(asset) as saved:
            outputs = saved.run(inputs, contents, entrypoint)
    if state is not None:
        state.update(contents)
    return outputs


def prepared(
    program: ProgramData, values: Mapping[str, Any], entrypoint: str, state: Mapping[str, Any], seed: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs and the states of an entry point, of the types that it takes; states are copies.

    Raises:
        EvaluationError: as `AIProgram.run`.
    """
    from patcomp.evaluate.given import check_input_names
    from patcomp.evaluate.inputs import prepare_input

    types = argument_types(program.module.graph(entrypoint))
    states = {name for name, type_ in types.items() if isinstance(type_, HandleType)}
    check_input_names(entrypoint, "input", {*values, *program.draws.get(entrypoint, ())} - states, set(types) - states)
    values = {**values, **drawn_inputs(program, {**state, **values}, entrypoint, seed)}
    check_input_names(entrypoint, "state", state, states, partial=True)
    inputs: dict[str, Any] = {}
    contents: dict[str, Any] = {}
    for name, value in {**program.new_state(entrypoint), **state, **values}.items():
        type_ = types.get(name)
        if isinstance(type_, HandleType):
            # the copy is written to
            content = prepare_input(value, type_.tensor_type, name, "state")  # type: ignore[arg-type]
            contents[name] = copy.deepcopy(content.contiguous())
        else:
            inputs[name] = prepare_input(value, type_, name) if isinstance(type_, TensorType) else value
    given = {**inputs, **contents}
    program.dims.get(entrypoint, Dims()).sizes_of(given)
    _check_limits(program, given, entrypoint)
    checks = program.checks.get(entrypoint)
    if checks is not None and (broken := checks.broken(given)) is not None:
        raise EvaluationError(f"the model checks that {broken}, which does not hold for these inputs")
    return inputs, contents


def drawn_inputs(program: ProgramData, values: Mapping[str, Any], entrypoint: str, seed: int) -> dict[str, Any]:
    """The inputs of an entry point that are random numbers and are not given.

    Args:
        values: the inputs and states that are given.
    """
    if not program.draws.get(entrypoint):
        return {}
    from patcomp.evaluate.draws import drawn

    dims, signature = program.dims.get(entrypoint, Dims()), program.signature(entrypoint)
    return drawn(signature, {**program.new_state(entrypoint), **values}, dims, seed)


def overflows(program: ProgramData, inputs: Any, entrypoint: str, *, half: bool) -> Sequence[Overflow]:
    """The overflows of a run: an op computes a value beyond float16 from operands within float16.

    Args:
        inputs: the model's arguments.
        half: whether the device computes float16 alone, so that floats of other types count, too.
    """
    from patcomp.evaluate.inputs import call_arguments, named_arguments
    from patcomp.evaluate.overflow import OverflowMachine

    values = named_arguments(program.signature(entrypoint), *call_arguments(inputs))
    machine = OverflowMachine(program.module, half=half)
    run_entry_point(program, values, entrypoint, None, "evaluator", machine=machine)
    return machine.overflows


def float32_nodes(program: ProgramData, given: Any, entrypoint: str) -> tuple[str, ...]:
    """`AIProgram.needs_float32`."""
    from patcomp.evaluate.inputs import call_arguments, named_arguments
    from patcomp.evaluate.kept import needs_float32

    values = named_arguments(program.signature(entrypoint), *call_arguments(given))
    history = known_history(program.history)
    module = history.repeated(only_before="outline").module
    if (found := left_wide(module, history.options)) is not None:
        op, why = found
        readers = [use.operation for result in op.results for use in result.uses] if is_constant(op) else []
        nodes = dict.fromkeys(place.node for reader in readers for place in origins(reader.location)[:1])
        if not nodes:
            raise EvaluationError(f"the program does not become float16, because of {op.name} ({describe(op)}): {why}")
        return tuple(nodes)
    inputs, states = prepared(program, values, entrypoint, {})
    taken = argument_types(module.graph(entrypoint))
    known_inputs = {name: value for name, value in {**inputs, **states}.items() if name in taken}
    return needs_float32(module, known_inputs, entrypoint)


def has_device(module: IRModule) -> bool:
    """Whether the runtime can run a program on this machine: Metal kernels need an Apple device."""
    return sys.platform == "darwin" or all(op.name != "coreai.metal4_kernel" for op in module.op.walk())


def _check_elements(module: IRModule, values: Mapping[str, Any], types: Mapping[str, Any]) -> None:
    """Check that no dynamic dimension is 0 if the runtime would end the process."""
    for name, value in values.items():
        type_ = types[name].tensor_type if isinstance(types[name], HandleType) else types[name]
        sizes = zip(value.shape, shape_of(type_), strict=True) if isinstance(type_, TensorType) else ()
        axis = next((axis for axis, (size, declared) in enumerate(sizes) if size == 0 and declared is None), None)
        if axis is not None and (ops := ops_that_need_elements(module)):
            raise EvaluationError(
                f"{name!r} has size 0 in dimension {axis}, for which the Core AI runtime would end the process in "
                f"{', '.join(ops)}; use backend='evaluator', or run program.specialize for this size"
            )


def _check_limits(program: ProgramData, values: Mapping[str, Any], entrypoint: str) -> None:
    """Warn of inputs and states so large that results computed from them may not fit 32 bits."""
    for name, limit in program.limits.get(entrypoint, {}).items():
        if name in values and bool(((values[name] > limit) | (values[name] < -limit)).any()):
            warnings.warn(
                f"{name!r} has numbers beyond {limit}, for which int64 results of this program may not fit 32 "
                "bits; convert with int64='keep' to compute in 64 bits",
                ConversionWarning,
                stacklevel=5,
            )
