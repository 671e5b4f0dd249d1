"""The backend: what the partitioner delegates, converted by patcomp and delivered by ExecuTorch's Core AI backend.

A `.pte` file names the backend of a delegate by its class, and the runtime finds it by this name. So the class stays
ExecuTorch's `CoreAIBackend`, and its `preprocess` gets a second way: parts of `patcomp_executorch.CoreAIPartitioner`
are converted here, and all others by ExecuTorch as before. The manifest, the files in the `.pte` or beside it, and the
compilation for a device are ExecuTorch's in both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from executorch.backends.apple.coreai.compiler import preprocess as executorchs
from executorch.backends.apple.coreai.compiler.enumerated_shapes import apply_enumerated_shapes
from executorch.backends.apple.coreai.compiler.io_compat import io_mismatches
from executorch.exir.backend.backend_details import PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from patcomp import AIProgram, PatcompError, TorchConverter
from patcomp_executorch.edge import aten_program

_KEYS = executorchs.COMPILE_SPEC_KEYS
_convert_by_executorch = executorchs.CoreAIBackend.preprocess


class Specs(list[CompileSpec]):
    """The compile specs of a part that patcomp converts: ExecuTorch hands them on, and writes them as any list."""


class BoundaryError(PatcompError, ValueError):
    """A delegate takes or gives other tensors than ExecuTorch gives and takes."""


def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
    """A part as an asset, in the `.pte` or beside it.

    Raises:
        UnsupportedError: patcomp does not convert the part.
        BoundaryError: the asset does not take and give what ExecuTorch does.
        ValueError: the asset is for a folder beside the `.pte` that `coreai_sidecar_dir` does not name, or there is no
            such system.
    """
    if not isinstance(compile_specs, Specs):
        return _convert_by_executorch(edge_program, compile_specs)
    given = {spec.key: spec.value for spec in compile_specs}
    folder = os.environ.get(executorchs.SIDECAR_DIR_ENV) if _KEYS.USES_SIDECAR.value in given else None
    if folder is None and _KEYS.USES_SIDECAR.value in given:
        raise ValueError(
            "uses_sidecar=True needs a folder: with coreai_sidecar_dir(FOLDER): to_edge_transform_and_lower"
        )
    if folder is None:
        executorchs._maybe_warn_sidecar_env_ignored()
    program = part_program(edge_program)
    if enumerated := given.get(_KEYS.INPUT_ENUMERATIONS.value):
        _enumerate_sizes(program, edge_program, json.loads(enumerated))
    if _KEYS.AOT_COMPILE_CONFIG.value in given:
        options = executorchs._aot_compile_options(compile_specs)
        return executorchs.CoreAIBackend._preprocess_aot_compiled(program, options, folder)
    system = executorchs._min_os_version(compile_specs)
    return executorchs.CoreAIBackend._preprocess_portable(program, system, folder)


executorchs.CoreAIBackend.preprocess = staticmethod(preprocess)


def part_program(edge_program: ExportedProgram) -> AIProgram:
    """A part as a Core AI program, whose inputs have the names of its placeholders.

    Raises:
        UnsupportedError: patcomp does not convert the part.
        BoundaryError: the program does not take and give what ExecuTorch does.
    """
    names = [spec.arg.name for spec in edge_program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    program = TorchConverter().add_exported_program(aten_program(edge_program), input_names=names).to_coreai()
    signature, edge = program.signature(), edge_program.graph_signature
    values = {node.name: node.meta.get("val") for node in edge_program.graph.nodes}
    results = [spec.arg.name for spec in edge.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    problems = [
        problem
        for kind, specs, nodes in (("input", signature.inputs, names), ("output", signature.outputs, results))
        for problem in io_mismatches(
            [(spec.element_type, spec.shape) for spec in specs], [_described(values[name]) for name in nodes], kind
        )
    ]
    if problems:
        raise BoundaryError("a delegate does not fit what ExecuTorch gives and takes:\n  " + "\n  ".join(problems))
    return program


def _described(value: Any) -> tuple[Any, tuple[Any, ...] | None]:
    """Element type and shape of a value that ExecuTorch gives or takes, as `io_mismatches` takes them."""
    return (value.dtype, tuple(value.shape)) if isinstance(value, torch.Tensor) else (type(value).__name__, None)


def _enumerate_sizes(program: AIProgram, edge_program: ExportedProgram, sizes: dict[str, Sequence[int]]) -> None:
    """Give a program an entry point for each of the sizes, in place, as ExecuTorch's backend does."""
    attributes = [{"coreai.name": SimpleNamespace(value=name)} for name in program.input_names()]
    asked = SimpleNamespace(
        get_graph=lambda entrypoint: SimpleNamespace(arg_attrs=attributes),
        set_static_shape_config=program.set_static_shape_config,
    )
    apply_enumerated_shapes(asked, edge_program, sizes)
