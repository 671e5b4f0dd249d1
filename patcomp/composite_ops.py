"""PyTorch modules whose forward is one composite op of Core AI, to build models of.

    from patcomp.composite_ops import RMSNorm, SDPA

They are ordinary eager modules. In a model that is converted, the rules of the recover stage find the
composites in what export makes of them.
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
