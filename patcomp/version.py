"""The version of patcomp, in a file that every part of it may import."""

__version__ = "0.1.0"
