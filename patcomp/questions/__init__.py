"""Answers for debugging: which rules made an op, why a rule did not apply, whether it can apply at all."""
