"""The kinds of compression schemes, one a file; every file is found by its name."""
