"""Lowerings: one ATen op to `coreai` ops. One family a file; a rule is a function with an example."""
