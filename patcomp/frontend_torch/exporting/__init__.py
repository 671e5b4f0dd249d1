"""From a module to an exported program: `torch.export`, and other ways of export for models on which it fails."""

from patcomp.frontend_torch.exporting.steps import export

__all__ = ["export"]
