"""The error of this package."""

from patcomp.bundle_folders.errors import BundleError


class LanguageModelError(BundleError):
    """A checkpoint cannot be converted to a bundle, or a bundle cannot be used; the message says why and what to do."""
