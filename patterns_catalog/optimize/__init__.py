"""Optimize: clean-up of lowered graphs. Folding, common subexpressions and dead ops are the stage's own."""
