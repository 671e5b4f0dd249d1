"""The laboratory: proofs of rules and conversions, lints, and tests that follow from a rule's declaration.

The compiler `patcomp` knows nothing of this package but the name of its prover.
"""
