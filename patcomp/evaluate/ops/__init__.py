"""The meanings of Core AI ops, a family a file. Each file of the folder registers its functions when it is imported."""
