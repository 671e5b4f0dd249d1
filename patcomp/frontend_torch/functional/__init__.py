"""Exported programs as functions: without writes in place, without nested graphs that only switch a mode."""
