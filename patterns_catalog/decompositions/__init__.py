"""ATen ops written in PyTorch, which are taken apart so on import; see `patcomp.patterns.decomposition`."""

from patterns_catalog.decompositions import (
    complex_arithmetic,
    matrix_products,
    normalization,
    unique,
)

FAMILIES = (
    complex_arithmetic,
    matrix_products,
    normalization,
    unique,
)
