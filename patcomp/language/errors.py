"""The error of this package."""

from patcomp.errors import PatcompError


class LanguageModelError(PatcompError, ValueError):
    """A checkpoint cannot be converted to a bundle, or a bundle cannot be used; the message says why and what to do."""
