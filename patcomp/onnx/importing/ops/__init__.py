"""The rows of ops, a family a file; every file of this folder is imported by its name."""
