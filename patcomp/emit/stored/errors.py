"""What can go wrong between the IR and an asset."""

from __future__ import annotations

from patcomp.errors import PatcompError


class UnsupportedInAssetError(PatcompError, ValueError):
    """A program cannot be stored in an asset, or an asset cannot be read into the IR."""
