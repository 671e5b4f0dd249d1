"""Converted programs, `AIProgram`: how they were made, and what can be done with them."""
