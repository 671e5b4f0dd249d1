"""Rewrites that only the Core AI runtime and its toolchain need, to avoid aborts and wrong results."""
