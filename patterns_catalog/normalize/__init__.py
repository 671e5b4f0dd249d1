"""Normalize: one spelling for what means the same, on which composite patterns are written once."""
