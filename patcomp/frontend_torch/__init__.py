"""PyTorch in: exported programs and modules, imported as `aten` IR and converted."""

from patcomp.frontend_torch.converter import EntrypointError, ProgramTypeError, TorchConverter
from patcomp.frontend_torch.decompositions import get_decomp_table

__all__ = ["EntrypointError", "ProgramTypeError", "TorchConverter", "get_decomp_table"]
