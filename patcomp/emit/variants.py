"""The sizes of an entry point whose inputs have given shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from patcomp.emit.dims import Dims, Place
from patcomp.errors import EvaluationError
from patcomp.ir.types import HandleType, TensorType, shape_of
from patcomp.ir.xdsl import Attribute


def static_sizes(types: Mapping[str, Attribute], dims: Dims, shapes: Mapping[str, Sequence[int]]) -> dict[Place, int]:
    """The size of each named dimension, solved from given input shapes.

    Raises:
        ValueError: an input does not exist, or its shape does not fit its type, its ranges or the others.
    """
    sizes: dict[Place, int] = {}
    for name, shape in shapes.items():
        type_ = types.get(name)
        content = type_.tensor_type if isinstance(type_, HandleType) else type_
        if not isinstance(content, TensorType):
            raise ValueError(f"there is no input {name!r}; there are {', '.join(types)}")
        whole = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape)
        known = shape_of(content)
        fits = len(shape) == len(known) and all(old in (None, new) for old, new in zip(known, shape, strict=True))
        if not whole or not fits:
            raise ValueError(f"the input {name!r} of type {content} cannot have the shape {tuple(shape)}")
        sizes.update({(name, axis): size for axis, size in enumerate(shape)})
    try:
        dims.sizes(sizes)
    except EvaluationError as error:
        raise ValueError(str(error)) from None
    return sizes
