"""Modules that stay graphs of their own: their calls are marked during export, and become regions after the import."""
