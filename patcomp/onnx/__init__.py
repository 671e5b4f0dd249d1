"""ONNX: files of ONNX as programs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from patcomp.onnx.importing import OnnxProgram, from_onnx

__all__ = ["OnnxProgram", "from_onnx"]

_LAZY = {"patcomp.onnx.importing": ("OnnxProgram", "from_onnx")}


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
