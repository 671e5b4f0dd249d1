"""The decompositions that an asset stores beside its composite ops: regions of simpler ops that compute the same.

Core AI keeps a composite op whole where it has a kernel for it, and falls back to the region elsewhere. A region
depends on the types of the operands and results only. `activations`, `broadcasting`, `reductions`, `movement` and
`quantization` have one function an op; `body` builds regions.
"""

import patcomp.emit.stored.decompositions.activations
import patcomp.emit.stored.decompositions.broadcasting
import patcomp.emit.stored.decompositions.movement
import patcomp.emit.stored.decompositions.quantization
import patcomp.emit.stored.decompositions.reductions  # noqa: F401
from patcomp.emit.stored.decompositions.body import decomposition_region, has_decomposition

__all__ = ["decomposition_region", "has_decomposition"]
