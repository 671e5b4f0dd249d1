"""The numbers of a file by ONNX Runtime, for the comparison with what patcomp makes of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.errors import EvaluationError
from patcomp.onnx.importing.reading import OnnxError


class OnnxRuntimeModel(nn.Module):
    """Runs a file by ONNX Runtime; tensors in, tensors out."""

    def __init__(self, path: Path):
        """Load the file.

        Raises:
            ImportError: onnxruntime is not installed.
            OnnxError: it refuses the file.
        """
        import onnxruntime

        super().__init__()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what it says is in its exceptions, too
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            self.session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its classes have no common one that is public
            raise OnnxError(f"ONNX Runtime refuses {path}: {error}") from error
        self.names = [each.name for each in self.session.get_inputs()]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs, in the order of the file.

        Raises:
            EvaluationError: ONNX Runtime cannot run the file on these inputs.
        """
        try:
            values = {name: value.numpy() for name, value in zip(self.names, inputs, strict=True)}
            return tuple(torch.from_numpy(output) for output in self.session.run(None, values))
        except Exception as error:
            raise EvaluationError(f"ONNX Runtime cannot run the file: {error}") from error
