"""What a later process knows of decompositions: nothing but what earlier ones kept on disk."""

from patcomp.frontend_torch.decomposition import shared_graphs


def forget_graphs() -> None:
    """Forget the decomposed graphs of this process."""
    shared_graphs._shared_graphs.cache_clear()
