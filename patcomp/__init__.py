"""patcomp: the PyTorch to Core AI compiler, written as a catalog of graph-rewrite patterns.

program = TorchConverter().add_exported_program(exported).to_coreai()
program.save_asset("model.aimodel")
"""

from typing import TYPE_CHECKING, Any

from patcomp.errors import (
    EvaluationError,
    MissingToolchainError,
    ParseError,
    PatcompError,
    Problem,
    RuleError,
    StageError,
    UnsupportedError,
    VerifyError,
)

if TYPE_CHECKING:
    from patcomp.emit.program import AIProgram
    from patcomp.frontend_torch import TorchConverter, get_decomp_table, supports

__version__ = "0.1.0"

__all__ = [
    "AIProgram",
    "EvaluationError",
    "MissingToolchainError",
    "ParseError",
    "PatcompError",
    "Problem",
    "RuleError",
    "StageError",
    "TorchConverter",
    "UnsupportedError",
    "VerifyError",
    "__version__",
    "get_decomp_table",
    "supports",
]

_LAZY = {
    "TorchConverter": "patcomp.frontend_torch",
    "get_decomp_table": "patcomp.frontend_torch",
    "supports": "patcomp.frontend_torch",
    "AIProgram": "patcomp.emit.program",
}


def __getattr__(name: str) -> Any:
    # tools on IR text import patcomp without paying for torch
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'patcomp' has no attribute {name!r}")
