"""The error of an export step whose program would differ from the model."""

from patcomp.errors import PatcompError


class RefusedError(PatcompError, ValueError):
    """A step of the export could change what the model computes. `patcomp.export` explains it in its own error."""
