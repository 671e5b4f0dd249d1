"""Tests and lints that follow from a rule's declaration and examples: what is drawn, run and compared."""
