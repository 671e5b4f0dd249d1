"""Repeated layers: convert a few of many equal layers, and stamp the others.

A network of 64 equal layers takes about as long to convert as one of three. `shorten` finds the equal layers of an
imported program and takes all but a few out; after the stages, `stamp` puts the others back, as copies of what the
layer before them became. Nothing is assumed about rules: the layers must be the same in everything but their weights,
whose values no rule can read meanwhile, and what the two layers before became must be the same, too. Otherwise the
whole program is converted.
"""

from patcomp.rewrites.repeats.shortening import Shortened, shorten
from patcomp.rewrites.repeats.stamping import NotPeriodicError, stamp

__all__ = ["NotPeriodicError", "Shortened", "shorten", "stamp"]
