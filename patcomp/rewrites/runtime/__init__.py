"""What a program needs for the Core AI runtime and its toolchain alone: rewrites that keep them from wrong results."""
