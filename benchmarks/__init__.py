"""Measurements of patcomp; none of them runs in CI."""
