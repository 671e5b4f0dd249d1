"""Decomposition of the ops that no rule takes, before or during the import."""
