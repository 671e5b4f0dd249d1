"""Decompositions: ATen ops as PyTorch functions, by which the import replaces them."""
