"""The error of this package."""

from patcomp.errors import PatcompError


class BundleError(PatcompError, ValueError):
    """A folder cannot become a bundle, or a bundle cannot be used; the message says why and what to do."""
