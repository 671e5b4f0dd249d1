"""Composites: the ops that the Core AI compiler knows by name, and the patterns that find them in models."""
