"""patcomp: the PyTorch to Core AI compiler, written as a catalog of graph-rewrite patterns.

program = convert(model, (x,), verify=True, save="model.aimodel")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from patcomp.collector import collector_paused
from patcomp.errors import (
    ConversionWarning,
    EvaluationError,
    ExportError,
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
from patcomp.version import __version__

if TYPE_CHECKING:
    from patcomp.as_coreai_torch import install_as_coreai_torch
    from patcomp.conversion.call import convert
    from patcomp.emit.asset import Asset, load
    from patcomp.evaluate.verification import Verification
    from patcomp.exported_programs.rewriting import rewrite, why_not_rewritten
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
    from patcomp.frontend_torch.composite_functions import composite
    from patcomp.frontend_torch.exporting import export
    from patcomp.ir.graphs import generate_composite_decl
    from patcomp.partitions import Partitioned, partition
    from patcomp.program.program import AIProgram

__all__ = [
    "AIProgram",
    "Asset",
    "ConversionWarning",
    "EvaluationError",
    "ExportError",
    "ExternalizeSpec",
    "MetalParameter",
    "MismatchError",
    "MissingToolchainError",
    "ParseError",
    "Partitioned",
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
    "convert",
    "export",
    "generate_composite_decl",
    "get_decomp_table",
    "get_operand",
    "get_operands",
    "install_as_coreai_torch",
    "load",
    "mark_for_externalization",
    "partition",
    "rewrite",
    "supports",
    "why_not_rewritten",
]

_LAZY = {
    "patcomp.conversion.call": ("convert",),
    "patcomp.emit.asset": ("Asset", "load"),
    "patcomp.program.program": ("AIProgram",),
    "patcomp.frontend_torch": (
        "ExternalizeSpec", "MetalParameter", "TorchConverter", "TorchMetalKernel", "get_decomp_table", "get_operand",
        "get_operands", "mark_for_externalization", "supports",
    ),
    "patcomp.as_coreai_torch": ("install_as_coreai_torch",),
    "patcomp.frontend_torch.exporting": ("export",),
    "patcomp.frontend_torch.externalization.externalize": (
        "_patch_model_for_externalization", "_subexport_and_restore",
    ),
    "patcomp.frontend_torch.composite_functions": ("composite",),
    "patcomp.evaluate.verification": ("Verification",),
    "patcomp.partitions": ("Partitioned", "partition"),
    "patcomp.exported_programs.rewriting": ("rewrite", "why_not_rewritten"),
    "patcomp.ir.graphs": ("generate_composite_decl",),
}  # fmt: skip
"""The names that a module is imported for when they are first used: tools for IR text start without torch."""


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            with collector_paused():  # which takes a quarter of the import
                return getattr(import_module(module), name)
    from patcomp.conversion.habits import NAMES
    from patcomp.errors import did_you_mean

    advice = f"; {NAMES[name]}" if name in NAMES else did_you_mean(name, __all__)
    raise AttributeError(f"module 'patcomp' has no attribute {name!r}{advice}")
