"""onnxruntime as an engine: it runs a program as an ONNX model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from patcomp.errors import EvaluationError, PatcompError
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.element_types import array_of, to_tensor
from patcomp.evaluate.machine import Machine, evaluate
from patcomp.evaluate.verification import Departure
from patcomp.ir import ProgramOp
from patcomp.onnx.emission.model import Emitted, emit, write_onnx
from patcomp.program.engines import FurtherEngine

if TYPE_CHECKING:
    from patcomp.program.data import ProgramData

ENGINE_NAME = "onnxruntime"


class OnnxRuntime(FurtherEngine):
    """Runs programs with onnxruntime on the CPU."""

    def run(
        self, program: ProgramData, entrypoint: str, inputs: Mapping[str, Any], states: dict[str, Any]
    ) -> dict[str, Any]:
        emitted = emit(program, entrypoint)
        results = _results(emitted, {**inputs, **states}, list(emitted.outputs.values()))
        values = dict(zip(emitted.outputs, results, strict=True))
        states.update({name: values.pop(name) for name in states})
        return values

    def departure(
        self, program: ProgramData, entrypoint: str, inputs: Mapping[str, Any], states: Mapping[str, Any]
    ) -> Departure | None:
        watched: list[tuple[ProgramOp, list[str]]] = []

        def watch(op: ProgramOp, results: Sequence[object]) -> None:
            if op.name != "coreai.constant":
                watched.append((op, [name for name in results if isinstance(name, str)]))

        emitted = emit(program, entrypoint, watch=watch)
        inner = [name for _, names in watched for name in names]
        emitted.model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
        computed = dict(zip(inner, _results(emitted, {**inputs, **states}, inner), strict=True))
        expected: dict[object, Sequence[Any]] = {}
        machine = Machine(program.module, watch=lambda op, results: expected.setdefault(op, list(results)))
        evaluate(program.module, inputs, entry=entrypoint, state=dict(states), machine=machine)
        callees = program.module.composite_names()
        for op, names in watched:
            for name, value in zip(names, expected[op.operation], strict=False):
                error = compare(name, ENGINE_NAME, value, computed[name])
                if error.passed:
                    continue
                place = next(iter(op.origins), None)
                what = f"composite {callees[op.callee]}" if op.callee in callees else op.name
                return Departure(
                    ENGINE_NAME,
                    module=place.module_path if place else "",
                    node=place.node if place else "",
                    source=place.source if place else "",
                    detail=f"onnxruntime and the evaluator differ by {error.max_abs:.3g} in {what}, which is more than "
                    f"the tolerance of {error.tolerance:.3g}",
                )
        return None


def _results(emitted: Emitted, given: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """Outputs of a model for inputs by name, as tensors.

    Raises:
        EvaluationError: onnxruntime does not run the model.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise PatcompError("the engine onnxruntime is not installed; pip install patcomp[onnx]") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its errors are raised
    options.intra_op_num_threads = 1  # the same sums in the same order on every machine
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    feeds = {each.name: array_of(to_tensor(given[each.name])) for each in emitted.model.graph.input}
    with tempfile.TemporaryDirectory() as folder:
        path = write_onnx(emitted, Path(folder) / "program.onnx")
        try:
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            return [to_tensor(value) for value in session.run(names, feeds)]
        except Exception as error:  # onnxruntime has an exception for each status, without a common base
            raise EvaluationError(f"onnxruntime does not run the program: {error}") from error


ENGINE = OnnxRuntime()
