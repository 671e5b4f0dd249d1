"""Language models: the public names of `patcomp_models.language`, which stands on top of the compiler."""

import patcomp_models.old_names  # noqa: F401
from patcomp_models.language import *  # noqa: F403
from patcomp_models.language import __all__ as __all__

__path__: list[str] = []  # `patcomp_models.old_names` finds what is below it
