"""Normalize: one spelling for what means the same, on which composite patterns are written once."""

from patterns_catalog.normalize import (
    arithmetic,
    attention_views,
    complex_parts,
    einsum,
    neighbours,
    reductions,
    remainders,
    repeats,
    scalars,
    statistics,
    updates,
    views,
)

FAMILIES = (
    arithmetic,
    attention_views,
    complex_parts,
    einsum,
    neighbours,
    reductions,
    remainders,
    repeats,
    scalars,
    statistics,
    updates,
    views,
)
