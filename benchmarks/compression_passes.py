"""Compress a saved program with coreai-opt's passes, in an environment that has them; for `benchmarks.compression`.

    python benchmarks/compression_passes.py FLOAT.aimodel w4_block32 SMALL.aimodel

Prints the CPU seconds and the memory in MB that the pass took, as JSON.
"""

import json
import resource
import sys
import time
from pathlib import Path

from coreai.authoring.asset import AIModelAsset
from coreai_opt.coreai_utils import CompressionGranularity, DType, palettize_weights, quantize_weights

PASSES = {
    "w8": lambda program: quantize_weights(program, DType.INT8),
    "w4_block32": lambda program: quantize_weights(
        program, DType.INT4, granularity=CompressionGranularity.PER_BLOCK, block_size=32
    ),
    "pal4_group16": lambda program: palettize_weights(
        program, None, 4, granularity=CompressionGranularity.PER_GROUPED_CHANNEL, group_size=16, num_kmeans_workers=1
    ),
    "pal6": lambda program: palettize_weights(program, None, 6, num_kmeans_workers=1),
    "pal4": lambda program: palettize_weights(program, None, 4, num_kmeans_workers=1),
}
"""The passes that do what a scheme of patcomp does. Their rounding of weights before k-means is as they set it."""


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    source, scheme, target = sys.argv[1:]
    program = AIModelAsset.load(Path(source)).program
    before, started = peak(), time.process_time()
    small = PASSES[scheme](program)
    seconds, memory = time.process_time() - started, peak() - before
    small.save_asset(Path(target))
    print(json.dumps({"seconds": seconds, "memory": memory}))


if __name__ == "__main__":
    main()
