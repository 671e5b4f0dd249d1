"""Modules that stay graphs of their own: their calls are marked for the export, and become regions after the import."""
