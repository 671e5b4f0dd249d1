"""Times coreai-torch's `to_coreai()` in an environment that has it; `benchmarks.convert` starts this.

    python coreai_torch_worker.py LAYERS REPEAT

The last line on standard output is the result as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version

from coreai_torch import TorchConverter, get_decomp_table
from model import exported_llama


def main() -> None:
    """Measure and print."""
    layers, repeat = map(int, sys.argv[1:3])
    best = nodes = 0.0
    for _ in range(repeat):
        # exported anew, because conversion changes the program it is given
        exported = exported_llama(layers, get_decomp_table())
        nodes = len(exported.graph.nodes)
        converter = TorchConverter().add_exported_program(exported)
        started = time.perf_counter()
        converter.to_coreai()
        seconds = time.perf_counter() - started
        best = min(best or seconds, seconds)
    print(json.dumps({"version": version("coreai-torch"), "nodes": nodes, "seconds": best}))


if __name__ == "__main__":
    main()
