"""Support for a torchvision whose C++ operators do not load, such as one for CUDA with a PyTorch for the CPU.

The import of torchvision, and of transformers models, fails with `operator torchvision::nms does not exist`. Few
models call these operators; for all others it is enough to declare the operators, which the import of this module does.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import torch

ADVICE = "install the torchvision that was built for your PyTorch; for the CPU: pip install --force-reinstall "
ADVICE += "--no-deps torchvision --index-url https://download.pytorch.org/whl/cpu"

_DECLARED: list[torch.library.Library] = []
"""The libraries with the declarations; a declaration lasts as long as its library object."""


def declare_operators() -> None:
    """Declare the operators that torchvision looks for when it is imported, if its C++ extension does not load.

    Programs cannot run them.
    """
    spec = None if "torchvision" in sys.modules else find_spec("torchvision")
    if spec is None or _DECLARED or hasattr(torch.ops.torchvision, "nms"):
        return
    folder = Path((spec.submodule_search_locations or [""])[0])
    if any(map(_loads, folder.glob("_C*"))):  # _C.so, and _C_stable.so since torchvision 0.29
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _DECLARED.append(library)


def _loads(extension: Path) -> bool:
    try:
        torch.ops.load_library(extension)
    except (OSError, ImportError):
        return False
    return True


def misfit() -> str:
    """The note for the user if torchvision was imported with declared operators; empty otherwise."""
    if not _DECLARED or "torchvision" not in sys.modules:
        return ""
    return (
        "the C++ operators of torchvision do not fit this PyTorch and cannot run (nms, roi_align, deform_conv2d, ...); "
        f"models without them are not affected. To have them, {ADVICE}"
    )


declare_operators()
