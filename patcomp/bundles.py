"""Bundles: the public names of `patcomp_models.bundles`, which stands on top of the compiler."""

from patcomp_models.bundles import *  # noqa: F403
from patcomp_models.bundles import __all__ as __all__
