"""The errors of models, their folders and bundles."""

from patcomp.errors import PatcompError


class BundleError(PatcompError, ValueError):
    """A folder cannot become a bundle, or a bundle cannot be used; the message says why and what to do."""


class LanguageModelError(BundleError):
    """A checkpoint cannot be converted to a bundle, or a bundle cannot be used; the message says why and what to do."""
