"""Lowerings and Metal kernels that users register for their own ops."""
