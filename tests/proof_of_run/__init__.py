"""Proofs of conversions: the ten networks, and faults in what the stages do."""
