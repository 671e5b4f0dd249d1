"""The decompositions that an asset stores beside its composite ops: regions of simpler ops that compute the same.

Core AI keeps a composite op whole where it has a kernel for it, and falls back to the region elsewhere. A region
depends on the types of the operands and results only. `activations`, `broadcasting`, `reductions`, `movement` and
`quantization` have one function an op; `body` builds regions.
"""

import patcomp.asset.decompositions.activations
import patcomp.asset.decompositions.broadcasting
import patcomp.asset.decompositions.movement
import patcomp.asset.decompositions.quantization
import patcomp.asset.decompositions.reductions  # noqa: F401
from patcomp.asset.decompositions.body import decomposition, has_decomposition

__all__ = ["decomposition", "has_decomposition"]
