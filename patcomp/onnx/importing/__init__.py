"""ONNX in: files of ONNX as exported programs of PyTorch, which the converter takes."""

from patcomp.onnx.importing.exporting import OnnxProgram, from_onnx
from patcomp.onnx.importing.reading import OnnxError

__all__ = ["OnnxError", "OnnxProgram", "from_onnx"]
