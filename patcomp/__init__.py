"""patcomp: the PyTorch to Core AI compiler, written as a catalog of graph-rewrite patterns.

program = TorchConverter().add_exported_program(exported).to_coreai()
program.save_asset("model.aimodel")
"""

from typing import TYPE_CHECKING, Any

from patcomp.errors import (
    ConversionWarning,
    EvaluationError,
    MismatchError,
    MissingToolchainError,
    ParseError,
    PatcompError,
    Problem,
    RuleError,
    StageError,
    UnknownNameError,
    UnsupportedError,
    VerifyError,
)

if TYPE_CHECKING:
    from patcomp.emit.asset import Asset, load
    from patcomp.emit.program import AIProgram
    from patcomp.frontend_torch import (
        ExternalizeSpec,
        MetalParameter,
        TorchConverter,
        TorchMetalKernel,
        get_decomp_table,
        get_operand,
        get_operands,
        mark_for_externalization,
        supports,
    )
    from patcomp.frontend_torch.reference import composite
    from patcomp.ir.evaluate import Verification
    from patcomp.ir.graphs import generate_composite_decl

__version__ = "0.1.0"

__all__ = [
    "AIProgram",
    "Asset",
    "ConversionWarning",
    "EvaluationError",
    "ExternalizeSpec",
    "MetalParameter",
    "MismatchError",
    "MissingToolchainError",
    "ParseError",
    "PatcompError",
    "Problem",
    "RuleError",
    "StageError",
    "TorchConverter",
    "TorchMetalKernel",
    "UnknownNameError",
    "UnsupportedError",
    "Verification",
    "VerifyError",
    "__version__",
    "composite",
    "generate_composite_decl",
    "get_decomp_table",
    "get_operand",
    "get_operands",
    "load",
    "mark_for_externalization",
    "supports",
]

_LAZY = {
    "TorchConverter": "patcomp.frontend_torch",
    "TorchMetalKernel": "patcomp.frontend_torch",
    "MetalParameter": "patcomp.frontend_torch",
    "composite": "patcomp.frontend_torch.reference",
    "get_decomp_table": "patcomp.frontend_torch",
    "get_operand": "patcomp.frontend_torch",
    "get_operands": "patcomp.frontend_torch",
    "supports": "patcomp.frontend_torch",
    "ExternalizeSpec": "patcomp.frontend_torch",
    "mark_for_externalization": "patcomp.frontend_torch",
    "_patch_model_for_externalization": "patcomp.frontend_torch.externalization.externalize",
    "_subexport_and_restore": "patcomp.frontend_torch.externalization.externalize",
    "AIProgram": "patcomp.emit.program",
    "Asset": "patcomp.emit.asset",
    "load": "patcomp.emit.asset",
    "Verification": "patcomp.ir.evaluate",
    "generate_composite_decl": "patcomp.ir.graphs",
}


def __getattr__(name: str) -> Any:
    # tools on IR text import patcomp without paying for torch
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'patcomp' has no attribute {name!r}")
