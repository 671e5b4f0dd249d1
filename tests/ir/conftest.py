"""Settings of the property tests."""

from hypothesis import settings

# a first example may import PyTorch or fill a cache, which says nothing about the speed of what is tested
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
