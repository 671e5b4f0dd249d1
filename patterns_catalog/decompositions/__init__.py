"""ATen ops written in PyTorch, which are decomposed so on import."""
