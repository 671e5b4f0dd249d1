"""Composites from PyTorch functions."""

from patcomp.frontend_torch.reference.declaration import composite

__all__ = ["composite"]
