"""ATen ops written in PyTorch, which are taken apart so on import; see `patcomp.patterns.decomposition`."""

from patterns_catalog.decompositions import (
    angles,
    bits,
    complex_arithmetic,
    distances,
    grid_sampling,
    indexing,
    losses,
    matrix_products,
    normalization,
    number_classes,
    ordering,
    scans,
    searching,
    unique,
)

FAMILIES = (
    angles,
    bits,
    complex_arithmetic,
    distances,
    grid_sampling,
    indexing,
    losses,
    matrix_products,
    normalization,
    number_classes,
    ordering,
    scans,
    searching,
    unique,
)
