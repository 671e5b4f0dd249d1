"""Tests of rules on exported programs."""
