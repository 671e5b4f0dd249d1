"""ExecuTorch with patcomp: delegates the parts of a model that patcomp converts to Core AI.

    from executorch.exir import to_edge_transform_and_lower
    from patcomp_executorch import CoreAIPartitioner

    lowered = to_edge_transform_and_lower(torch.export.export(model, inputs), partitioner=[CoreAIPartitioner()])
    lowered.to_executorch().save("model.pte")

Delivery, compile specs, passes and the compile configuration are those of `executorch.backends.apple.coreai`.
"""

from patcomp_executorch.delegates import delegated_assets
from patcomp_executorch.partitioner import CoreAIPartitioner

__all__ = ["CoreAIPartitioner", "delegated_assets"]
