"""Checkpoints of strangers: their folders, configurations and weights, checked before they are read."""
