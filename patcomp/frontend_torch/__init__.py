"""From PyTorch to the IR: staging, import, decomposition, and queries about supported ops."""

from patcomp.frontend_torch.converter import TorchConverter
from patcomp.frontend_torch.custom.lowerings import get_operand, get_operands
from patcomp.frontend_torch.custom.metal_kernel import MetalParameter, TorchMetalKernel
from patcomp.frontend_torch.decomposition.table import get_decomp_table
from patcomp.frontend_torch.externalization.externalize import ExternalizeSpec, mark_for_externalization
from patcomp.frontend_torch.staging import EntrypointError
from patcomp.frontend_torch.support import OpSupport, ProgramSupport, supports
from patcomp.frontend_torch.way_in import ProgramTypeError

__all__ = [
    "EntrypointError",
    "ExternalizeSpec",
    "MetalParameter",
    "OpSupport",
    "ProgramSupport",
    "ProgramTypeError",
    "TorchConverter",
    "TorchMetalKernel",
    "get_decomp_table",
    "get_operand",
    "get_operands",
    "mark_for_externalization",
    "supports",
]
