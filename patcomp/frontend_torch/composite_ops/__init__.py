"""Module classes whose forward is one composite op of Core AI; see `patcomp.composite_ops`."""

from patcomp.frontend_torch.composite_ops.attention import SDPA
from patcomp.frontend_torch.composite_ops.gated_delta import GatedDeltaUpdate
from patcomp.frontend_torch.composite_ops.gather_mm import GatherMM
from patcomp.frontend_torch.composite_ops.rms_norm import RMSNorm, RMSNormImpl
from patcomp.frontend_torch.composite_ops.rope import RoPE
from patcomp.frontend_torch.composite_ops.version import Version

__all__ = ["SDPA", "GatedDeltaUpdate", "GatherMM", "RMSNorm", "RMSNormImpl", "RoPE", "Version"]
