"""How a program ends: exported, converted and run on the evaluator and the runtime, beside eager PyTorch.

The judge of numbers is the same program in float64. A result is wrong where it is farther from it than eager is, by a
clear factor, and farther than rounding can explain; integers and bools are exact.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.nn.attention import SDPBackend, sdpa_kernel

from patcomp import AIProgram, EvaluationError, PatcompError, TorchConverter, UnsupportedError, get_decomp_table
from patcomp.emit.native import Native, NativeError, ProcessDied
from patcomp.evaluate.calling import arguments_by_name, result_of
from patcomp.evaluate.element_types import array_of, to_tensor
from patcomp.evaluate.inputs import prepare_input
from patcomp.interface.graphs import argument_types
from patcomp.ir.types import HandleType
from tests.fuzz import noise
from tests.fuzz.program import Program
from tests.helpers.time_limits import TimeIsUp, time_limit
from tests.helpers.ways import loaded

SECONDS = 60
"""How long one program may take."""

FORMS: Mapping[str, Callable[[ExportedProgram], ExportedProgram]] = {
    "not decomposed": lambda exported: exported,
    "patcomp's table": lambda exported: exported.run_decompositions(get_decomp_table()),
    "PyTorch's table": lambda exported: exported.run_decompositions(),
    "saved": loaded,
}
"""What may happen to a program before it is converted."""

RIGHT, REFUSED, WRONG, ABORT, RAW, UNSTABLE, NOT_EXPORTED = KINDS = (
    "right", "refused", "wrong", "abort", "raw error", "unstable", "not exported",
)  # fmt: skip
FAILURES = (WRONG, ABORT, RAW)
FACTOR = 8.0
"""How many times as far from the float64 numbers as eager, or as noise, a result may be."""
GUARD = "the model was exported for sizes where"
"""What a run says at a size for which the exported program has another type, as a `squeeze` has at 1."""
SINGLE, HALF = 1e-5, 4e-3
"""What is allowed beside, relative to the largest number of a tensor; with float16."""


@dataclass(frozen=True)
class Outcome:
    """How a program ends, and why."""

    kind: str
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether something is to be fixed."""
        return self.kind in FAILURES


@dataclass(frozen=True)
class Result:
    """What a call leaves: the outputs, then the arguments and the buffers after it, by name."""

    tensors: dict[str, torch.Tensor]


def calls(program: Program) -> Iterator[tuple[dict[str, int], int]]:
    """The sizes and the numbers of the calls: three, from the example to both ends of the ranges."""
    symbols = program.symbols
    yield program.example_sizes, 0
    if not symbols:
        yield {}, 1
        yield {}, 2
        return
    yield {name: symbol.low for name, symbol in symbols.items()}, 1
    yield {name: symbol.high for name, symbol in symbols.items()}, 2
    if len(symbols) > 1:
        ends = [(symbol.low, symbol.high) for symbol in symbols.values()]
        yield {name: ends[index][index % 2] for index, name in enumerate(symbols)}, 3
    yield {name: (symbol.low + symbol.high + 1) // 2 for name, symbol in symbols.items()}, 4


def judge(program: Program, native: Native | None) -> Outcome:
    """Converts and runs a program."""
    try:
        with time_limit(SECONDS), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return _judge(program, native)
    except TimeIsUp:
        if native is not None:
            native.kill()
        return Outcome(ABORT, f"not done after {SECONDS} s")


def _judge(program: Program, native: Native | None) -> Outcome:
    try:
        exported = export(program)
    except TimeIsUp:
        raise
    except Exception as error:  # PyTorch's exporter raises whatever its tracers raise
        return Outcome(NOT_EXPORTED, f"{type(error).__name__}: {error}".splitlines()[0][:200])
    try:
        converted = TorchConverter().add_exported_program(exported).to_coreai()
        if any("in 32 bits and may not fit" in problem.message for problem in converted.diagnostics):
            converted = TorchConverter(int64="keep").add_exported_program(exported).to_coreai()
    except TimeIsUp:
        raise
    except UnsupportedError as error:
        bare = [problem for problem in error.problems if not (problem.message and (problem.node or problem.source))]
        reasons = sorted({f"{problem.op}: {problem.message}" for problem in error.problems})
        return Outcome(RAW if bare else REFUSED, "; ".join(reasons))
    except Exception as error:  # whatever else is raised is what the fuzzer looks for
        return Outcome(RAW, f"conversion: {type(error).__name__}: {error}")
    for problem in converted.diagnostics:
        if problem.message.startswith("rule ") and " failed: " in problem.message:
            return Outcome(RAW, problem.message)
    return _Runs(program, exported, converted, native).outcome()


def export(program: Program) -> ExportedProgram:
    """The exported program in its form."""
    dims: dict[str, Any] = {
        name: Dim(name, min=symbol.low, max=symbol.high) if symbol.named else Dim.AUTO
        for name, symbol in program.symbols.items()
    }
    shapes = tuple(
        {axis: dims[size] for axis, size in enumerate(given.shape) if isinstance(size, str)} for given in program.inputs
    )
    arguments = program.arguments(program.example_sizes)
    exported = torch.export.export(program.model(), arguments, dynamic_shapes=shapes if dims else None)
    decomposed = FORMS[program.form](exported)
    if program.form == "PyTorch's table":
        results = [copy.deepcopy(one).module()(*copy.deepcopy(arguments)) for one in (exported, decomposed)]
        for before, after in zip(*results, strict=True):
            if before.dtype != after.dtype or noise.distance(after, before) > 1e-2 * noise.scale(before):
                raise RuntimeError("PyTorch's own decompositions change what the program computes")
    return decomposed


class _Runs:
    """The calls of a program, one after the other, in eager PyTorch and where it is converted to."""

    def __init__(self, program: Program, exported: ExportedProgram, converted: AIProgram, native: Native | None):
        self.program, self.exported, self.converted, self.native = program, exported, converted, native
        self.models = {
            "eager": program.model(),
            "twin": program.twin(),
            "raised": program.twin(),
            "lowered": program.twin(),
        }
        self.state = converted.new_state()
        self.native_state = {name: array_of(value) for name, value in converted.new_state().items()}
        self.half = program.rounds_to_half

    def outcome(self) -> Outcome:
        """The first failure of any call."""
        judged = False
        for sizes, call in calls(self.program):
            arguments, before = self.program.arguments(sizes, call), copy.deepcopy(self.models)
            try:
                wanted = {kind: self._eager(kind, arguments) for kind in self.models}
            except (RuntimeError, IndexError, ValueError):  # sizes or numbers that the model itself does not take
                self.models = before
                continue
            if (unstable := self._unstable(wanted)) is not None:
                return Outcome(UNSTABLE, unstable)
            failure, ran = self._call(arguments, wanted)
            if failure is not None:
                where = f"sizes {sizes}: " if sizes else f"call {call}: "
                return Outcome(failure.kind, where + failure.message)
            judged |= ran
            if not ran:
                self.models = before
        return Outcome(RIGHT) if judged else Outcome(UNSTABLE, "no call was judged")

    def _eager(self, kind: str, arguments: tuple[torch.Tensor, ...]) -> Result:
        model, arguments = self.models[kind], copy.deepcopy(arguments)
        if kind == "eager":
            outputs = model(*arguments)
        else:
            arguments = tuple(x.double() if x.is_floating_point() else x for x in arguments)
            amount = noise.HALF if self.half else noise.SINGLE
            noisy = nullcontext() if kind == "twin" else noise.Noise(amount, 1 if kind == "raised" else -1)
            with noise.in_double(), noisy, sdpa_kernel(SDPBackend.MATH):  # the fused kernel has 0 for some NaNs
                outputs = model(*arguments)
        return Result(_named(outputs, arguments, model))

    def _unstable(self, wanted: Mapping[str, Result]) -> str | None:
        """The name of a result that rounding decides on, None if there is none."""
        limit = 0.1 if self.half else 1e-2
        for name, truth in wanted["twin"].tensors.items():
            for result in wanted.values():
                if noise.distance(result.tensors[name], truth) > limit * noise.scale(truth):
                    return f"{name} is a matter of rounding"
        return None

    def _call(self, arguments: tuple[torch.Tensor, ...], wanted: Mapping[str, Result]) -> tuple[Outcome | None, bool]:
        """The failure of a call, if any, and whether it was run."""
        accepted = not self.program.symbols or _is_accepted(self.exported, arguments)
        try:
            outputs = self.converted.run(*copy.deepcopy(arguments), state=self.state)
        except EvaluationError as error:
            functional = self.exported.run_decompositions({})  # it may have made a dimension static
            if GUARD not in str(error) and all(_is_accepted(one, arguments) for one in (self.exported, functional)):
                return Outcome(RAW, f"evaluator refuses: {error}"), False
            return None, False
        except PatcompError as error:
            return Outcome(RAW, f"evaluator: {type(error).__name__}: {error}"), False
        except TimeIsUp:
            raise
        except Exception as error:
            return Outcome(RAW, f"evaluator: {type(error).__name__}: {error}"), False
        if message := self._mismatch(outputs, self.state, wanted):
            return Outcome(WRONG, f"evaluator: {message}"), True
        if self.native is None or not accepted:  # an asset cannot check the conditions that export recorded
            self.native_state = {name: array_of(value).copy() for name, value in self.state.items()}
            return None, True
        try:
            outputs = self._run_natively(arguments)
        except ProcessDied as error:
            return Outcome(ABORT, str(error)), True
        except NativeError as error:
            return Outcome(RAW, f"runtime: {error}"), True
        if message := self._mismatch(outputs, self.native_state, wanted):
            return Outcome(WRONG, f"runtime: {message}"), True
        return None, True

    def _run_natively(self, arguments: tuple[torch.Tensor, ...]) -> Any:
        assert self.native is not None
        signature = self.converted.signature()
        assert signature.call is not None
        types = argument_types(self.converted.module.graph("main"))
        inputs = {}
        for name, value in arguments_by_name(signature.call, arguments, {}).items():
            if isinstance(types[name], HandleType):
                self.native_state[name] = array_of(prepare_input(value, types[name].tensor_type, name)).copy()
            else:
                inputs[name] = prepare_input(value, types[name], name)
        outputs = self.native.run(self.converted.module, inputs, self.native_state)
        return result_of(signature.call, outputs)

    def _mismatch(self, outputs: Any, state: Mapping[str, Any], wanted: Mapping[str, Result]) -> str:
        call = self.converted.signature().call
        assert call is not None
        found = {f"output {index}": _tensor(value) for index, value in enumerate(outputs)}
        for name, content in state.items():
            if name in call.buffers:
                found[f"buffer {call.buffers[name]}"] = _tensor(content)
            else:
                found[f"argument {call.arguments.index(name)}"] = _tensor(content)
        for name, result in found.items():
            if message := self._difference(result, {kind: one.tensors[name] for kind, one in wanted.items()}):
                return f"{name}: {message}"
        return ""

    def _difference(self, result: torch.Tensor, wanted: Mapping[str, torch.Tensor]) -> str:
        eager, truth = wanted["eager"], wanted["twin"]
        narrow = {torch.int64: torch.int32, torch.float64: torch.float32}
        if result.shape != eager.shape or result.dtype not in (eager.dtype, narrow.get(eager.dtype)):
            return f"{result.dtype}{list(result.shape)} for {eager.dtype}{list(eager.shape)}"
        spread = max(noise.distance(one, truth) for one in wanted.values())
        limit = FACTOR * spread + (HALF if self.half else SINGLE) * noise.scale(truth)
        if noise.distance(result, truth) <= limit:
            return ""
        return f"{result.flatten()[:8].tolist()} for {eager.flatten()[:8].tolist()}"


def _is_accepted(exported: ExportedProgram, arguments: tuple[torch.Tensor, ...]) -> bool:
    """Whether PyTorch's own exported program takes the arguments."""
    try:
        copy.deepcopy(exported).module()(*copy.deepcopy(arguments))
    except Exception:  # whatever its guards and operators raise
        return False
    return True


def _named(outputs: Any, arguments: tuple[torch.Tensor, ...], model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        **{f"output {index}": output.clone() for index, output in enumerate(outputs)},
        **{f"argument {index}": argument.clone() for index, argument in enumerate(arguments)},
        **{f"buffer {name}": buffer.clone() for name, buffer in model.named_buffers()},
    }


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else to_tensor(np.asarray(value))


@contextmanager
def runtime() -> Iterator[Native]:
    """The runtime in a child process."""
    native = Native()
    try:
        yield native
    finally:
        native.close()
