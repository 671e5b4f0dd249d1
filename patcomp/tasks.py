"""Models of a folder by their task: the public names of `patcomp_models.tasks`, which stands on top of the compiler."""

import patcomp_models.old_names  # noqa: F401
from patcomp_models.tasks import *  # noqa: F403
from patcomp_models.tasks import __all__ as __all__

__path__: list[str] = []  # `patcomp_models.old_names` finds what is below it
