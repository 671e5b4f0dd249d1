"""Composites: the ops that the Core AI compiler knows by name, and the patterns that find them in models."""

from patterns_catalog.composites import activation, attention, normalization, shuffle

FAMILIES = (activation, attention, normalization, shuffle)
