"""Composites from PyTorch functions."""

from patcomp.frontend_torch.composite_functions.declaration import composite

__all__ = ["composite"]
