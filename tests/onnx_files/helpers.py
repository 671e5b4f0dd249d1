"""Files of ONNX for tests, and their comparison with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from patcomp import AIProgram, TorchConverter
from patcomp.onnx.importing import OnnxProgram, from_onnx
from patcomp.onnx.importing.original import OnnxRuntimeModel


def written(place: Path, text: str, name: str = "model.onnx") -> Path:
    """A file from ONNX's own text form."""
    import onnx.parser

    path = place / name
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def exported(place: Path, module: torch.nn.Module, inputs: tuple[Any, ...], **options: Any) -> Path:
    """A file of PyTorch's older exporter, which takes a tenth of the time of the other one."""
    path = place / "model.onnx"
    torch.onnx.export(module.eval(), inputs, str(path), dynamo=False, verbose=False, **options)
    return path


def converted(path: Path, *inputs: torch.Tensor, **sizes: int) -> tuple[OnnxProgram, AIProgram]:
    """The program of a file, whose numbers are ONNX Runtime's on the given inputs and on the examples."""
    found = from_onnx(path, sizes=sizes)
    converter = TorchConverter().add_exported_program(found.exported, found.input_names, found.output_names)
    program = converter.to_coreai()
    program.optimize()
    original = OnnxRuntimeModel(path)
    for values in {id(each): each for each in (inputs, found.exported.example_inputs[0]) if each}.values():
        program.verify_against(original, values, backends=["evaluator"]).check()
    return found, program
