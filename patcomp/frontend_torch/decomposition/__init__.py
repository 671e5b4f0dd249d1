"""Decomposition: ops that no rule takes are taken apart, before or during the import."""
