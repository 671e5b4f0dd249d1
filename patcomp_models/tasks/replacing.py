"""Other functions in the place of those of a library, while a model is exported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(names: dict[str, Any], **values: Any) -> Iterator[None]:
    """Put values in the place of those of a module or an object, and put these back at the end.

    Args:
        names: of the module or the object, `vars(module)`.
        values: by name.
    """
    before = {name: names[name] for name in values if name in names}
    names |= values
    try:
        yield
    finally:
        for name in values:
            del names[name]
        names |= before


def no_mask(*given: Any, **options: Any) -> None:
    """In the place of transformers' `create_bidirectional_mask`, for inputs without padding.

    While a model is exported, transformers makes a mask even if it hides nothing; some models do not take it.
    """
