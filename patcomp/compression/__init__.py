"""Compress weights: store the weights of a converted program as integers, palettes or sparse elements.

`program.compress("w4_block32")` is the way in; `docs/compression.md` is the guide.
"""

from patcomp.compression.budget import BUDGET_SCHEMES, within
from patcomp.compression.compress import compress_module
from patcomp.compression.config import CompressionConfig
from patcomp.compression.measures import Measure
from patcomp.compression.report import Alternative, CompressionReport, WeightReport
from patcomp.compression.request import CompressionRequest
from patcomp.compression.scheme import PRESETS, Scheme
from patcomp.compression.stored import compressed_weights
from patcomp.compression.weights import OtherWeight, Weight, other_weights, weights_of

__all__ = [
    "BUDGET_SCHEMES",
    "PRESETS",
    "Alternative",
    "CompressionConfig",
    "CompressionReport",
    "CompressionRequest",
    "Measure",
    "OtherWeight",
    "Scheme",
    "Weight",
    "WeightReport",
    "compress_module",
    "compressed_weights",
    "other_weights",
    "weights_of",
    "within",
]
