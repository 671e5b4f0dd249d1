"""ONNX: files as exported programs, programs as ONNX models, and onnxruntime as a third engine that runs them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patcomp.onnx.emission.model import save_onnx, to_onnx
    from patcomp.onnx.importing import OnnxProgram, from_onnx

__all__ = ["OnnxProgram", "from_onnx", "save_onnx", "to_onnx"]

_LAZY = {
    "patcomp.onnx.emission.model": ("save_onnx", "to_onnx"),
    "patcomp.onnx.importing": ("OnnxProgram", "from_onnx"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
