"""Normalize: one spelling for equivalent ops, so that each composite needs one pattern."""
