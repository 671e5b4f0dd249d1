"""Findings of `patcomp lint-catalog` that are intended, with the reasons."""

EXPLAINED = {
    "not proved: decompose linalg_matrix_exp": "PyTorch's own results for large matrices have fewer than 12 digits",
}
"""The reason for each finding, by its kind and rule."""
