"""The real runtime in a child process, as tests use it: `native.run(module, inputs)`."""

from patcomp.emit.native import Native, NativeError, ProcessDied

__all__ = ["Native", "NativeError", "ProcessDied"]
