"""PyTorch modules whose forward is one composite op of Core AI, to build models of.

    from patcomp.composite_ops import RMSNorm, SDPA

They are ordinary eager modules. When a model is converted, the rules of the recover stage find the
composites in the exported ops.
"""

from patcomp.frontend_torch.composite_ops import (
    SDPA,
    GatedDeltaUpdate,
    GatherMM,
    RMSNorm,
    RMSNormImpl,
    RoPE,
    Version,
)

__all__ = ["SDPA", "GatedDeltaUpdate", "GatherMM", "RMSNorm", "RMSNormImpl", "RoPE", "Version"]
