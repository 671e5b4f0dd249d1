"""What can go wrong between the IR and an asset."""

from __future__ import annotations

from patcomp.errors import PatcompError


class UnsupportedInAssetError(PatcompError, ValueError):
    """A program has something that an asset cannot hold, or an asset something that the IR lacks."""
