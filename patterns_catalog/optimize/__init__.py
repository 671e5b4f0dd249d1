"""Optimize: clean-up of lowered graphs. Folding, common subexpressions and dead ops are the stage's own."""

from patterns_catalog.optimize import shapes, updates

FAMILIES = (shapes, updates)
