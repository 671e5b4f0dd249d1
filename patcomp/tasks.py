"""Models of a folder by their task: the public names of `patcomp_models.tasks`, which stands on top of the compiler."""

from patcomp_models.tasks import *  # noqa: F403
from patcomp_models.tasks import __all__ as __all__
