"""Findings of `patcomp lint-catalog` that are intended, with the reasons."""

_OF_TRANSFORMERS = "its op is one of transformers', which need not be installed"

EXPLAINED = {
    "never fires: gather_mm of groups": _OF_TRANSFORMERS,
    "never fires: gather_mm of groups by their ends": _OF_TRANSFORMERS,
    "not proved: decompose fake_quantize_if_enabled": "PyTorch inverts the scale in 32 bits, and rounds that",
}
"""The reason for each finding, by its kind and rule."""
