"""Narrowing of 64-bit numbers to 32 bits: the user's choice, the range analysis, and the numbers that may change."""
