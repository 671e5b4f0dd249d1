"""Why formats of weights are not kept as they are stored."""

from __future__ import annotations

_VECTORS = "its weights are sums of vectors of large tables, and a table of Core AI has 256 entries at most"
_KERNEL = "its layout is that of a GPU kernel"

REASONS = {
    "aqlm": _VECTORS,
    "vptq": _VECTORS,
    "quip": _VECTORS,
    "exl2": "rows of one weight have different numbers of bits",
    "exl3": "its bits are the states of a trellis",
    "spqr": "it keeps single outliers beside groups of 3 bits",
    "higgs": "its weights are turned by Hadamard matrices",
    "fp_quant": "its inputs are turned by Hadamard matrices",
    "eetq": _KERNEL,
    "nvfp4": _KERNEL,
}
"""By the name of the method in `config.json`."""
