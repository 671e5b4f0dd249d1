"""ATen ops written in PyTorch, which are taken apart so on import; see `patcomp.patterns.decomposition`."""
