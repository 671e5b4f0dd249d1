"""Language models: the public names of `patcomp_models.language`, which stands on top of the compiler."""

from patcomp_models.language import *  # noqa: F403
from patcomp_models.language import __all__ as __all__
