"""The pattern language and its machine; it knows no op of any dialect."""

from patcomp.patterns.procedural import OpRule, OpView, Rejected, lowering, normalization, op_rule, optimization

__all__ = ["OpRule", "OpView", "Rejected", "lowering", "normalization", "op_rule", "optimization"]
