"""ATen ops written in PyTorch, which are taken apart so on import; see `patcomp.patterns.decomposition`."""

from patterns_catalog.decompositions import matrix_products, normalization, unique

FAMILIES = (matrix_products, normalization, unique)
