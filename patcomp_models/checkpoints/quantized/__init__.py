"""Checkpoints whose weights are in few bits already are read as they are stored; no floats are made of them."""
