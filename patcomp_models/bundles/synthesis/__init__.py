"""Models that speak: their parts as modules."""
