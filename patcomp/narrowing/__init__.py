"""64-bit numbers in 32 bits: the user's choice, the ranges of all numbers of a program, and which may change."""
