"""From PyTorch to the IR: staging, import, decomposition, and the questions what can be converted."""

from patcomp.frontend_torch.converter import EntrypointError, ProgramTypeError, TorchConverter
from patcomp.frontend_torch.decompositions import get_decomp_table
from patcomp.frontend_torch.support import OpSupport, ProgramSupport, supports

__all__ = [
    "EntrypointError",
    "OpSupport",
    "ProgramSupport",
    "ProgramTypeError",
    "TorchConverter",
    "get_decomp_table",
    "supports",
]
