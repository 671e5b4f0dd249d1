"""Lowerings: one ATen op to `coreai` ops. One family a file; a rule is a function with an example."""

from patterns_catalog.lowering import (
    average_pooling,
    creation,
    data_dependent,
    elementwise,
    experts_support,
    indexing,
    linear_algebra,
    ordering,
    pooling,
    reductions,
    resizing,
    rounding,
    scatter,
    shapes,
    statistics,
    updates,
)

FAMILIES = (
    average_pooling,
    creation,
    data_dependent,
    elementwise,
    experts_support,
    indexing,
    linear_algebra,
    ordering,
    pooling,
    reductions,
    resizing,
    rounding,
    scatter,
    shapes,
    statistics,
    updates,
)
