"""onnxruntime as an engine: it runs a program as an ONNX model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from patcomp.errors import EvaluationError, PatcompError
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.element_types import TORCH_DTYPES, array_of, to_tensor
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
        emitted, signature = emit(program, entrypoint), program.signature(entrypoint)
        results = _results(emitted, {**inputs, **states}, list(emitted.outputs.values()))
        types = {spec.name: spec.element_type for spec in (*signature.outputs, *signature.states)}
        values = {
            name: value.to(TORCH_DTYPES[types[name]]) for name, value in zip(emitted.outputs, results, strict=True)
        }
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
    feeds, names = _through_python(emitted.model, given, names)
    with tempfile.TemporaryDirectory() as folder:
        path = write_onnx(emitted, Path(folder) / "program.onnx")
        try:
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            return [to_tensor(value) for value in session.run(names, feeds)]
        except Exception as error:  # onnxruntime has an exception for each status, without a common base
            raise EvaluationError(f"onnxruntime does not run the program: {error}") from error


def _through_python(
    model: onnx.ModelProto, given: Mapping[str, Any], names: Sequence[str]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays that a model is fed with, and the names of its results. NumPy has no bfloat16, so the model casts such
    inputs and outputs from and to float32, in which they are the same numbers."""
    graph, feeds = model.graph, {}
    for each in graph.input:
        value, name = to_tensor(given[each.name]), each.name
        if each.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
            each.name, each.type.tensor_type.elem_type = f"{name}.f32", onnx.TensorProto.FLOAT
            graph.node.insert(0, helper.make_node("Cast", [each.name], [name], to=onnx.TensorProto.BFLOAT16))
            value = value.float()
        feeds[each.name] = array_of(value)
    for each in graph.output:
        if each.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
            graph.node.append(helper.make_node("Cast", [each.name], [f"{each.name}.f32"], to=onnx.TensorProto.FLOAT))
            names = [f"{name}.f32" if name == each.name else name for name in names]
            each.name, each.type.tensor_type.elem_type = f"{each.name}.f32", onnx.TensorProto.FLOAT
    return feeds, list(names)


ENGINE = OnnxRuntime()
