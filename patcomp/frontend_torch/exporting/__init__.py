"""From a module to an exported program: `torch.export` with what it takes to get models through."""

from patcomp.frontend_torch.exporting.steps import export

__all__ = ["export"]
